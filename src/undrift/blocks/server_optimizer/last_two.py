"""The model that is evaluated: the mean of the last two."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core import ServerOptimizer, ServerView, Vector


class Iterate(NamedTuple):
    """The model from which clients train."""

    x: Vector


@dataclass(frozen=True)
class LastTwo(ServerOptimizer[Iterate]):
    """server:  broadcast x;   x <- x + delta;   w = (x + x of the round before) / 2 is the model evaluated and saved"""

    def init_server(self, w: Vector) -> Iterate:
        """The first model."""
        return Iterate(w)

    def shift(self, view: ServerView[Iterate]) -> Vector:
        """The last model, not the mean."""
        return view.state.x

    def receive(self, delta: Vector, up: None, view: ServerView[Iterate]) -> tuple[Vector, Iterate]:
        """Move x, and w to the mean."""
        x = view.state.x + delta
        return (x + view.state.x) / 2 - view.params, Iterate(x)
