"""docs/evidence/reliability.md: every row is there, with a test that exists, a figure and a command to type."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8")
IDS = [*(f"R{n}" for n in range(1, 17)), *(f"S{n}" for n in (*range(1, 9), 11, 12, 13))]
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
