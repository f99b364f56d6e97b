"""Runs that are stopped by SIGTERM or SIGINT at random moments, and what they leave behind.

    PYTHONPATH=tests python -m support.stops DATA local 50      fifty stops of runs in one process
    PYTHONPATH=tests python -m support.stops DATA ray 10        ten stops of runs on two Ray workers

Each run is a process of its own with the command `undrift run`; those in one process are forks of this one, which has
imported everything and never trains, so that a stop hits the run and not its imports. For each stop one line of JSON is
printed: how long the process took to end, what was left of its children, ports and shared memory, and whether the
resumed run ended like the uninterrupted one.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.runs import write_tiny_fashion
from undrift.cli import app
from undrift.runs.loop import run  # noqa: F401  what a command would import itself
from undrift.runs.setup import prepare as setup  # noqa: F401  what a command would import itself

ROUNDS = 12
MAIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from undrift.cli import app
app(sys.argv[1:])
"""


class Forked:
    """A command in a fork of this process, with the methods of `subprocess.Popen`."""

    def __init__(self, words: list[str]) -> None:
        self.process = multiprocessing.get_context("fork").Process(target=command, args=(words,))
        self.process.start()
        self.pid = self.process.pid or 0

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float) -> int | None:
        self.process.join(timeout)
        return self.process.exitcode

    def send_signal(self, kind: signal.Signals) -> None:
        if self.process.is_alive():
            os.kill(self.pid, kind)


def command(words: list[str]) -> None:
    """A command of undrift, in silence."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts in the background
    app(words)


def begin(folder: Path, engine: str, *, resume: bool = False) -> Any:
    """Start or resume a run."""
    words = ["resume", str(folder)] if resume else ["run", "scaffold", "--out", str(folder), "--engine", engine]
    if not resume:
        words += ["--data", "fashion-mnist", "--partition", "dirichlet:0.5,min_size=4", "--clients", "12"]
        words += ["--cohort", "4", "--rounds", str(ROUNDS)]
        words += [] if engine == "local" else ["--workers", "2"]
    if engine == "local":
        return Forked(words)
    with open(os.devnull, "wb") as nowhere:
        return subprocess.Popen([sys.executable, "-c", MAIN, *words], stdout=nowhere, stderr=nowhere)


def family(pid: int) -> set[int]:
    """A process and all its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def opened(pids: set[int]) -> tuple[set[str], set[str]]:
    """The sockets, and the files in shared memory, that processes have open."""
    sockets, shared = set(), set()
    for pid in pids:
        try:
            targets = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        sockets |= {target[8:-1] for target in targets if target.startswith("socket:[")}
        shared |= {target for target in targets if target.startswith("/dev/shm/") and "(deleted)" not in target}
    return sockets, shared


def listening(sockets: set[str]) -> set[str]:
    """Those sockets that still listen on a TCP port."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {words[1] for words in lines if words[3] == "0A" and words[9] in sockets}


def sha256(folder: Path) -> str | None:
    """The hash of a run that has ended."""
    path = folder / "summary.json"
    return json.loads(path.read_text())["sha256"] if path.is_file() else None


def stopped(folder: Path, engine: str, after: float, kind: signal.Signals, expected: str | None) -> dict[str, Any]:
    """Stop a run, look at what is left, and resume it."""
    running = begin(folder, engine)
    deadline = time.monotonic() + after
    while time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.01)
    pids = family(running.pid)
    sockets, shared = opened(pids)
    began = time.monotonic()
    running.send_signal(kind)
    code = running.wait(120)
    seconds = time.monotonic() - began
    others = pids - {running.pid}
    while any(alive(pid) for pid in others) and time.monotonic() - began < 30:
        time.sleep(0.1)
    gone = time.monotonic() - began
    left = {
        "processes": sum(alive(pid) for pid in others),
        "ports": len(listening(sockets)),
        "shared": sum(os.path.exists(path) for path in shared),
    }
    rows = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").is_file() else []
    again = begin(folder, engine, resume=(folder / "config.toml").is_file()).wait(600)
    result = {"engine": engine, "signal": kind.name, "after": round(after, 2), "code": code, "rounds": len(rows)}
    result |= {"seconds": round(seconds, 2), "all_gone": round(gone, 2), "left": left, "again": again}
    return result | {"same": sha256(folder) == expected}


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def main() -> None:
    """Stop and resume as the arguments say."""
    data, engine, count = sys.argv[1:]
    write_tiny_fashion(Path(data) / "fashion-mnist")
    os.environ["UNDRIFT_DATA"], os.environ["UNDRIFT_CACHE"] = data, str(Path(data) / "cache")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as aside:
        began = time.perf_counter()
        assert begin(Path(aside) / "whole", engine).wait(600) == 0, "the run itself fails"
        expected, length = sha256(Path(aside) / "whole"), time.perf_counter() - began
        draw = random.Random(engine)
        for number in range(int(count)):
            kind = (signal.SIGTERM, signal.SIGINT)[number % 2]
            found = stopped(Path(aside) / str(number), engine, draw.uniform(0.0, 1.0) * length, kind, expected)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
