"""FedSCAM's perturbation: SAM with a radius of each client's own."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from undrift.blocks.perturbation.sam import SAM, radius
from undrift.blocks.score import Compass, Score, Scoring
from undrift.core.block import Perturbation
from undrift.core.types import Run
from undrift.core.vector import Vector


class _Scored(NamedTuple):
    """A client's score, SAM with the radius that follows from it, and what SAM keeps within a step."""

    score: Score
    sam: SAM
    first: Any


@dataclass(frozen=True)
class ScoredSAM(Scoring, Perturbation):
    """client:  rho_i = rho / (1 + alpha steepness_i);   then SAM with radius rho_i.   The steepness: see Scoring.

    Args:
        rho: the largest radius; 0 switches the perturbation off.
        alpha: how much steepness lowers the radius; 0 gives SAM.
        kappa: how much agreement with the last global step lowers the steepness; 0 leaves it out.
        batches: how many batches the score looks at, the first ones of training, one epoch at most.
        length: how many numbers a sketch has.
    """

    rho: float = 0.05
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        radius("ScoredSAM", self.rho)
        self.positive("alpha", self.alpha)

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: Compass, kept: None, run: Run) -> _Scored:
        """Look at the client's first batches."""
        score = self.look(sent, run, self.rho, self.alpha)
        sam = SAM(self.rho / (1 + self.alpha * self.steepness(score)))
        return _Scored(score, sam, sam.begin(None, None, run))

    def perturb(self, local: _Scored, run: Run) -> Vector | None:
        """The gradient at `w`, scaled to the client's radius."""
        return local.sam.perturb(local.first, run)
