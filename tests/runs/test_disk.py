"""R7: a disk that is full, read-only or broken ends a run in one line; its last checkpoint is whole, and it resumes."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.own_tasks import SETTINGS, lines
from undrift import Simulation, make
from undrift.core.server.wire import fingerprint
from undrift.runs import resume, start, verify
from undrift.runs.folder.audit import Audit, read_log
from undrift.runs.folder.checkpoint import Checkpoints
from undrift.testing import Clinic
from undrift.util.storage import files
from undrift.util.storage.files import StorageError
from undrift.util.storage.metrics import Metrics

SCAFFOLD = make("scaffold")
CODES = {
    errno.ENOSPC: "free some space on that disk",
    errno.EIO: "check that disk: it fails",
    errno.EROFS: "make that disk writable",
    errno.EMFILE: "raise the limit on open files",
    errno.EDQUOT: "raise your disk quota",
    errno.EFBIG: "raise the limit on the size of a file",
}


@pytest.fixture(scope="module")
def states() -> Any:
    return [state for state, _ in Simulation(SCAFFOLD, Clinic(), cohort=4).rounds(3)]


def failing(monkeypatch: pytest.MonkeyPatch, code: int, at: int) -> Callable[[], int]:
    """From call number `at` on, opening, writing, syncing and renaming fail; gives the number of calls so far."""
    calls = count()
    seen = [0]

    def wrapped(usual: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            seen[0] = next(calls) + 1
            if seen[0] > at:
                raise OSError(code, os.strerror(code))
            return usual(*arguments, **more)

        return call

    class Broken:
        """An open file whose writes count."""

        def __init__(self, file: Any) -> None:
            self.file, self.write = file, wrapped(file.write)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    opened = os.fdopen
    monkeypatch.setattr(files.os, "fdopen", lambda *arguments, **more: Broken(opened(*arguments, **more)))
    for name in ("open", "fsync", "replace"):
        monkeypatch.setattr(files.os, name, wrapped(getattr(os, name)))
    return lambda: seen[0]


@pytest.mark.parametrize("code", CODES)
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(code: int, states: Any, tmp_path: Path) -> None:
    """At every call of the two atomic writes and of the commit between them."""
    folder, place = tmp_path / "checkpoints", 0
    for place in range(60):
        shutil.rmtree(folder, ignore_errors=True)
        (tmp_path / "audit.jsonl").unlink(missing_ok=True)
        audit = Audit(tmp_path / "audit.jsonl")
        kept = Checkpoints(folder, SCAFFOLD, len(states[0].params), "run", keep=2)

        def commit(state: Any, kept: Checkpoints = kept, audit: Audit = audit) -> None:
            kept.save(state, lambda sha256: audit.write("commit", round=state.round, sha256=sha256))

        commit(states[0])
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, code, place)
            try:
                commit(states[1])
            except StorageError as error:
                text = str(error)
            else:
                break
        assert os.strerror(code) in text and CODES[code] in text and "\n" not in text, text
        assert text.startswith(str(tmp_path)) and "cannot be written: " in text and "run the command again" in text
        assert [path.name for path in folder.iterdir() if path.name.endswith(".new")] == []
        log = read_log(tmp_path / "audit.jsonl")
        assert log.size == (tmp_path / "audit.jsonl").stat().st_size, "no line is cut short"
        found = Checkpoints(folder, SCAFFOLD, len(states[0].params), "run", log=log).latest()
        assert found is not None and fingerprint(found) in (fingerprint(states[0]), fingerprint(states[1])), place
        assert (found.round == 2) == (kept.rounds() == [1, 2])
    assert place >= 12, "open, write, sync and rename of two files, of their folder and of the log"


@pytest.mark.parametrize("what", ["audit", "metrics"])
def test_a_line_is_whole_or_not_there(what: str, tmp_path: Path) -> None:
    """Half a line was written when the disk was full; the process goes on and writes the next one."""
    audit, metrics = Audit(tmp_path / "audit.jsonl"), Metrics(tmp_path / "metrics.jsonl")
    add = partial(audit.write, "commit") if what == "audit" else lambda **row: metrics.append(row)
    add(round=1)
    metrics.seal()
    with pytest.MonkeyPatch.context() as patch:
        opened = os.fdopen

        class Full:
            def __init__(self, file: Any) -> None:
                self.file = file

            def write(self, data: memoryview) -> int:
                if len(data) < 20:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return int(self.file.write(data[: len(data) // 2]))

            def __getattr__(self, name: str) -> Any:
                return getattr(self.file, name)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                self.file.close()

        patch.setattr(files.os, "fdopen", lambda *arguments, **more: Full(opened(*arguments, **more)))
        with pytest.raises(StorageError, match=rf"{what}.jsonl: cannot be written: No space left on device; free some"):
            add(round=2)
    add(round=3)
    rows = [json.loads(line) for line in (tmp_path / f"{what}.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 3]
    if what == "audit":
        assert len(read_log(audit.path).hashes) == 2
    else:
        assert metrics.seal() == Metrics(metrics.path).seal()


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_run_stops_and_goes_on_when_the_disk_works(code: int, tmp_path: Path) -> None:
    """Fails at every seventh call from the start of the run on, and for good: also while the error is handled."""
    settings = {**SETTINGS, "method": "scaffold", "rounds": 2, "output": {"keep_best": True}}
    expected, stopped = start(task=lines(name="lines"), folder=tmp_path / "whole", **settings).sha256, 0
    for place in range(3 + code % 7, 400, 23):
        folder = tmp_path / str(place)
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, code, place)
            try:
                start(task=lines(name="lines"), folder=folder, **settings)
                break
            except StorageError as error:
                text = str(error)
        assert text.startswith(str(folder)) and os.strerror(code) in text, (place, text)
        begun = (folder / "config.toml").exists()
        assert text.endswith(f"then resume with: undrift resume {folder}" if begun else "then run the command again")
        stopped += 1
        assert verify(folder).intact if (folder / "config.toml").exists() else not (folder / "checkpoints").exists()
        again = start(task=lines(name="lines"), folder=folder, resume=True, **settings)
        assert again.sha256 == expected and verify(folder).intact, place
    assert stopped >= 3


# The real thing

SCRIPT = """
import resource, sys
sys.path[:0] = {path!r}
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
from undrift.cli import app
app({arguments!r})
"""


def child(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = SCRIPT.format(path=sys.path, size=size, arguments=[*arguments])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.sweep(every=0)
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The quota of a real kernel, through the command line."""
    settings = {**SETTINGS, "method": "scaffold", "rounds": 3}
    expected = start(task="support.own_tasks:lines", folder=tmp_path / "whole", **settings).sha256
    folder, given = tmp_path / "run", ("--cohort", "3", "--rounds", "3", "--lr", "0.05", "--batch-size", "4")
    result = child(2500, "run", "scaffold", "--task", "support.own_tasks:lines", *given, "--out", str(folder))
    assert result.returncode == 2 and "Traceback" not in result.stderr, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "cannot be written" in line]
    assert line.startswith(f"undrift run: {folder}") and "File too large; raise the limit on the size of a file" in line
    result = child(10**9, "resume", str(folder), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["sha256"] == expected and verify(folder).intact


def test_a_small_disk_is_full(tmp_path: Path) -> None:
    """A file system of 64 KiB; skipped where none can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        settings = {**SETTINGS, "method": "scaffold", "rounds": 3}
        (disk / "ballast").write_bytes(bytes(20_000))
        with pytest.raises(StorageError, match=r"cannot be written: No space left on device; free some space"):
            start(task=lines(name="lines"), folder=disk / "run", **settings)
        (disk / "ballast").unlink()
        subprocess.run([mount, "-o", "remount,size=10m", str(disk)], check=True)
        expected = start(task=lines(name="lines"), folder=tmp_path / "whole", **settings).sha256
        assert start(task=lines(name="lines"), folder=disk / "run", resume=True, **settings).sha256 == expected
        assert verify(disk / "run").intact
        subprocess.run([mount, "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(StorageError, match=r"lock: cannot be written: Read-only file system; make that disk writ"):
            resume(disk / "run", rounds=4, task=lines(name="lines"))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
