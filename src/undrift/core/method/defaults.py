"""The blocks of FedAvg: what an algorithm has in slots that are not filled."""

from dataclasses import dataclass

from undrift.core.method.aggregation import Summing
from undrift.core.method.block import ServerOptimizer
from undrift.core.method.view import ServerView
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Upload
from undrift.util.naming.ranges import Positive


@dataclass(frozen=True)
class ByExamples(Summing):
    """server:  delta = sum_i n_i delta_i / sum_i n_i, over the clients that took part"""

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples."""
        return float(upload.examples)


@dataclass(frozen=True)
class Average(ServerOptimizer):
    """server:  w <- w + lr delta

    Args:
        lr: server learning rate; 1 makes w the mean of the clients' models.
    """

    lr: Positive = 1.0

    def receive(self, delta: Vector, up: None, view: ServerView[None]) -> tuple[Vector, None]:
        """Move by the displacement."""
        return delta if self.lr == 1 else self.lr * delta, None
