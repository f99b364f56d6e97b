"""APFL: a mixture of the client's own model and the global one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from undrift.blocks.personalization.ditto import gradient, without_penalty
from undrift.core import End, Layout, Needs, Personalization, Start, Step, Vector
from undrift.util.naming.ranges import Share


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
class Mixture(Personalization[None, Mixed, None, None, _Mixing]):
    """client:  v <- v - lr alpha g(alpha v + (1 - alpha) w), w before its step;   the global model as without it
    adaptive, after the first step:  alpha <- alpha - lr <v - w, g(alpha v + (1 - alpha) w)>, cut to [0, 1]

    Args:
        alpha: share of the client's own model, at the start if adaptive; 0 is the global model, 1 trains v alone.
        adaptive: whether alpha is learned.
    """

    personalizes = True

    alpha: Share = 0.5
    adaptive: bool = False

    @property
    def needs(self) -> Needs:
        """A rate that fits SGD, if v is trained."""
        return Needs(plain_sgd="v and alpha take SGD steps with the rate of the global model" if self.gradients else "")

    def refuses(self, others: Mapping[str, object]) -> str:
        """A term of the loss that v would not have, if v is trained."""
        return without_penalty(others["objective"], "v") if self.gradients else ""

    @property
    def gradients(self) -> int:
        """One more, at the mixture, unless v has no share in it."""
        return int(self.alpha > 0 or self.adaptive)

    def init_client(self, w: Vector) -> Mixed:
        """The first model received."""
        return Mixed(w, float(self.alpha))

    def begin(self, sent: None, kept: Mixed, start: Start) -> _Mixing:
        """A copy to train."""
        return _Mixing(kept.v.clone(), kept.alpha)

    def adjust(self, grad: Vector, state: _Mixing, step: Step) -> Vector:
        """A step of v, and of alpha once the first step of both models is done; the global model's direction stays."""
        if step.step == 1:
            self._adapt(state, step)
        if step.step == 0:
            state.batch = step.batch
        if state.alpha > 0:
            slope = gradient(torch.lerp(step.w, state.v, state.alpha), step.batch, step)
            state.v.sub_(slope, alpha=step.lr * state.alpha)
        return grad

    def finish(self, state: _Mixing, end: End) -> tuple[None, Mixed]:
        """Keep v and alpha."""
        if end.steps == 1:
            self._adapt(state, end)
        return None, Mixed(state.v, state.alpha)

    def personal(self, params: Vector, kept: Mixed, layout: Layout) -> Vector:
        """Evaluate the mixture with the latest global model."""
        return torch.lerp(params, kept.v, kept.alpha)

    def _adapt(self, state: _Mixing, view: Step | End) -> None:
        """A step of alpha on the batch of the first step."""
        if self.adaptive:
            slope = gradient(torch.lerp(view.w, state.v, state.alpha), state.batch, view)
            moved = state.alpha - view.lr * float(torch.dot(state.v - view.w, slope))
            state.alpha = min(max(moved, 0.0), 1.0)
