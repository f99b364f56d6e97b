"""Momentum of a client's own steps."""

from dataclasses import dataclass

import torch

from undrift.core.block import Correction, Needs
from undrift.core.vector import Vector
from undrift.core.view import Start, Step


@dataclass(frozen=True)
class LocalMomentum(Correction[None, None, None, None, Vector]):
    """client:  b <- rho b + g;   g <- b;   b is zero when a round begins

    Steps grow up to 1 / (1 - rho) times as long. Blocks that read slopes, such as `Scaffold`, then take a variate
    that is as much too large: do not use them together.

    Args:
        rho: the momentum; 0 switches it off.
    """

    home = "momentum"
    vectorises = True

    rho: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise ValueError(f"LocalMomentum: rho must be in [0, 1), got {self.rho}")

    @property
    def needs(self) -> Needs:
        """Steps without another momentum."""
        return Needs(plain_sgd="it is the momentum of plain SGD's steps; an optimizer has its own" if self.rho else "")

    def begin(self, sent: None, kept: None, start: Start) -> Vector:
        """A fresh buffer: nothing of it outlives the round."""
        return torch.zeros_like(start.w0)

    def correct(self, grad: Vector, state: Vector, step: Step) -> Vector:
        """Accumulate, and go along the sum."""
        return grad if self.rho == 0 else grad.copy_(state.mul_(self.rho).add_(grad))
