"""Runs that are killed: every run in a forked process of its own, ended by SIGKILL at a moment or at a crash point.

    PYTHONPATH=tests python -m faults.kills scaffold random:20    twenty moments, uniform over the time of a run
    PYTHONPATH=tests python -m faults.kills scaffold signals:50   the same by SIGTERM and SIGINT in turn
    PYTHONPATH=tests python -m faults.kills scaffold points       every crash point, each in another round
    PYTHONPATH=tests python -m faults.kills scaffold eight        the eight points of R5, each in another round
    PYTHONPATH=tests python -m faults.kills scaffold all          the eight points in every round: eighty kills

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import nn

from faults.points import EIGHT, POINTS, arm
from undrift import Local, TensorTask, parse
from undrift.models import AdaptedLinear, open_base
from undrift.runs import resume, start
from undrift.runs.folder.files import read_summary
from undrift.runs.folder.verify import verify

with suppress(ImportError):
    import pandas  # noqa: F401  pyarrow imports it in the last round: once here and not in every fork

ROUNDS, CLIENTS, COHORT = 10, 6, 3
Kill = tuple[str, int] | float
"""A crash point and a round, or seconds after the start."""


def network() -> nn.Module:
    """A network with one hidden layer."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def adapted(base: bool) -> nn.Module:
    """The same with an adapter on a frozen layer, whose weight may be part of the model."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = nn.Sequential(AdaptedLinear(nn.Linear(6, 8), 2, 4.0), nn.ReLU(), nn.Linear(8, 3))
    return open_base(model) if base else model


def small_task(kind: str = "") -> TensorTask:
    """Six clients with twelve points each, and a model of the kind that a method needs."""
    inputs = torch.randn(CLIENTS * 12, 6, generator=torch.Generator().manual_seed(0))
    make = partial(adapted, kind == "foldable") if kind else network
    return TensorTask(make, inputs, inputs[:, :3].argmax(dim=1), list(torch.arange(len(inputs)).split(12)))


def task_of(method: str) -> TensorTask:
    """The task with a model that fits a method."""
    return small_task(parse(method.removeprefix("every-other:")).needs.model)


def begin(folder: Path, method: str) -> None:
    """A run of ten short rounds, from its start."""
    every = 2 if method.startswith("every-other:") else 1
    start(
        task=task_of(method),
        folder=folder,
        method=method.removeprefix("every-other:"),
        rounds=ROUNDS,
        cohort=COHORT,
        local=Local(lr=0.05, epochs=1, batch_size=4),
        output={"checkpoint_every": every},
        **({"durations": "log-normal(1, sd=1)"} if "buffered" in method else {}),  # type: ignore[arg-type]
    )


def forked(work: Callable[[], object]) -> int:
    """Do something in a new process and return its number at once."""
    pid = os.fork()
    if pid == 0:
        code = 1
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in the background
        with suppress(BaseException):
            torch.set_num_threads(1)
            work()
            code = 0
        os._exit(code)
    return pid


def wait(pid: int) -> int:
    """How a process ended: its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def results(folder: Path) -> tuple[object, str, list[int]]:
    """What must be equal: the hash of the server's state, that of the clients' last states, the rounds of the rows."""
    states, digest = folder / "clients", sha256()
    for client in sorted({path.parent for path in states.rglob("*") if path.is_file() and path.name.isdigit()}):
        last = max((path for path in client.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        digest.update(f"{last.relative_to(states)}\n".encode() + last.read_bytes())
    rows = [json.loads(line)["round"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return (read_summary(folder) or {}).get("sha256"), digest.hexdigest(), rows


def resumed(folder: Path, method: str, expected: object) -> dict[str, Any]:
    """Go on with a killed run, and compare."""
    began, clock = time.perf_counter(), time.time()
    begun = (folder / "config.toml").exists()
    code = wait(forked(lambda: resume(folder, task=task_of(method)) if begun else begin(folder, method)))
    seconds = time.perf_counter() - began
    if code:
        return {"code": code, "same": False, "recomputed": ROUNDS, "seconds": round(seconds, 2)}
    checked = verify(folder)
    assert checked.intact, checked.problems
    events = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
    last = max(number for number, event in enumerate(events) if event["event"] in ("begin", "resume"))
    return {
        "code": code,
        "same": results(folder) == expected,
        "twice": ROUNDS - len(set(results(folder)[2])),
        "from": events[last]["round"],
        "ready": round(events[last]["time"] - clock, 2),
        "seconds": round(seconds, 2),
    }


def planned(method: str, how: str, length: float) -> Iterator[Kill]:
    """The kills that an argument of the command asks for."""
    kind, _, count = how.partition(":")
    if kind in ("random", "signals"):
        draw = random.Random(method)
        yield from (draw.uniform(0.0, length) for _ in range(int(count)))
    elif kind == "all":
        yield from ((point, round) for point in EIGHT for round in range(ROUNDS))
    else:
        odd = 1 if method.startswith("every-other:") else 0  # then a checkpoint is written in odd rounds only
        points = EIGHT if kind == "eight" else POINTS
        yield from ((point, 1 + number % (ROUNDS - 1) | odd) for number, point in enumerate(points))


def killed(folder: Path, method: str, kill: Kill, by: signal.Signals = signal.SIGKILL) -> int:
    """Start a run and kill it; how it ended: 0 if it was faster than the kill."""
    if isinstance(kill, float):
        pid = forked(lambda: begin(folder, method))
        time.sleep(kill)
        os.kill(pid, by)
        return wait(pid)

    def doomed() -> None:
        arm(*kill)
        begin(folder, method)

    return wait(forked(doomed))


def main() -> None:
    """Kill and resume as the arguments say."""
    method, how = sys.argv[1:]
    with tempfile.TemporaryDirectory() as aside:
        began, whole = time.perf_counter(), Path(aside) / "whole"
        assert wait(forked(lambda: begin(whole, method))) == 0, "the run itself fails"
        expected, length = results(whole), time.perf_counter() - began
        for number, kill in enumerate(planned(method, how, length)):
            by = (signal.SIGTERM, signal.SIGINT)[number % 2] if how.startswith("signals") else signal.SIGKILL
            for again in range(5):  # the machine may be faster now than when the length was measured
                folder = Path(aside) / f"{number}-{again}"
                began = time.perf_counter()
                ended = killed(folder, method, kill, by)
                if ended != 0 or not isinstance(kill, float):
                    break
                kill /= 2
            exited = time.perf_counter() - began - (kill if isinstance(kill, float) else 0.0)
            found = resumed(folder, method, expected) | {"by": by.name, "exited": round(exited, 2)}
            if not isinstance(kill, float) and "from" in found:
                found["recomputed"] = kill[1] + 1 - found["from"]
            print(json.dumps({"method": method, "killed": kill, "ended": ended, **found}), flush=True)


if __name__ == "__main__":
    main()
