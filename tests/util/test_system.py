"""Locks and memory on the systems that differ."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.elsewhere import Kernel, _msvcrt
from support.processes import environment
from undrift.util.storage import files
from undrift.util.system import Memory, host_memory, is_locked, lock, resident_peak


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


@pytest.mark.parametrize("windows", [False, True])
def test_a_second_lock_is_refused(windows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if windows:
        monkeypatch.setitem(sys.modules, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", _msvcrt())
    first, second = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    lock(first)
    with pytest.raises(OSError, match=r"\[Errno 1[13]\]"):
        lock(second)
    os.close(first)
    lock(second)
    os.close(second)


def test_memory_of_this_machine() -> None:
    found = host_memory()
    assert 1 << 26 < found.free <= found.total
    assert 1 << 20 < resident_peak() < found.total


def test_memory_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=Kernel()), raising=False)
    assert host_memory() == Memory(8 << 30, 4 << 30)
    assert resident_peak() == 1 << 30


def test_folders_are_synced_where_they_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.sync_folder(tmp_path)
    monkeypatch.delattr(os, "O_DIRECTORY")
    files.sync_folder(tmp_path / "missing")  # not opened


@pytest.mark.sweep(every=4)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the pretence reads /proc")
def test_the_local_engine_runs_without_posix(tmp_path: Path) -> None:
    """Run, resume, compare and export in a process without what Windows lacks; see tests/support/elsewhere.py."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-X", "warn_default_encoding", "-W", "ignore", str(script)]
    place = environment(UNDRIFT_CACHE=str(tmp_path / "cache"), PYTHONIOENCODING="cp1252")
    done = subprocess.run(words, cwd=tmp_path, env=place, capture_output=True, encoding="cp1252", timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all ran\n")


SCRIPT = '''
from support import elsewhere

elsewhere.pretend()
from undrift.cli import app

METHOD = "scaffold + sam(rho=0.05)"
SMALL = ["--data", "digits", "--clients", "4", "--cohort", "2", "--batch-size", "100"]
COMPARISON = """
seeds = [0]

[base]
data = "digits"
clients = 4
rounds = 1

[[methods]]
method = "fedavg"

[[methods]]
method = "fedavg + sam(rho=0.05)"

[settings.skewed]
partition = "dirichlet:0.5"
"""


def call(*words):
    try:
        app([*words], standalone_mode=False)
    except SystemExit as end:
        assert not end.code, (words, end.code)


call("run", METHOD, *SMALL, "--rounds", "2", "--out", "first", "--set", "output.keep_best=true")
call("resume", "first", "--rounds", "3")
call("run", "fedper", *SMALL, "--rounds", "1", "--out", "second", "--partition", "dirichlet:0.5")
with open("comparison.toml", "w", encoding="utf-8") as file:
    file.write(COMPARISON)
call("compare", "comparison.toml", "--out", "comparison")
call("lens", "first", "--parts", "spectrum")
call("export", "first", "--format", "torch", "--out", "model.pt")
call("doctor")
call("new", "app")
print("all ran")
'''


def test_whether_a_file_is_locked_is_seen_without_taking_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    assert not is_locked(path)
    lock(handle)
    assert is_locked(path)
    os.close(handle)
    assert not is_locked(path)
