"""FedWMSAM's perturbation: along the path a client's momentum alone would have taken, free of any extra gradient."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from undrift.blocks.momentum.adaptive import Blend
from undrift.blocks.perturbation.sam import radius
from undrift.core.block import Perturbation
from undrift.core.types import Run
from undrift.core.vector import Vector, unit


class _Path:
    """The direction of the path, known once all blocks have begun."""

    pull: Vector | None = None


@dataclass(frozen=True)
class MomentumPath(Perturbation):
    """client:  offset = rho U(w0 + b M_i - w) at step b, none at b = 0;   M_i = m + a/(1 - a) (c - c_i)

    m and a are those of the momentum slot, c - c_i that of Scaffold in the drift slot, or zero without it. Scaled by
    1 - a the direction has no division: U((1 - a) (w0 - w) + b ((1 - a) m + a (c - c_i))).

    Args:
        rho: the radius; 0 switches the perturbation off.
        paced: walk the path in steps of the learning rate, b lr M_i, which has the units of a model.
    """

    requires: ClassVar[Mapping[str, str]] = {"momentum": "AdaptiveMomentum"}

    rho: float = 0.01
    paced: bool = False

    def __post_init__(self) -> None:
        radius("MomentumPath", self.rho)

    def begin(self, sent: None, kept: None, run: Run) -> _Path:
        """The drift slot has not begun yet: nothing is known."""
        return _Path()

    def perturb(self, local: _Path, run: Run) -> Vector | None:
        """From where the client is to where its momentum leads, uphill."""
        if self.rho == 0 or run.step == 0:
            return None
        sent = run.sent["momentum"]
        assert isinstance(sent, Blend)
        if local.pull is None:
            local.pull = _pull(sent, run)
        walked = run.step * (run.lr if self.paced else 1.0)
        ahead = (run.w0 - run.w).mul_(1 - sent.a).add_(local.pull, alpha=walked)
        return unit(ahead).mul_(self.rho)


def _pull(sent: Blend, run: Run) -> Vector:
    """(1 - a) m + a (c - c_i)."""
    pull = (1 - sent.a) * sent.m
    difference = getattr(run.locals["drift"], "difference", None)
    return pull if difference is None else pull.add_(difference, alpha=sent.a)
