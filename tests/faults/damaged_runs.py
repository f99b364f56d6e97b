"""R6, R7 on whole runs: a damaged checkpoint or a failing disk costs rounds, never bits; see test_damaged_run.py."""

import json
import shutil
from pathlib import Path

import pytest

from faults.damage import damages, swapped
from faults.disk import failing
from faults.kills import begin, forked, killed, results, resume, small_task, wait


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert wait(forked(lambda: begin(folder, "scaffold"))) == 0
    return results(folder)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in its fourth round."""
    folder = tmp_path_factory.mktemp("broken") / "run"
    assert killed(folder, "scaffold", ("before reduce", 3)) == -9
    return folder


def resumed_from(folder: Path) -> int:
    """Finish a run in another process; the round it went on from."""
    assert wait(forked(lambda: resume(folder, task=small_task()))) == 0
    events = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    out: int = [event["round"] for event in events if event["event"] == "resume"][-1]
    return out


@pytest.mark.parametrize("part", ["0000003.safetensors", "0000003.json"])
def test_the_checkpoint_before_is_used(broken_off: Path, expected: object, part: str, tmp_path: Path) -> None:
    newest = broken_off / "checkpoints" / part
    cases = dict(damages(newest, flips=2)) | {"swapped": swapped(newest.with_name(part.replace("3", "2")))}
    chosen = ["cut at 0", "bit flipped, seed 1", "zeroed", "removed", "swapped"]
    for name in chosen:
        folder = tmp_path / name.replace(" ", "-")
        shutil.copytree(broken_off, folder)
        cases[name](folder / "checkpoints" / part)
        assert resumed_from(folder) == 2, name
        assert results(folder) == expected, name


@pytest.mark.parametrize(
    ("call", "code"), [("open", "ENOSPC"), ("fsync", "EIO"), ("replace", "EROFS"), ("open", "EMFILE")]
)
def test_a_disk_that_fails_ends_the_run_and_nothing_is_lost(
    call: str, code: str, expected: object, tmp_path: Path
) -> None:
    folder, result = tmp_path / "run", tmp_path / "result"

    def fail() -> None:
        try:
            with failing(call, code, first=11, under=folder / "checkpoints"):
                begin(folder, "scaffold")
        except OSError as error:
            result.write_text(f"{error}")
            raise

    assert wait(forked(fail)) == 1
    assert result.exists(), "the run ended by something else than the fault"
    assert not list(folder.rglob("*.new")), "a temporary file is left"
    assert resumed_from(folder) > 0
    assert results(folder) == expected
