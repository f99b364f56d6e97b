"""The job of a run: the method, the task and the settings that all its workers share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from torch import nn

from undrift.core.client.vectorised import check_together
from undrift.core.method.algorithm import Algorithm, check_rank
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import layout_of
from undrift.core.model.random import derive
from undrift.core.records.place import Place, place_of
from undrift.core.records.types import Broadcast, Local
from undrift.core.server.gate import Gate
from undrift.core.tasks.task import Task
from undrift.engine.worker.device import keep_memory, plug_in, use_deterministic, wants_memory

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
class Job:
    """What all workers of a run share.

    Args:
        algorithm: the method.
        task: the model, its loss and the clients' data.
        local: the settings all clients share.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
        depth: how many rounds back the server's checkpoints reach; clients' states on disk are kept for as long.
        device: where a worker trains, as "cuda" or "cuda:1"; with Ray, its "cuda" is the GPU that Ray gives it.
        resident: the largest share of the device's free memory for a copy of the task's data: see `Place`.
        deterministic: choose deterministic kernels: see `use_deterministic`.
        keep_memory: keep the memory that is freed: see `undrift.engine.worker.device.keep_memory`.
    """

    algorithm: Algorithm
    task: Task
    local: Local = field(default_factory=Local)
    seed: int = 0
    bound: float | None = None
    depth: int = 0
    device: str = "cpu"
    resident: float = 0.5
    deterministic: bool = False
    keep_memory: bool = True

    @cached_property
    def setting(self) -> Setting:
        """What all rounds have in common, for the server's hooks."""
        return Setting(self.task.population, self.local, layout_of(self.task.model()), self.seed)

    def __post_init__(self) -> None:
        check_rank(self.algorithm, self.local)
        check_together(self.algorithm, self.local, self.task)

    def gate(self, broadcast: Broadcast, clients: Sequence[int], cohort: int, timing: Timing = NOW) -> Gate:
        """The gate of some clients of a round.

        Args:
            broadcast: what the server sent.
            clients: the clients.
            cohort: how many clients take part in the round in all.
            timing: when their uploads arrive, if not in the round of the broadcast.
        """
        seed = timing.seed(self.seed)
        return Gate(
            self.algorithm, self.local, broadcast, clients, self.bound, cohort=cohort, seed=seed, late=timing.age
        )

    def open(self) -> Place:
        """Prepare this process for a worker and return the device as a place to train."""
        if self.deterministic:
            use_deterministic()
        if wants_memory(self.keep_memory):
            keep_memory()
        plug_in()
        return place_of(self.device, self.resident)
