"""Settings: what is refused and how, and that they survive being written."""

import math
import random
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from undrift.core.local.settings import PRESETS, Local
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import cohort_size
from undrift.studies.compare import TableConfig

GOOD = {
    "method": "fedsam",
    "arguments": {"rho": 0.05},
    "data": "cifar10",
    "partition": "dirichlet:0.3",
    "clients": 50,
    "cohort": 5,
    "rounds": 7,
    "seed": 3,
    "model": "resnet20",
    "target": 0.5,
    "local": {"lr": 0.05, "clip": 10.0},
    "engine": {"name": "ray", "workers": 4},
    "output": {"track": ["tensorboard"]},
}


@pytest.mark.quick
def test_a_config_survives_its_file(tmp_path: Path) -> None:
    config = Config.build(GOOD)
    path = tmp_path / "run.toml"
    path.write_text(config.toml())
    assert Config.read(path) == config
    assert repr(config.algorithm()) == "Algorithm(perturbation=SAM(rho=0.05, blend=1.0), aggregation=Uniform())"


def test_the_defaults_are_those_of_local() -> None:
    assert Config().local == Local() and Config().model_dump()["local"] == asdict(Local())


def test_a_preset_gives_way_to_explicit_settings(tmp_path: Path) -> None:
    config = Config.build({"local": {"preset": "papers", "lr": 0.05}})
    assert config.local == Local.preset("papers", lr=0.05) == replace(PRESETS["papers"], lr=0.05)
    assert "preset" not in config.toml() and "weight_decay = 0.001" in config.toml()
    (tmp_path / "config.toml").write_text(config.toml())
    assert Config.read(tmp_path / "config.toml").identity() == config.identity()
    assert Config.build({"local": asdict(Local.preset("papers", lr=0.05))}).identity() == config.identity()


def test_the_papers_preset_is_the_former_default_of_run_files() -> None:
    """Its values are part of published figures; this identity is that of an empty run file before presets."""
    old = Config.build({"local": {"preset": "papers"}}).identity()
    assert old == "561af29029e2a1875be0a82ecc32a7bda0c7295b145f88ff2d1de2f903774b89"


def test_identity_is_what_the_result_depends_on() -> None:
    base = Config.build(GOOD).identity()
    same: list[dict[str, Any]] = [{"engine": {"name": "local"}}, {"output": {"keep": 5}}, {"rounds": 70}]
    same += [{"target": 0.9}, {"target": [0.7, 0.9]}]
    other: list[dict[str, Any]] = [
        {"seed": 4},
        {"arguments": {"rho": 0.1}},
        {"local": {"lr": 0.1}},
        {"partition": "iid"},
        {"model": "cnn"},
    ]
    assert {Config.build({**GOOD, **change}).identity() for change in same} == {base}
    assert len({Config.build({**GOOD, **change}).identity() for change in other} | {base}) == 1 + len(other)


def test_keys_that_are_not_used_leave_the_identity_alone() -> None:
    """The identity of an empty run file before there were `probability` and `failures`."""
    empty = Config().identity()
    assert empty == "5ca29867354171c8a789aa2a33ed66238b3a6448140b803ecfcc1024d18e3534"
    assert Config.build({"failures": "reject"}).identity() == empty
    used: list[dict[str, Any]] = [{"probability": 0.1}, {"probability": 0.2}, {"failures": "raise"}]
    assert len({Config.build(values).identity() for values in used} | {empty}) == 4


def test_a_cohort_is_a_number_or_a_ratio(tmp_path: Path) -> None:
    assert [cohort_size(0.05, clients) for clients in (3, 10, 29, 30, 1129)] == [1, 1, 1, 2, 56]
    path = tmp_path / "run.toml"
    for text, expected in (("1", 1), ("1.0", 8), ("0.25", 2), ("7", 7)):
        path.write_text(f"clients = 8\ncohort = {text}\n")
        config = Config.read(path)
        assert repr(config.cohort) == text and cohort_size(config.cohort, 8) == expected
        path.write_text(config.toml())
        assert Config.read(path) == config and type(Config.read(path).cohort) is type(config.cohort)


def test_weights_replace_no_other_rule() -> None:
    """A row named krum must not be plain averaging."""
    for method in ("krum", "median", "fednova", "q-fedavg", "fedscam", "fedavg + krum(1)"):
        assert Config.build({"method": method}).weights == "paper"
        with pytest.raises(ConfigError, match=r'weights: uniform weights would replace .* set weights = "paper"'):
            Config.build({"method": method, "weights": "uniform"})


