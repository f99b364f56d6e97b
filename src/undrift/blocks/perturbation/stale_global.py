"""A perturbation along the last movement of the global model, free of any extra gradient."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.core import End, Perturbation, Start, Step, Vector, unit
from undrift.util.naming.ranges import NonNegative


class Old(NamedTuple):
    """The global model a client received when it last took part."""

    w: Vector


@dataclass(frozen=True)
class StaleGlobal(Perturbation[None, Old, None, None, Vector | None]):
    """client:  offset = rho * U(w_old - w0), constant in the round;   at the end w_old <- w0

    The model moves downhill, so old minus new points uphill. A client's first round is unperturbed.

    Args:
        rho: the radius; 0 switches the perturbation off.
    """

    rho: NonNegative = 0.1

    def init_client(self, w: Vector) -> Old:
        """The model it receives: no movement yet."""
        return Old(w)

    def begin(self, sent: None, kept: Old, start: Start) -> Vector | None:
        """The offset of the whole round."""
        moved = kept.w - start.w0
        return unit(moved) * self.rho if self.rho > 0 and bool(torch.any(moved != 0)) else None

    def perturb(self, state: Vector | None, step: Step) -> Vector | None:
        """The same offset at every step."""
        return state

    def finish(self, state: Vector | None, end: End) -> tuple[None, Old]:
        """Remember the model received."""
        return None, Old(end.w0)
