"""What all workers of a run share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from undrift.core.client.vectorised import check_together
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task

Score = Callable[[Task, nn.Module, int], float]
"""The score of a client's model, from the task, the model and the client; other processes must be able to import it."""


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
        device: where a worker trains, as "cuda" or "cuda:1": see `place_of`.
        resident: the largest share of the device's free memory for a copy of the task's data: see `Place`.
        deterministic: make workers choose deterministic kernels: see `use_deterministic`.
        keep_memory: let workers keep the memory that they free: see `undrift.engine.worker.worker`.
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

    def __post_init__(self) -> None:
        check_together(self.algorithm, self.local, self.task)
