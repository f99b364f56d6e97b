"""FedWMSAM's momentum: FedCM's, with a share that follows how well clients agree with it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.momentum.server_momentum import SLOPES
from undrift.core import Correction, End, Needs, ServerView, Start, Step, Sums, Vector, unit
from undrift.util.naming.ranges import PositiveShare, Share


class Blend(NamedTuple):
    """The mean direction of the last round, in gradient units, and the share of a client's own direction."""

    m: Vector
    a: float


class Turn(NamedTuple):
    """How far a client turned away from the momentum: one less the cosine between them."""

    turn: float


@dataclass(frozen=True)
class AdaptiveMomentum(Correction[Blend, None, Blend, Turn, Blend]):
    """client:  g <- a g + (1 - a) m;   at the end turn_i = 1 - cos(-delta_i, m), 0 if m = 0
    server:  m <- mean_i slope_i;   a <- (1 - pace) a + pace min(max(mean_i turn_i, least), most)

    Args:
        a: the first share of the client's own direction; 1 switches the momentum off while it lasts.
        pace: how fast the share follows; 0 keeps it, which is ServerMomentum.
        least: the smallest share it follows to.
        most: the largest.
    """

    needs = Needs(plain_sgd=SLOPES)
    home = "momentum"
    vectorises = True
    uses = Sums.SLOPES

    reports = ("mixing_coefficient", "cosine", "norm")

    a: PositiveShare = 0.1
    pace: Share = 0.01
    least: float = 0.1
    most: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most <= 1:
            raise ValueError(
                f"AdaptiveMomentum: least and most must be in order in (0, 1], got {self.least} and {self.most}"
            )

    def init_server(self, w: Vector) -> Blend:
        """No momentum: in round 0 the model moves a times as far."""
        return Blend(torch.zeros_like(w), self.a)

    def begin(self, sent: Blend, kept: None, start: Start) -> Blend:
        """Both are constant in a round."""
        return sent

    def adjust(self, grad: Vector, state: Blend, step: Step) -> Vector:
        """Mix the momentum in."""
        return grad.mul_(state.a).add_(state.m, alpha=1 - state.a)

    def finish(self, state: Blend, end: End) -> tuple[Turn, None]:
        """Compare the client's displacement, turned uphill, with the momentum."""
        if not bool(torch.any(state.m != 0)):
            return Turn(0.0), None
        turn = 1.0 + float(unit(end.delta) @ unit(state.m))
        end.report("cosine", 1 - turn)
        return Turn(turn), None

    def receive(self, delta: Vector, up: Turn, view: ServerView[Blend]) -> tuple[Vector, Blend]:
        """The mean slope of this round, and the share moved towards the mean turn, both for the next round."""
        wanted = min(max(up.turn / view.cohort, self.least), self.most)
        new = Blend(view.slopes / view.cohort, (1 - self.pace) * view.state.a + self.pace * wanted)
        view.report("mixing_coefficient", new.a)
        view.report("norm", float(torch.linalg.vector_norm(new.m)))
        return delta, new
