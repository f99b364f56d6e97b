"""Crash points: places in a round at which a process ends itself by SIGKILL, as `kill -9` or a power failure would."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from faults.disk import full
from undrift.core.server import step as server
from undrift.core.server import total as reduce
from undrift.engine.round import simulation
from undrift.engine.worker import worker
from undrift.runs.folder import checkpoint
from undrift.util.storage import files, metrics


@dataclass(frozen=True)
class Point:
    """A call during which the process ends.

    Args:
        owner: the module or class of the function.
        name: its name.
        after: whether the call is made first.
        about: which calls are meant, by their arguments; None means all.
        half: the call is a write of which only the first half reaches the file.
    """

    owner: Any
    name: str
    after: bool = False
    about: Callable[..., bool] | None = None
    half: bool = False


def _into(*ends: str) -> Callable[..., bool]:
    """Whether a rename puts a file with one of these endings into the folder of the checkpoints."""

    def meant(_: Any, to: Any, **named: Any) -> bool:
        path = full(to, named.get("dst_dir_fd"))
        return path.parent.name == "checkpoints" and path.suffix in ends

    return meant


def _of_checkpoints(handle: int, *_: Any, **__: Any) -> bool:
    """Whether an open file is in the folder of the checkpoints."""
    return full(handle).parent.name == "checkpoints"


EIGHT: dict[str, Point] = {
    "before send": Point(server, "send"),
    "after send": Point(server, "send", after=True),
    "first reply": Point(worker.Worker, "_train_one", after=True),
    "before reduce": Point(server, "close"),
    "after reduce": Point(server, "close", after=True),
    "during the temporary write": Point(os, "fdopen", about=_of_checkpoints, half=True),
    "before the rename": Point(os, "replace", about=_into(".safetensors")),
    "after the rename": Point(os, "replace", after=True, about=_into(".safetensors")),
}
"""The eight points of a round at which a server that loses anything loses it."""

POINTS: dict[str, Point] = EIGHT | {
    "in the middle of a sum": Point(reduce.Total, "add", after=True),
    "before the row": Point(metrics.Metrics, "append"),
    "after the row": Point(metrics.Metrics, "append", after=True),
    "before the first sync": Point(os, "fsync"),
    "before any rename": Point(os, "replace"),
    "after any rename": Point(os, "replace", after=True),
    "before the rename of the manifest": Point(os, "replace", about=_into(".json")),
    "after the rename of the manifest": Point(os, "replace", after=True, about=_into(".json")),
    "between state and manifest": Point(files, "sync_folder", after=True),
    "after the checkpoint": Point(checkpoint.Checkpoints, "save", after=True),
}


def die() -> None:
    """End this process at once, without a chance to clean up."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, round: int) -> None:
    """From now on this process dies at a crash point, in a round; rounds count from 0."""
    given = POINTS[point]
    plain, trained = getattr(given.owner, given.name), simulation.Simulation.round
    strategy = sys.modules.get("undrift.engine.flower.server.strategy")
    current = -1

    def counted(run: Any, state: Any, clients: Any = None) -> Any:
        nonlocal current
        current = state.round
        return trained(run, state, clients)

    def begun(run: Any, *arguments: Any) -> Any:
        nonlocal current
        current = run.state.round
        return sent(run, *arguments)

    def lethal(*arguments: Any, **named: Any) -> Any:
        meant = current == round and (given.about is None or given.about(*arguments, **named))
        if not meant:
            return plain(*arguments, **named)
        if given.half:
            return _HalfWriter(plain(*arguments, **named))
        if given.after:
            plain(*arguments, **named)
        die()

    setattr(given.owner, given.name, lethal)
    simulation.Simulation.round = counted  # type: ignore[method-assign, assignment]
    if strategy is not None:  # a deployment
        sent = strategy.UndriftStrategy._begin
        strategy.UndriftStrategy._begin = begun


class _HalfWriter:
    """A file that ends the process in the middle of its first write."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def __enter__(self) -> "_HalfWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        die()
