"""The job of a run: the method, the task and the settings that all its workers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torch import nn

from undrift.core.client.vectorised import check_together
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import layout_of
from undrift.core.model.random import derive
from undrift.core.records.types import Broadcast, Local
from undrift.core.tasks.task import Task
from undrift.engine.worker.device import WorkerPlace

Score = Callable[[Task, nn.Module, int], float]
"""The score of a client's model, from the task, the model and the client; other processes must be able to import it."""


class Timing(NamedTuple):
    """When the uploads of some clients arrive, seen from the model that they start from.

    Args:
        age: how many steps the server made in between; 0 in synchronous rounds.
        turn: how many tasks from the same model these clients began before.
        key: the number under which their new states are stored; None is the round of the model.
    """

    age: int = 0
    turn: int = 0
    key: int | None = None

    def seed(self, seed: int) -> int:
        """The seed of these tasks in a run: its own, or for a further turn another one."""
        return derive(seed, "turn", self.turn) if self.turn else seed


NOW = Timing()
"""In the round of the model itself."""


class VersionGroup(NamedTuple):
    """Clients that start from the same model and arrive in the same step of the server, each once.

    Args:
        broadcast: what the server sent them.
        clients: the clients.
        timing: when their uploads arrive.
    """

    broadcast: Broadcast
    clients: Sequence[int]
    timing: Timing = NOW


@dataclass(frozen=True)
class Job(WorkerPlace):
    """What all workers of a run share, with the place of each: see `WorkerPlace` for its arguments.

    Args:
        algorithm: the method.
        task: the model, its loss and the clients' data.
        local: the settings all clients share.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
        depth: how many rounds back the server's checkpoints reach; clients' states on disk are kept for as long.
    """

    algorithm: Algorithm
    task: Task
    local: Local = field(default_factory=Local)
    seed: int = 0
    bound: float | None = None
    depth: int = 0

    @cached_property
    def setting(self) -> Setting:
        """What all rounds have in common, for the server's hooks."""
        return Setting(self.task.population, self.local, layout_of(self.task.model()), self.seed)

    def __post_init__(self) -> None:
        check_together(self.algorithm, self.local, self.task)
