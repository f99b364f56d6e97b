"""FedCM's momentum: the last global direction, mixed into every local step."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core import Correction, Needs, ServerView, Start, Step, Sums, Vector
from undrift.util.naming.ranges import PositiveShare

SLOPES = (
    "its momentum is a slope, a displacement by rate and steps, which is a mean gradient of plain SGD only; HeavyBall "
    "is a momentum of the server's own steps"
)


class Momentum(NamedTuple):
    """The mean direction of the last round, in gradient units."""

    m: Vector


@dataclass(frozen=True)
class ServerMomentum(Correction[Momentum, None, Momentum, None, Vector]):
    """client:  g <- a g + (1 - a) m
    server:  m <- mean_i slope_i

    Args:
        a: share of the client's own direction; 1 switches the momentum off.
    """

    home = "momentum"
    vectorises = True
    uses = Sums.SLOPES

    reports = ("norm",)

    a: PositiveShare = 0.1

    @property
    def needs(self) -> Needs:
        """Slopes that are gradients, unless the momentum is off."""
        return Needs(plain_sgd=SLOPES if self.a < 1 else "")

    def begin(self, sent: Momentum, kept: None, start: Start) -> Vector:
        """The constant part of every step."""
        return (1 - self.a) * sent.m

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:
        """Mix the momentum in."""
        return grad.mul_(self.a).add_(state)

    def receive(self, delta: Vector, up: None, view: ServerView[Momentum]) -> tuple[Vector, Momentum]:
        """The mean slope of this round."""
        m = view.slopes / view.cohort
        view.report("norm", float(torch.linalg.vector_norm(m)))
        return delta, Momentum(m)
