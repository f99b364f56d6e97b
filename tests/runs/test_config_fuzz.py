"""Settings of every kind: a run file is either usable or refused by a `ConfigError` that names the key."""

import math
import time
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.studies.compare import Comparison

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/*.toml"))
ODD: list[Any] = [
    *(math.nan, math.inf, -math.inf, -0.0, 1e308, -1e308, 5e-324, 10**12, 2**63, 10**30, -1, 0, True),
    *("", "x", "\0", "nan", "a" * 5000, "(", "a:b", "é", "\ud800", "file:/none", "../x", "1e308"),
    *([], [1], [[1]], [math.nan], ["x", 1], {}, {"a": 1}, {"name": "x", "a": [1]}, {"name": 3}),
]
NUMBERS = [x for x in ODD if isinstance(x, float | int) and not isinstance(x, bool)]
TABLES = ("local", "engine", "output")
PATHS = [(key,) for key in Config.model_fields if key not in TABLES] + [
    (table, key) for table in TABLES for key in Config().model_dump()[table]
]


def holding(path: tuple[Any, ...], value: Any, values: Any) -> Any:
    """Settings with one value changed."""
    out = holder = deepcopy(values)
    for part in path[:-1]:
        if isinstance(holder, dict):
            holder.setdefault(part, {})
        holder = holder[part]
    holder[path[-1]] = value
    return out


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values in nested settings."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from leaves(item, (*path, key))


def tried(build: Any, values: Any) -> tuple[str, float]:
    """The error's text, or "", and the seconds it took."""
    began, text = time.process_time(), ""
    try:
        build(values)
    except ConfigError as error:
        text = str(error)
        assert text and len(text) < 20_000
    return text, time.process_time() - began


@pytest.mark.parametrize("path", PATHS, ids=".".join)
def test_every_key_is_named(path: tuple[str, ...]) -> None:
    """Each key with each odd value: used, or refused by a message with the key."""
    for value in ODD:
        text, seconds = tried(Config.build, holding(path, value, {"method": "fedavg"}))
        assert not text or path[-1] in text, f"{path} = {value!r}: {text}"
        assert seconds < 3, f"{path} = {value!r}: {seconds} s"


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, 1e308, 10**12], ids=repr)
def test_impossible_numbers_are_refused_everywhere(value: float) -> None:
    free = {"seed", "target"}  # any whole number; with metrics of one's own any number
    for path in PATHS:
        if value == 10**12 and path[-1] in free:
            continue
        text, _ = tried(Config.build, holding(path, value, {}))
        assert path[-1] in text, f"{path} = {value!r} was taken: {text}"


def test_unknown_keys_are_refused_everywhere() -> None:
    for table in ((), *((name,) for name in TABLES)):
        text, _ = tried(Config.build, holding((*table, "lerning_rate"), 1, {}))
        assert "lerning_rate: unknown key" in text


def mutated(seed: int, count: int) -> float:
    """Configs with one to four odd values; returns the slowest."""
    chance, slowest = Random(seed), 0.0
    for _ in range(count):
        values: Any = {"method": "scaffold + sam(rho=0.05)", "clients": 20, "cohort": 5}
        for path in chance.sample(PATHS, chance.randint(1, 4)):
            values = holding(path, chance.choice(ODD), values)
        slowest = max(slowest, tried(Config.build, values)[1])
    return slowest


def test_a_thousand_configs() -> None:
    assert mutated(0, 1000) < 3  # 0.1 on a quiet machine


@pytest.mark.slow
def test_ten_thousand_configs() -> None:
    slowest = mutated(1, 10_000)
    print(f"the slowest took {slowest * 1000:.0f} ms")
    assert slowest < 3


def example(path: Path, every: int) -> tuple[int, float]:
    """All changes of one value in a file, or one of so many of them; how many there were, and the slowest."""
    whole, slowest, count = tomllib.loads(path.read_text(encoding="utf-8")), 0.0, 0
    build = Comparison.build if "methods" in whole or "base" in whole else Config.build
    changes = [(place, value) for place in leaves(whole) for value in ODD]
    for place, value in changes[::every]:
        _, seconds = tried(build, holding(place, value, whole))
        slowest, count = max(slowest, seconds), count + 1
    return count, slowest


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_changes_of_every_example(path: Path) -> None:
    _, slowest = example(path, every=37)
    assert slowest < 5


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_all_changes_of_every_example(path: Path) -> None:
    count, slowest = example(path, every=1)
    print(f"{path.stem}: {count} changes, the slowest {slowest * 1000:.0f} ms")
    assert slowest < 5
