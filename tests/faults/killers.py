"""The processes of a test, by number: who is there, and an end without warning. Never by name."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def marked(mark: str) -> dict[int, str]:
    """The processes whose environment contains a setting, NAME=value, with their commands: children inherit it."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def born(pid: int) -> int | None:
    """When a process was started, in ticks since boot; None if it has ended. With the number it names a process."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def kill(pid: int, seconds: float = 10.0) -> None:
    """End a process without warning, and wait until it has ended."""
    began = born(pid)
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + seconds
    while began is not None and born(pid) == began:
        assert time.monotonic() < end, f"process {pid} survived SIGKILL for {seconds} s"
        time.sleep(0.05)


def kept_alive(start: Callable[[], None], up: Callable[[], bool], seconds: float, every: float = 2.0) -> float:
    """What a supervisor does: start again whatever ended, until it is up; how long that took."""
    began = time.monotonic()
    while not up():
        assert time.monotonic() - began < seconds, f"not up within {seconds} s"
        start()
        time.sleep(every)
    return time.monotonic() - began
