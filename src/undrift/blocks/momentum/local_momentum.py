"""Momentum of a client's own steps."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from undrift.core import Block, Correction, Needs, Start, Step, Vector
from undrift.util.naming.ranges import Fraction


@dataclass(frozen=True)
class LocalMomentum(Correction[None, None, None, None, Vector]):
    """client:  b <- rho b + g;   g <- b;   b is zero when a round begins

    Steps grow up to 1 / (1 - rho) times as long. Blocks that need plain SGD are refused beside it, such as `Scaffold`,
    whose variates would be as much too large; `Normalized` refuses it unless it has the same rho.

    Args:
        rho: the momentum; 0 switches it off.
    """

    home = "momentum"
    vectorises = True

    rho: Fraction = 0.9

    @property
    def needs(self) -> Needs:
        """Steps without another momentum."""
        return Needs(plain_sgd="it is the momentum of plain SGD's steps; an optimizer has its own" if self.rho else "")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that read displacements as gradients of plain SGD."""
        for slot, other in others.items():
            needs = other.needs if isinstance(other, Block) else Needs()
            if self.rho and needs.plain_sgd:
                return f"is not plain SGD, which {slot}={type(other).__name__} needs: {needs.plain_sgd}"
        return ""

    def begin(self, sent: None, kept: None, start: Start) -> Vector:
        """A fresh buffer: nothing of it outlives the round."""
        return torch.zeros_like(start.w0)

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:
        """Accumulate, and go along the sum."""
        return grad if self.rho == 0 else grad.copy_(state.mul_(self.rho).add_(grad))
