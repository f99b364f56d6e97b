"""The job of a run: the method, the task and the settings that all its workers share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from torch import nn

from undrift.core.client.vectorised import check_together
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import layout_of
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task
from undrift.engine.worker.device import WorkerPlace

Score = Callable[[Task, nn.Module, int], float]
"""The score of a client's model, from the task, the model and the client; other processes must be able to import it."""


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
