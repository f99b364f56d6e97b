"""A learning rate that falls inside a round."""

from dataclasses import dataclass

from undrift.core import LocalOptimizer, Step, Vector
from undrift.util.naming.ranges import Share


@dataclass(frozen=True)
class FallingRate(LocalOptimizer):
    """client:  w <- w - lr (1 - (1 - rho) k/K) g at step k = 0, 1, ... of K

    `Local.step_schedule` is a setting of all methods; this is a part of one.

    Args:
        rho: the share of the rate towards which it falls; 1 gives plain SGD, bit for bit.
    """

    rho: Share = 0.1

    @property
    def plain(self) -> bool:
        """Whether the rate does not fall."""
        return self.rho == 1

    def adjust(self, grad: Vector, state: None, step: Step) -> Vector:
        """The gradient, shortened as the rate falls."""
        return grad if self.plain else grad.mul_(1 - (1 - self.rho) * step.step / step.steps)
