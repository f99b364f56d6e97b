"""A pull towards a client's own last model."""

from dataclasses import dataclass
from typing import NamedTuple

from undrift.core import End, Objective, Step, Vector


class Last(NamedTuple):
    """The model a client ended with when it last trained."""

    w: Vector


@dataclass(frozen=True)
class Memory(Objective[None, Last]):
    """client:  g <- g + mu (w - v_i);   at the end v_i <- w

    Args:
        mu: strength of the pull; 0 switches it off.
    """  # noqa: D415  a block's docstring is its mathematics

    mu: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ValueError(f"Memory: mu must be 0 or more and finite, got {self.mu}")

    def init_client(self, w: Vector) -> Last:
        """The first model the client received."""
        return Last(w.clone())

    def adjust(self, grad: Vector, state: Last, step: Step) -> Vector:
        """The gradient of mu/2 ||w - v_i||^2."""
        return grad.add_(step.w - state.w, alpha=self.mu)

    def finish(self, state: Last, end: End) -> tuple[None, Last]:
        """Keep the trained model."""
        return None, Last(end.w.clone())
