"""pFedMe: the gradient of the Moreau envelope, whose proximal point is the client's own model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.spectral.filters import Filters
from undrift.core import End, Layout, Perturbation, Start, Step, Vector
from undrift.util.naming.ranges import Count, Positive


class Point(NamedTuple):
    """A client's proximal point, for evaluation only."""

    theta: Vector


@dataclass(eq=False)
class _Inner:
    """The proximal point as it moves, carried over from step to step."""

    theta: Vector


@dataclass(frozen=True)
class Moreau(Perturbation[None, Point, None, None, _Inner]):
    """client:  theta = w0;   each step, K times on one batch:  theta <- theta - lr (g(theta) + lam (theta - w))
             then g <- lam (w - theta), the gradient of the envelope

    Args:
        lam: stiffness of the envelope, positive; large keeps theta near w.
        inner: K, how many inner steps.
        lr: their rate, below 2 / (lam + the curvature).
    """

    personalizes = True

    lam: Positive = 15.0
    inner: Count = 5
    lr: Positive = 0.09

    def refuses(self, others: Mapping[str, object]) -> str:
        """A filter of the offset, which is the proximal point and no direction of ascent."""
        filters = others["spectral"]
        if not isinstance(filters, Filters) or filters.perturbation is None:
            return ""
        return f"has a proximal point and no perturbation to filter; write gradient:{filters.perturbation!r}"

    @property
    def gradients(self) -> int:
        """All inner steps but the last."""
        return self.inner - 1

    def init_client(self, w: Vector) -> Point:
        """The first model received."""
        return Point(w)

    def begin(self, sent: None, kept: Point, start: Start) -> _Inner:
        """Every round starts from the received model."""
        return _Inner(start.w0.clone())

    def perturb(self, state: _Inner, step: Step) -> Vector:
        """All inner steps but the last, for which the loop takes the gradient."""
        for _ in range(self.inner - 1):
            self._move(step.gradient(state.theta - step.w), state, step)
        return state.theta - step.w

    def adjust(self, grad: Vector, state: _Inner, step: Step) -> Vector:
        """The last inner step, then the gradient of the envelope."""
        self._move(grad, state, step)
        return self.lam * (step.w - state.theta)

    def finish(self, state: _Inner, end: End) -> tuple[None, Point]:
        """Keep the proximal point."""
        return None, Point(state.theta)

    def personal(self, params: Vector, kept: Point, layout: Layout) -> Vector:
        """Evaluate the proximal point."""
        return kept.theta

    def _move(self, grad: Vector, state: _Inner, step: Step) -> None:
        """One inner step."""
        state.theta.sub_(grad.add_(state.theta - step.w, alpha=self.lam), alpha=self.lr)
