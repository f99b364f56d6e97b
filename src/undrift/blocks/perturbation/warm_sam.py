"""FedGloSS's perturbation on the clients: SAM with a radius that grows over the first rounds."""

from dataclasses import dataclass

from undrift.blocks.perturbation.sam import SAM
from undrift.blocks.warming import Warming
from undrift.core.block import Perturbation
from undrift.core.types import Run
from undrift.core.vector import Vector


@dataclass(frozen=True)
class WarmSAM(Warming, Perturbation):
    """client:  SAM with radius rho_t = first + (rho - first) min(1, t / warmup) in round t

    Args:
        rho: the radius once warm; 0 switches the perturbation off.
        warmup: how many rounds the warm-up takes; 0 gives SAM.
        first: the radius of round 0; rho, if that is smaller.
    """

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: None, kept: None, run: Run) -> SAM:
        """SAM with the radius of this round."""
        return SAM(self.radius(run.round))

    def perturb(self, local: SAM, run: Run) -> Vector | None:
        """The gradient at `w`, scaled to that radius."""
        return local.perturb(local.begin(None, None, run), run)
