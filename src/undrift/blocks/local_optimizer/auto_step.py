"""Delta-SGD's steps: as long as the local smoothness of the loss allows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.core import LocalOptimizer, Start, Step, Vector
from undrift.util.naming.ranges import AboveZero, NonNegative


@dataclass(eq=False)
class _Last:
    """The point, the rate and the growth of the last step."""

    w: Vector
    rate: Tensor
    growth: Tensor


@dataclass(frozen=True)
class AutoStep(LocalOptimizer[None, None, None, None, _Last]):
    """client:  w <- w - eta_k g;   eta_0 = lr,  growth_0 = 1,
             eta_k = min(gamma ||w_k - w_{k-1}|| / (2 ||g(w_k) - g(w_{k-1})||), sqrt(1 + delta growth_{k-1}) eta_{k-1})
             growth_k = eta_k / eta_{k-1}

    Both g of eta_k are gradients of the data loss on the batch of step k.

    Args:
        gamma: factor on the inverse of the local smoothness; infinity trusts growth alone.
        delta: how fast the rate may grow; 0 never lets it.
    """

    gradients = 2  # the two gradients of a rate

    gamma: AboveZero = 2.0
    delta: NonNegative = 0.1

    def begin(self, sent: None, kept: None, start: Start) -> _Last:
        """The first rate is that of the round."""
        one = start.w0.new_ones(())
        return _Last(start.w0.clone(), one * start.lr, one)

    def adjust(self, grad: Vector, state: _Last, step: Step) -> Vector:
        """The gradient, times the rate by that of the round."""
        if step.step:
            moved = torch.linalg.vector_norm(step.w - state.w)
            turned = step.gradient_at(step.w, step.batch) - step.gradient_at(state.w, step.batch)
            smooth = (self.gamma / 2 * moved / torch.linalg.vector_norm(turned)).nan_to_num(nan=torch.inf)
            rate = torch.minimum(smooth, (1 + self.delta * state.growth).sqrt() * state.rate)
            state.growth, state.rate = rate / state.rate, rate
        state.w.copy_(step.w)
        return grad.mul_(state.rate / step.lr)
