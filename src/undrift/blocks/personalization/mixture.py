"""APFL: a mixture of the client's own model and the global one."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from undrift.blocks.personalization.ditto import gradient
from undrift.core.block import Personalization
from undrift.core.types import Run
from undrift.core.vector import Layout, Vector


class Mixed(NamedTuple):
    """A client's own model and its share in the mixture."""

    v: Vector
    alpha: float


@dataclass(eq=False)
class _Mixing:
    """The same while it is trained, and the batch of the first step."""

    v: Vector
    alpha: float
    batch: Any = None


@dataclass(frozen=True)
class Mixture(Personalization):
    """client:  v <- v - lr alpha g(alpha v + (1 - alpha) w), w before its step;   the global model as without it
    adaptive, after the first step:  alpha <- alpha - lr <v - w, g(alpha v + (1 - alpha) w)>, cut to [0, 1]

    Args:
        alpha: share of the client's own model, at the start if adaptive; 0 is the global model, 1 trains v alone.
        adaptive: whether alpha is learned.
    """

    Client = Mixed

    alpha: float = 0.5
    adaptive: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"Mixture: alpha must be in [0, 1], got {self.alpha}")

    @property
    def gradients(self) -> int:
        """One more, at the mixture, unless v has no share in it."""
        return int(self.alpha > 0 or self.adaptive)

    def init_client(self, w: Vector) -> Mixed:
        """The first model received."""
        return Mixed(w, float(self.alpha))

    def begin(self, sent: None, kept: Mixed, run: Run) -> _Mixing:
        """A copy to train."""
        return _Mixing(kept.v.clone(), kept.alpha)

    def step(self, grad: Vector, local: _Mixing, run: Run) -> None:
        """A step of v; of alpha once the first step of both models is done."""
        if run.step == 1:
            self._adapt(local, run)
        if run.step == 0:
            local.batch = run.batch
        if local.alpha > 0:
            slope = gradient(torch.lerp(run.w, local.v, local.alpha), run.batch, run)
            local.v.sub_(slope, alpha=run.lr * local.alpha)

    def finish(self, local: _Mixing, run: Run) -> tuple[None, Mixed]:
        """Keep v and alpha."""
        if run.steps == 1:
            self._adapt(local, run)
        return None, Mixed(local.v, local.alpha)

    def personal(self, params: Vector, kept: Mixed, layout: Layout) -> Vector:
        """Evaluate the mixture with the latest global model."""
        return torch.lerp(params, kept.v, kept.alpha)

    def _adapt(self, local: _Mixing, run: Run) -> None:
        """A step of alpha on the batch of the first step."""
        if self.adaptive:
            slope = gradient(torch.lerp(run.w, local.v, local.alpha), local.batch, run)
            moved = local.alpha - run.lr * float(torch.dot(local.v - run.w, slope))
            local.alpha = min(max(moved, 0.0), 1.0)
