"""Runs that are killed: every run in a forked process of its own, ended by SIGKILL at a moment or at a named place.

    python tests/support/kills.py DATA scaffold random:20     twenty moments, uniform over the time of a run
    python tests/support/kills.py DATA scaffold places        every named place, in the fourth round

The parent imports everything and never trains, so that a fork is ready at once and may use autograd. For each kill one
line of JSON is printed: where it was, and whether the resumed run ended like the uninterrupted one.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from experiment_support import write_tiny_fashion
from undrift.core import reduce, server
from undrift.engine import worker
from undrift.experiment import checkpoint, resume, start
from undrift.experiment.config import Config
from undrift.experiment.folder import read_summary
from undrift.util import files, metrics

ROUNDS = 6
PLACES: dict[str, tuple[object, str, bool]] = {
    "before send": (server, "send", False),
    "after send": (server, "send", True),
    "first reply": (worker.Worker, "_attempt", True),
    "before the server step": (server, "close", False),
    "after the server step": (server, "close", True),
    "before the row": (metrics.Metrics, "append", False),
    "after the row": (metrics.Metrics, "append", True),
    "during the write of a checkpoint": (os, "fsync", False),
    "before the rename": (os, "replace", False),
    "after the rename": (os, "replace", True),
    "between state and manifest": (files, "sync_folder", True),
    "after the checkpoint": (checkpoint.Checkpoints, "save", True),
    "in the middle of a sum": (reduce.Total, "add", True),
}


def config(method: str) -> Config:
    """A run of six short rounds."""
    return Config.build(
        {
            "method": method,
            "partition": "dirichlet:0.5,min_size=4",
            "clients": 12,
            "cohort": 4,
            "rounds": ROUNDS,
            "local": {"preset": "papers", "batch_size": 16, "lr": 0.05},
            "output": {"evaluate_every": 5, "checkpoint_every": 2 if method == "feddyn" else 1},
        }
    )


def forked(work: Callable[[], object]) -> int:
    """Do something in a new process and return its number at once."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            torch.set_num_threads(1)
            work()
            code = 0
        os._exit(code)
    return pid


def wait(pid: int) -> int:
    """How a process ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def deadly(place: str, round: int) -> None:
    """From now on this process dies at a place, in a round."""
    owner, name, after = PLACES[place]
    plain, sent = getattr(owner, name), server.send
    current = -1

    def counting(algorithm, state):
        nonlocal current
        current = state.round
        return (lethal if owner is server and name == "send" else sent)(algorithm, state)

    def lethal(*arguments, **named):
        if after:
            value = plain(*arguments, **named)
        if current == round:
            os.kill(os.getpid(), signal.SIGKILL)
        return value if after else plain(*arguments, **named)

    setattr(owner, name, lethal)
    server.send = counting


def whole(folder: Path, method: str) -> str:
    """The hash of an uninterrupted run."""
    assert wait(forked(lambda: start(config(method), folder))) == 0, "the run itself fails"
    return str(read_summary(folder)["sha256"])


def outcome(folder: Path, method: str, expected: str) -> dict[str, object]:
    """Go on with a killed run, and compare."""
    began = time.perf_counter()
    begun = (folder / "config.toml").exists()
    code = wait(forked(lambda: resume(folder) if begun else start(config(method), folder)))
    summary = read_summary(folder) or {}
    return {
        "code": code,
        "same": summary.get("sha256") == expected,
        "rows": len((folder / "metrics.jsonl").read_text().splitlines()) == ROUNDS,
        "seconds": round(time.perf_counter() - began, 2),
    }


def main() -> None:
    """Kill and resume as the arguments say."""
    data, method, how = sys.argv[1:]
    write_tiny_fashion(Path(data) / "fashion-mnist")
    os.environ["UNDRIFT_DATA"], os.environ["UNDRIFT_CACHE"] = data, str(Path(data) / "cache")
    with tempfile.TemporaryDirectory() as aside:
        began = time.perf_counter()
        expected = whole(Path(aside) / "whole", method)
        length = time.perf_counter() - began
        kind, _, count = how.partition(":")
        draw = random.Random(method)
        moments = [draw.uniform(0.0, length) for _ in range(int(count or 0))]
        for number, moment in enumerate(moments if kind == "random" else PLACES):
            folder = Path(aside) / str(number)
            if isinstance(moment, float):
                pid = forked(lambda folder=folder: start(config(method), folder))
                time.sleep(moment)
                os.kill(pid, signal.SIGKILL)
                ended = wait(pid)
            else:

                def doomed(folder: Path = folder, place: str = moment) -> None:
                    deadly(place, 3)
                    start(config(method), folder)

                ended = wait(forked(doomed))
            told = {"method": method, "killed": moment, "ended": ended, **outcome(folder, method, expected)}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
