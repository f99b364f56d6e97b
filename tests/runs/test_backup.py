"""A run's folder in one file: made while the run goes on, refused if damaged, and resumed to the same bits."""

import shutil
import tarfile
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from support.audit import events
from support.own_tasks import SETTINGS, lines
from undrift.cli import app
from undrift.runs import backup, restore, resume, start, verify
from undrift.runs.folder.files import RunError
from undrift.runs.folder.verify import LOG


def run(folder: Path, **more: Any) -> Any:
    settings = {**SETTINGS, "method": "scaffold", "output": {"keep_best": True}, **more}
    return start(task=lines(name="lines"), folder=folder, **settings)


@pytest.mark.sweep(every=4)
def test_backups_of_a_run_in_progress_resume_to_its_bits(tmp_path: Path) -> None:
    """Another thread makes them all the time, at any moment of a round."""
    done, made = Event(), list[Path]()

    def store() -> None:
        while not done.is_set():
            if (tmp_path / "run" / "checkpoints").is_dir() and (tmp_path / "run" / LOG).is_file():
                made.append(tmp_path / f"{len(made)}.tar")
                backup(tmp_path / "run", made[-1])

    thread = Thread(target=store)
    thread.start()
    try:
        expected = run(tmp_path / "run", rounds=12).sha256
    finally:
        done.set()
        thread.join()
    assert len(made) >= 2 and not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    for file in made[:: max(1, len(made) // 3)]:
        target = tmp_path / file.stem
        assert restore(file, target).intact
        assert resume(target, task=lines(name="lines")).sha256 == expected and verify(target).intact
        assert [event for event in events(target) if event["event"] == "restore"]


@pytest.mark.sweep(every=8)
def test_what_is_not_a_run_or_damaged_is_neither_stored_nor_restored(tmp_path: Path) -> None:
    whole = run(tmp_path / "run").folder
    file = tmp_path / "run.tar"
    backup(whole, file)
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(RunError, match=r"run.tar exists: name another file"):
        backup(whole, file)
    with pytest.raises(RunError, match="exists"):
        restore(file, whole)
    with pytest.raises(RunError, match="is not a run"):
        backup(tmp_path, tmp_path / "no.tar")
    (whole / "summary.json").write_text("{}")
    with pytest.raises(RunError, match=r"not stored, it cannot be verified: .*summary.json"):
        backup(whole, tmp_path / "no.tar")
    (tmp_path / "half.tar").write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(RunError, match=r"half.tar: not a backup of a run, or damaged|half.tar: not what a run wrote"):
        restore(tmp_path / "half.tar", tmp_path / "new")
    with tarfile.open(tmp_path / "forged.tar", "w") as packed:
        packed.add(whole, arcname=".")
    with pytest.raises(RunError, match=r"forged.tar: not what a run wrote: .*summary.json"):
        restore(tmp_path / "forged.tar", tmp_path / "new")
    for forged in (tarfile.TarInfo("../outside"), tarfile.TarInfo("link")):
        forged.type = tarfile.SYMTYPE if forged.name == "link" else tarfile.REGTYPE
        with tarfile.open(tmp_path / "forged.tar", "w") as packed:
            packed.addfile(forged)
        with pytest.raises(RunError, match=f"damaged: {forged.name} is not a file or folder inside it"):
            restore(tmp_path / "forged.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists() and not (tmp_path / "no.tar").exists()


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)  # as in Python 3.11.2
    whole = run(tmp_path / "run").folder
    said = CliRunner().invoke(app, ["backup", str(whole), "--out", str(tmp_path / "run.tar")])
    assert said.exit_code == 0 and "4 rounds, head" in said.stdout
    shutil.rmtree(whole)
    said = CliRunner().invoke(app, ["restore", str(tmp_path / "run.tar"), str(whole)])
    assert said.exit_code == 0 and "continue with: undrift resume" in said.stdout and verify(whole).intact
