"""Momentum of a client's own steps."""

from dataclasses import dataclass

import torch

from undrift.core.block import Correction
from undrift.core.types import Run
from undrift.core.vector import Vector


@dataclass(frozen=True)
class LocalMomentum(Correction):
    """client:  b <- rho b + g;   g <- b;   b is zero when a round begins

    Steps grow up to 1 / (1 - rho) times as long. Blocks that read slopes, such as `Scaffold`, then take a variate
    that is as much too large: do not use them together.

    Args:
        rho: the momentum; 0 switches it off.
    """

    rho: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.rho < 1:
            raise ValueError(f"LocalMomentum: rho must be in [0, 1), got {self.rho}")

    def begin(self, sent: None, kept: None, run: Run) -> Vector:
        """A fresh buffer: nothing of it outlives the round."""
        return torch.zeros_like(run.w0)

    def correct(self, grad: Vector, local: Vector, run: Run) -> Vector:
        """Accumulate, and go along the sum."""
        return grad if self.rho == 0 else grad.copy_(local.mul_(self.rho).add_(grad))
