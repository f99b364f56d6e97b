"""A perturbation along the other clients' last movement, free of any extra gradient."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core import End, Perturbation, ServerView, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative


class Movement(NamedTuple):
    """The mean displacement of the last round, of how many uploads it is the mean, and that round, from 1."""

    v: Vector
    cohort: int
    round: int


class LastMovement(NamedTuple):
    """A client's last displacement, and its round, from 1."""

    v: Vector
    round: int


@dataclass(frozen=True)
class OthersPath(Perturbation[Movement, LastMovement, Movement, None, Vector | None]):
    """client:  offset = -rho * U(m d - delta_i), constant in the round;   delta_i: its own, 0 if it was not among the m
    server:  d <- mean of the m displacements of the round

    The displacements point downhill, so the offset points uphill on the other clients' losses. The first round is
    unperturbed, and so is a client after a round with no other client.

    Args:
        rho: the radius; 0 switches the perturbation off.
    """

    rho: NonNegative = 0.5

    def begin(self, sent: Movement, kept: LastMovement, start: Start) -> Vector | None:
        """The offset of the whole round."""
        own = sent.round > 0 and kept.round == sent.round
        if self.rho == 0 or sent.cohort <= own:
            return None
        others = sent.v * sent.cohort
        if own:
            others -= kept.v
        return unit(others) * -self.rho if bool(torch.any(others != 0)) else None

    def perturb(self, state: Vector | None, step: Step) -> Vector | None:
        """The same offset at every step."""
        return state

    def finish(self, state: Vector | None, end: End) -> tuple[None, LastMovement]:
        """Remember the displacement."""
        return None, LastMovement(end.delta.clone(), end.round + 1)

    def receive(self, delta: Vector, up: None, view: ServerView[Movement]) -> tuple[Vector, Movement]:
        """Remember the mean displacement."""
        return delta, Movement(view.mean.clone(), view.cohort, view.round + 1)
