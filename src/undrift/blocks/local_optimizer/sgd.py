"""SGD with momentum on the clients."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.local_optimizer.moments import Held, WithMoments
from undrift.core import Step, Vector
from undrift.util.naming.ranges import Fraction


class MomentumBuffer(NamedTuple):
    """The accumulated gradient."""

    b: Vector


@dataclass(frozen=True)
class LocalSGD(WithMoments[MomentumBuffer]):
    """client:  b <- momentum b + g;   w <- w - lr b   (nesterov: w <- w - lr (g + momentum b))

    As `torch.optim.SGD` without dampening: g includes corrections, proximal terms and weight decay. `LocalMomentum`
    instead accumulates the data gradient and corrections only, and is the one that FedNova normalises.

    Args:
        momentum: share of the buffer that is kept; 0 gives plain SGD, bit for bit.
        nesterov: whether the momentum is Nesterov's.
        moments: "reset", "keep" or "average": the buffer is zero when a round begins, stays with the client, or is the
            mean of the buffers that the last cohort uploaded.
    """

    momentum: Fraction = 0.9
    nesterov: bool = False
    moments: str = "reset"

    @property
    def plain(self) -> bool:
        """Without momentum."""
        return self.momentum == 0

    def zero(self, w: Vector) -> MomentumBuffer:
        """An empty buffer."""
        return MomentumBuffer(torch.zeros_like(w))

    def adjust(self, grad: Vector, state: Held[MomentumBuffer], step: Step) -> Vector:
        """The buffer, or the gradient and the buffer."""
        if self.plain:
            return grad
        b = state.moments.b.mul_(self.momentum).add_(grad)
        return grad.add_(b, alpha=self.momentum) if self.nesterov else b
