"""Plain and momentum steps of the server."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core import ServerOptimizer, ServerView, Vector
from undrift.util.naming.ranges import Fraction, Positive


class Velocity(NamedTuple):
    """The accumulated pseudo-gradient, uphill."""

    v: Vector


@dataclass(frozen=True)
class HeavyBall(ServerOptimizer[Velocity]):
    """server:  v <- beta v - delta;   w <- w - lr v   (nesterov: w <- w - lr (beta v - delta))

    Args:
        beta: momentum; 0 gives Average.
        lr: server learning rate.
        nesterov: whether the momentum is Nesterov's.
    """

    beta: Fraction = 0.9
    lr: Positive = 1.0
    nesterov: bool = False

    def receive(self, delta: Vector, up: None, view: ServerView[Velocity]) -> tuple[Vector, Velocity]:
        """Accumulate, then move."""
        v = self.beta * view.state.v - delta
        ahead = self.beta * v - delta if self.nesterov else v
        return -self.lr * ahead, Velocity(v)
