"""The marks `quick` and `sweep`: which cases run when."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import selection
from undrift import make
from undrift.blocks import SAM


class Case:
    """A collected case, as far as the selection reads it."""

    def __init__(self, *marks: pytest.MarkDecorator, **parameters: Any) -> None:
        self.path, self.name = Path("tests/test_this.py"), "test_x"
        self.own_markers = [mark.mark for mark in marks]
        self.callspec = SimpleNamespace(params=parameters)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.own_markers if mark.name == name), None)


def case(*marks: pytest.MarkDecorator, **parameters: Any) -> Any:
    """A case with marks and parameters."""
    return Case(*marks, **parameters)


def left(cases: list[Any], mark: str) -> list[int]:
    """The numbers of the cases that have a mark."""
    return [number for number, case in enumerate(cases) if mark in {own.name for own in case.own_markers}]


@pytest.mark.parametrize("turn", range(4))
def test_every_third_case_runs_and_a_turn_later_its_neighbour(turn: int) -> None:
    def run(turn: int) -> set[int]:
        cases = [case(pytest.mark.sweep(every=3), n=n) for n in range(9)]
        selection.resolve(cases, turn, set())
        return set(range(9)) - set(left(cases, "sweep"))

    assert len(run(turn)) == 3 and run(turn) == run(turn + 3)
    assert run(turn) | run(turn + 1) | run(turn + 2) == set(range(9))


def test_zero_leaves_all_but_what_is_quick() -> None:
    cases = [case(pytest.mark.quick, pytest.mark.sweep(every=0), n=n) for n in range(3)]
    selection.resolve(cases, 0, set())
    assert left(cases, "quick") == [0] and left(cases, "sweep") == [1, 2]


def test_one_quick_case_of_every_kind() -> None:
    cases = [case(pytest.mark.quick(by=lambda n: n % 2), n=n) for n in range(5)]
    selection.resolve(cases, 0, set())
    assert left(cases, "quick") == [0, 1]


@dataclass(frozen=True)
class Named:
    """A case of a test with a table of its own."""

    name: str


NAMING = ["fedsam", "scaffold + sam(0.1)", SAM(0.1), make("fedsam"), ("x", SAM(0.1)), Named("fedsam")]
"""Parameters that name SAM."""


@pytest.mark.parametrize(
    "given", ["fedsam", "scaffold + sam(0.1)", SAM(0.1), make("fedsam"), ("x", SAM(0.1)), Named("fedsam")], ids=str
)
def test_cases_of_changed_files_always_run(given: object) -> None:
    cases = [case(pytest.mark.sweep(every=0), given=value) for value in (given, "fedavg", 3)]
    (path,) = (path for path in selection.files(case(given=SAM(0.1))) if "blocks" in path)
    selection.resolve(cases, 0, {path})
    assert left(cases, "sweep") == [1, 2]


def test_the_turn_is_given_or_the_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_SWEEP", "3")
    assert selection.turn() == 3
    monkeypatch.setenv("UNDRIFT_SWEEP", "many")
    with pytest.raises(pytest.UsageError, match="UNDRIFT_SWEEP must be a whole number, got 'many'"):
        selection.turn()
    monkeypatch.delenv("UNDRIFT_SWEEP")
    monkeypatch.setattr(selection, "git", lambda *words: "00ff" + "0" * 36)
    assert selection.turn() == 255


def test_changed_files_are_those_of_the_branch_if_they_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    assert selection.git("status") == "" and selection.changed() == []  # no repository
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")

    def git(*words: str) -> None:
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    blocks = tmp_path / "src" / "undrift" / "blocks"
    blocks.mkdir(parents=True)
    for number in range(selection.LARGE + 1):
        (blocks / f"b{number}.py").write_text("")
    git("add", "-A")
    git("commit", "-m", "first")
    (blocks / "b1.py").write_text("1")
    assert selection.changed() == ["src/undrift/blocks/b1.py"]
    for path in blocks.iterdir():
        path.write_text("1")
    assert selection.changed() == []


def test_cases_about_a_method_or_a_block() -> None:
    named, composed, made = case(name="fedsam"), case(text="fedsam + scaffold"), case(given=(make("fedsam"), 1))
    other, kind = case(name="fedsam-d", n=3), case(block=SAM)
    assert [selection.about(one, ["fedsam"]) for one in (named, composed, made, other, kind)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [selection.about(one, ["SAM"]) for one in (named, composed, made, other, kind)] == [
        False,
        False,
        True,
        False,
        False,
    ]
