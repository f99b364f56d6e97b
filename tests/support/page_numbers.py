"""The numbers of a page: which are measured, and the places where the committed results have them."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

from undrift.studies.statistics import late_mean, paired_difference

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "studies" / "results"
INTERVAL = re.compile(r"[+-]?\d+(?:\.\d+)? \[[+-]?\d+(?:\.\d+)?, [+-]?\d+(?:\.\d+)?\]")
MEASURED = re.compile(r"(?<![\w.-])\d[\d,]*\.\d+(?![\w.]*\d)|\d+ %|\d+(?:\.\d+)?e-\d+|\d+ (?:times|points)")
"""Decimals, shares, factors and points; whole numbers are settings."""


def result(name: str) -> Any:
    """A committed result, by its path from the folder benchmarks."""
    return json.loads((ROOT / "benchmarks" / name).read_text())


def prose(page: str) -> str:
    """The text of a page in one line, without code, tables and the targets of links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for pattern in (r"^```.*?^```", r"^ *\|.*?$", r"^    .*?$"):
        text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "``", text)).split())


def tables(page: str) -> dict[str, list[list[str]]]:
    """The rows of the tables of a page, by their header."""
    found: dict[str, list[list[str]]] = {}
    for block in re.findall(r"(?:^\|.*\n)+", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE):
        head, *rows = block.splitlines()
        rows = rows[1:]
        found[head] = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return found


def _pattern(text: str) -> str:
    """Where a text stands, with a number for every #."""
    return re.escape(text).replace(r"\#", r"([+-]?\d[\d,]*(?:\.\d+)?)")


def stated(page: str, text: str) -> str:
    """The numbers of a page where a text has #."""
    found = re.findall(_pattern(text), prose(page))
    assert len(found) == 1, f"{page}: {text!r} is there {len(found)} times"
    return " ".join(found[0]) if isinstance(found[0], tuple) else found[0]


def unbound(page: str, bound: Iterable[str], given: str, measured: re.Pattern[str] = MEASURED) -> list[str]:
    """The measured numbers of a page, with their place, that neither a bound text has nor a pattern names."""
    text = INTERVAL.sub("", prose(page))
    spans = [found.span() for pattern in (*map(_pattern, bound), given) for found in re.finditer(pattern, text)]
    return [
        text[max(0, number.start() - 40) : number.end() + 20]
        for number in measured.finditer(text)
        if not any(start <= number.start() < end for start, end in spans)
    ]


def intervals(text: str) -> Iterator[str]:
    """The differences with intervals in a text."""
    yield from INTERVAL.findall(" ".join(text.split()))


def same(text: str, values: tuple[float, ...]) -> bool:
    """Whether the numbers of a text are values, as far as they are printed."""
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return len(numbers) == len(values) and all(
        abs(float(number) - value) <= 0.5001 * 10 ** -len(number.partition(".")[2])
        for number, value in zip(numbers, values, strict=True)
    )


@cache
def differences() -> dict[tuple[float, ...], str]:
    """All paired differences between two rows of a study, in points: late, best, after a round, after fewer rounds."""
    found = {}
    for path in sorted((RESULTS / "here").glob("*.jsonl")):
        cells: dict[tuple[str, str], dict[int, dict[Any, float]]] = defaultdict(dict)
        for line in map(json.loads, path.read_text().splitlines()):
            curve = dict(map(tuple, line["curve"]))
            late = late_mean(list(curve.values()))
            cells[line["setting"], line["label"]][line["seed"]] = {**curve, "late": late, "best": max(curve.values())}
        for (setting, a), (other, b) in permutations(cells, 2):
            if setting == other:
                for value, what in compared(cells[setting, a], cells[setting, b]):
                    found[value] = f"{path.name}: {setting}, {a} minus {b}, {what}"
    return found


def compared(own: dict[int, Any], theirs: dict[int, Any]) -> Iterator[tuple[tuple[float, ...], str]]:
    """The differences of two rows, by what is compared."""
    kinds = ("late", "best", 5, 10, 20, 30, 60)
    for kind, other in [*((kind, kind) for kind in kinds), (20, 30), (15, 30), (20, "late"), (15, "late")]:
        ours = {seed: 100 * run[kind] for seed, run in own.items() if kind in run}
        found = paired_difference(ours, {seed: 100 * run[other] for seed, run in theirs.items() if other in run})
        if found is not None and found.low is not None and found.high is not None:
            yield (found.mean, found.low, found.high), f"{kind} against {other}"
