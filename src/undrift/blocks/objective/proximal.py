"""FedProx's pull towards the received model."""

from dataclasses import dataclass

from undrift.core import Objective, Step, Vector
from undrift.util.naming.ranges import NonNegative


@dataclass(frozen=True)
class Proximal(Objective):
    """client:  loss <- loss + mu/2 ||w - w0||^2

    Args:
        mu: strength of the pull; 0 switches it off.
    """

    vectorises = True

    mu: NonNegative = 0.01

    def adjust(self, grad: Vector, state: None, step: Step) -> Vector:
        """Add mu (w - w0)."""
        return step.pull(grad, self.mu) if self.mu else grad