def test_weights_can_be_set_for_methods_that_average() -> None:
    for method in ("fedavg", "scaffold"):
        found = [
            Config.build({"method": method, "weights": w}).algorithm().aggregation for w in ("examples", "uniform")
        ]
        assert [repr(block) for block in found] == ["ByExamples()", "Uniform()"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target": 0}, r"target: must be a number in \(0, 1\], such as 0.7, or, in a comparison, .* got '0'"),
        ({"target": [0.5, "baseline"]}, "target: 'baseline' is for comparisons, and a single run has no baseline"),
        ({"method": "fedavgg"}, "no algorithm is named 'fedavgg'; did you mean 'fedavg'?"),
        ({"method": "fedsam", "arguments": {"rh": 1}}, "arguments of fedsam: .*unexpected keyword argument 'rh'"),
        ({"method": "fedsam", "arguments": {"rho": -1.0}}, "SAM: rho must be 0 or more"),
        ({"roundss": 3}, "roundss: unknown key; did you mean 'rounds'?"),
        ({"local": {"learning": 3}}, "local.learning: unknown key; known are lr, decay"),
        (
            {"local": {"momentum": 0.9}},
            r"local.momentum: unknown key; a local optimizer is a part of the method: "
            r'method = "fedavg \+ local-sgd\(momentum=0.9\)" or "fedavg \+ local-adam"$',
        ),
        ({"local": {"optimizer": "adam"}}, r"local.optimizer: unknown key; a local optimizer is a part of the method"),
        ({"metrics": 3}, r"metrics: input should be a list in brackets, \[\.\.\.\], got '3'"),
        ({"metrics": "maee"}, "no metric is named 'maee'; did you mean 'mae'"),
        ({"output": {"lens": "foo"}}, "output.lens.0: input should be 'spectrum', .* got 'foo'"),
        ({"local": {"preset": "paper"}}, "local.preset: no preset is named 'paper'; did you mean 'papers'"),
        ({"local": {"preset": ["papers"]}}, "local.preset: no preset is named"),
        ({"local": {"presett": "papers"}}, "local.presett: unknown key; did you mean 'preset'?"),
        ({"local": {"lr": 0}}, "local.lr: input should be greater than 0, got '0'"),
        ({"local": {"lr": math.nan}}, "local.lr: input should be a finite number"),
        ({"rounds": 400, "local": {"schedule": "exponential(0.1)"}}, "the learning rate of round 32[0-9] is 0"),
        ({"rounds": 400, "local": {"decay": 0.1}}, "the learning rate of round 32[0-9] is 0"),
        ({"rounds": 10**12}, "rounds: input should be less than or equal to 1000000"),
        ({"rounds": "many"}, "rounds: input should be a valid integer"),
        ({"cohort": 11, "clients": 10}, "cohort: 11 clients per round, but there are only 10 clients"),
        *(({"cohort": x}, r"cohort: write a number of clients, .*ratio") for x in (0, 0.0, 1.5, -2, True, "x")),
        ({"cohort": 0.1, "probability": 0.1}, "give cohort or probability, not both, got 0.1 and 0.1"),
        ({"probability": 0}, "probability: input should be greater than 0"),
        ({"probability": 1.1}, "probability: input should be less than or equal to 1"),
        ({"failures": "ignore"}, "failures: input should be 'reject' or 'raise', got 'ignore'"),
        ({"engine": {"name": "spark"}}, "engine.name: input should be 'local', 'ray' or 'flower', got 'spark'"),
        ({"holdout": 1.0}, "holdout: input should be less than 1"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0"),
    ],
)
def test_what_cannot_work_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.build(values)


def test_advice_on_local_optimizers_works() -> None:
    found = [
        Config.build({"method": f"fedavg + {term}"}).algorithm() for term in ("local-sgd(momentum=0.9)", "local-adam")
    ]
    assert [type(algorithm.local_optimizer).__name__ for algorithm in found] == ["LocalSGD", "LocalAdam"]


def test_a_text_is_a_list_of_one() -> None:
    """As --set metrics=mae gives it."""
    config = Config.build({"metrics": "mae", "output": {"lens": "heterogeneity", "track": "mlflow"}})
    assert (
        config.metrics == ("mae",) and config.output.lens == ("heterogeneity",) and config.output.track == ("mlflow",)
    )
    assert TableConfig.model_validate({"columns": "cost"}).columns == ("cost",)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Config.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(ConfigError, match=r"bad.toml: not TOML"):
        Config.read(tmp_path / "bad.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"bad.toml: not TOML"):
        Config.read(tmp_path / "bad.toml")


def test_any_mutation_is_either_a_config_or_a_named_error() -> None:
    """S5: a thousand configs, every field with values it was not made for."""
    odd = [
        None,
        True,
        -0.0,
        -1,
        0,
        1,
        2**63,
        10**30,
        1e308,
        math.nan,
        math.inf,
        "",
        "x",
        "\0",
        "a" * 5000,
        [],
        [1],
        {},
        {"a": 1},
    ]
    draw = random.Random(0)
    paths = [(key,) for key in Config.model_fields] + [
        (table, key) for table in ("local", "engine", "output") for key in Config().model_dump()[table]
    ]
    slowest = 0.0
    for number in range(1000):
        values = {key: dict(value) if isinstance(value, dict) else value for key, value in GOOD.items()}
        for path in draw.sample(paths, 1 + number % 3):
            holder = values
            for part in path[:-1]:
                inner = holder.get(part)
                holder[part] = holder = inner if isinstance(inner, dict) else {}
            holder[path[-1]] = draw.choice(odd)
        begun = time.perf_counter()
        with suppress(ConfigError):
            Config.build(values)
        slowest = max(slowest, time.perf_counter() - begun)
    assert slowest < 5  # 0.1 on a quiet machine


@pytest.mark.parametrize(
    ("key", "value"),
    [("rounds", True), ("rounds", "10"), ("seed", False), ("clients", "100"), ("holdout", "0.1"), ("proxy", True)],
)
def test_numbers_are_numbers(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        Config.build({key: value})
    with pytest.raises(ConfigError, match=r"local\.batch_size"):
        Config.build({"local": {"batch_size": value}})


def test_a_huge_text_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="a text of 10,000,000 characters is no setting") as refused:
        Config.build({"method": "x" * 10_000_000})
    assert len(str(refused.value)) < 200


def test_a_name_that_no_file_system_can_have_is_a_name_like_others() -> None:
    """300 letters, or 150 of two bytes each: longer than a file's name may be. Found by inputs guided by coverage."""
    for name in ("cifar" * 60, "\u07ff" * 150):
        assert Config.build({"data": name}).data == Config.build({"data": "nowhere"}).data.replace("nowhere", name)
        with pytest.raises(ConfigError, match="data: no data set is named"):
            Config.build({"data": {"name": name, "nosuch": 1}})
