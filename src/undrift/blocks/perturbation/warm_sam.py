"""FedGloSS's perturbation on the clients: SAM with a radius that grows over the first rounds."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.perturbation.sam import SAM, _First
from undrift.blocks.warming import Warming
from undrift.core import Perturbation, Start, Step, Vector


class _Warmed(NamedTuple):
    """SAM with the radius of the round, and what it keeps within a step."""

    sam: SAM
    first: _First


@dataclass(frozen=True)
class WarmSAM(Warming, Perturbation[None, None, None, None, _Warmed]):
    """client:  SAM with radius rho_t = first + (rho - first) min(1, t / warmup) in round t

    Args:
        rho: the radius once warm; 0 switches the perturbation off.
        warmup: how many rounds the warm-up takes; 0 gives SAM.
        first: the radius of round 0; rho, if that is smaller.
    """

    reports = ("radius",)

    @property
    def gradients(self) -> int:
        """One more, unless the radius is zero."""
        return int(self.rho > 0)

    def begin(self, sent: None, kept: None, start: Start) -> _Warmed:
        """SAM with the radius of this round."""
        sam = SAM(self.radius(start.round))
        start.report("radius", sam.rho)
        return _Warmed(sam, sam.begin(None, None, start))

    def perturb(self, state: _Warmed, step: Step) -> Vector | None:
        """The gradient at `w`, scaled to that radius."""
        return state.sam.perturb(state.first, step)
