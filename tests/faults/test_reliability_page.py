"""docs/evidence/reliability.md: every row is there, with a test that exists, a figure and a command to type."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.figures import hostile_table, party_table, trial_table

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8")
IDS = [*(f"R{n}" for n in range(1, 18)), *(f"S{n}" for n in range(1, 16))]
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.splitlines()
    if re.match(r"\| [RS]\d", line)
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}


def test_every_row_is_there_once() -> None:
    assert list(ROWS) == IDS and PAGE.count("\n| R") + PAGE.count("\n| S") == len(IDS)


@pytest.mark.parametrize("row", IDS)
def test_a_row_names_tests_that_exist_a_figure_and_a_command(row: str) -> None:
    promise, tests, figure, command = ROWS[row]
    assert promise and figure and "FIGURE" not in figure
    named = re.findall(r"`([^`]+)`", tests)
    assert named
    for name in named:
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert not function or function in functions, name
    typed = re.fullmatch(r"`make ([a-z-]+)`|`pytest (\S+).*`", command)
    assert typed, command
    if typed[1]:
        assert re.search(rf"^{typed[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), command
    else:
        assert (ROOT / typed[2]).exists(), command


RESULTS = ROOT / "benchmarks" / "speed" / "results"


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers of a result, those in its keys among them."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from map(float, re.findall(r"\d+(?:\.\d+)?", key))
            yield from numbers_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from numbers_in(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)


def measured(row: str) -> set[float]:
    """What `make faults`, `make kills` and `make soak` measured for a row, with the sums over its cases."""
    name = "soak" if row == "R11" else "faults"
    whole = json.loads((RESULTS / f"{name}.json").read_text())
    cases = [case for case in (whole if row == "R11" else whole.get(row, {})).values() if isinstance(case, dict)]
    kinds = {key for case in cases for key in case if isinstance(case[key], int)}
    return {*numbers_in(whole if row == "R11" else whole.get(row, {})), *(_sum(cases, key) for key in kinds)}


def _sum(cases: list[dict[str, Any]], key: str) -> float:
    return float(sum(case.get(key, 0) for case in cases))


def literals(tests: str) -> set[float]:
    """The numbers written in a row's tests and in the constants of their files: how often they try, what they check."""
    found: set[float] = set()
    for name in re.findall(r"`([^`]+)`", tests):
        path, _, function = name.partition("::")
        for part in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
            if isinstance(part, ast.Assign | ast.AnnAssign) or getattr(part, "name", "") == function:
                nodes = (node for node in ast.walk(part) if isinstance(node, ast.Constant))
                found |= {float(node.value) for node in nodes if isinstance(node.value, int | float)}
    return found


@pytest.mark.parametrize("row", IDS)
def test_every_number_of_a_figure_is_in_a_result_or_in_the_test(row: str) -> None:
    """Times, sizes and counts come from the committed results of the row; other counts are those of its tests."""
    _, tests, figure, _ = ROWS[row]
    results, written = measured(row), literals(tests)
    for number in re.findall(
        r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)", re.sub(r"\(?target: [^;.|)]*\)?", "", figure)
    ):
        value, digits = float(number.replace(",", "")), len(number.partition(".")[2])
        assert value in written or any(round(x, digits) == value for x in results), f"{row}: {number} has no file"


def test_the_table_of_the_hostile_node_is_what_was_measured() -> None:
    assert hostile_table(json.loads((RESULTS / "hostile.json").read_text())) in PAGE


def test_the_table_of_the_hostile_party_is_what_was_measured() -> None:
    results = json.loads((RESULTS / "hostile.json").read_text())
    assert party_table(results) in PAGE
    assert all(it["exact"] for it in results["secure"].values())  # as the text says


def test_the_table_of_the_trial_is_what_was_measured() -> None:
    found = [json.loads((RESULTS / f"{name}.json").read_text()) for name in ("faults", "hostile")]
    assert trial_table(found[0], found[1]) in PAGE
    nodes = [json.loads(line) for line in (RESULTS / "real_nodes.jsonl").read_text().splitlines()]
    (twenty,) = [it["round_seconds"] for it in nodes if it["nodes"] == 20]
    assert f"twenty took {min(twenty)} to {max(twenty)} s" in PAGE.replace("\n", " ")
