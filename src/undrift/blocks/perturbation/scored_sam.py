"""FedSCAM's perturbation: SAM with a radius of each client's own."""

from dataclasses import dataclass

from undrift.blocks.perturbation.sam import SAM, _First
from undrift.blocks.score import Compass, Scored, Scoring
from undrift.core import Perturbation, Start, Step, Vector
from undrift.util.naming.ranges import NonNegative


@dataclass(frozen=True, eq=False)
class _Scored(Scored):
    """A client's score, SAM with the radius that follows from it, and what SAM keeps within a step."""

    sam: SAM
    first: _First


@dataclass(frozen=True)
class ScoredSAM(Scoring[None, _Scored], Perturbation[Compass, None, Compass, None, _Scored]):
    """client:  rho_i = rho / (1 + alpha steepness_i);   then SAM with radius rho_i.   The steepness: see Scoring.

    Args:
        rho: the largest radius; 0 switches the perturbation off.
        alpha: how much steepness lowers the radius; 0 gives SAM.
        kappa: how much agreement with the last global step lowers the steepness; 0 leaves it out.
        batches: how many batches the score is computed on, the first ones of training, one epoch at most.
        length: how many numbers a sketch has.
    """

    reports = ("radius", "steepness", "agreement")

    rho: NonNegative = 0.05
    alpha: NonNegative = 1.0

    @property
    def follows(self) -> bool:
        """Through the steepness."""
        return self.rho > 0 and self.alpha > 0 and self.kappa > 0

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: Compass, kept: None, start: Start) -> _Scored:
        """Score the client on its first batches."""
        score = self.look(sent, start, self.rho, self.alpha)
        sam = SAM(self.rho / (1 + self.alpha * self.steepness(score)))
        start.report("radius", sam.rho)
        self.report_score(score, start)
        return _Scored(score, sam, sam.begin(None, None, start))

    def perturb(self, state: _Scored, step: Step) -> Vector | None:
        """The gradient at `w`, scaled to the client's radius."""
        return state.sam.perturb(state.first, step)
