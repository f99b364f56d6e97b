"""Local optimizers that begin from what the server knows: mean moments of a cohort, and its mean displacement."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.local_optimizer.adam import AdamMoments, LocalAdamW
from undrift.blocks.local_optimizer.moments import Held
from undrift.blocks.local_optimizer.muon import LocalMuon, is_matrix
from undrift.core import End, Layout, LocalOptimizer, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import Epsilon, Fraction, Positive, Share


class Moment(NamedTuple):
    """A mean moment of the clients, and the sums of the weights in it and in the other one: 1 - beta^t."""

    x: Vector
    m_weight: float
    v_weight: float


class Known(NamedTuple):
    """A mean moment with its weights, and the last round's mean displacement by its rate, uphill."""

    x: Vector
    m_weight: float
    v_weight: float
    d: Vector


class _Begun(NamedTuple):
    """The moments as they change, and the direction that is mixed in."""

    held: Held[AdamMoments]
    d: Vector


def tensor_means(v: Vector, layout: Layout) -> Vector:
    """A vector in which every tensor is constant, with the mean that it had.

    Args:
        v: the vector.
        layout: its tensors.
    """
    return torch.cat([x.mean().expand(x.numel()) for x in layout.split(v)])


@dataclass(frozen=True)
class _Mixed(LocalOptimizer[Known, None, Known, Moment, _Begun]):
    """What both optimizers share: the global direction, and the mean of a moment."""

    decoupled = True

    def receive(self, delta: Vector, up: Moment, view: ServerView[Known]) -> tuple[Vector, Known]:
        """The mean of the moments, and the direction of the round."""
        rate = view.setting.local.rate(view.round)
        x, m_weight, v_weight = up.x / view.cohort, up.m_weight / view.cohort, up.v_weight / view.cohort
        return delta, Known(x, m_weight, v_weight, view.mean / -rate)


@dataclass(frozen=True)
class MixedAdamW(_Mixed):
    """client:  AdamW from m = 0 and the server's v, at the server's count of steps t;   with every step besides
             w <- w - lr gamma d/K, K the client's number of steps
    server:  v <- mean_i v_i, of each tensor or of each element;   d <- -mean_i delta_i / lr;   t <- mean_i t_i

    t is held as the sums of weights 1 - beta^t, see `LocalAdam`. Weight decay is decoupled.

    Args:
        gamma: strength of the global direction; 0 switches it off.
        beta1: memory of the gradient.
        beta2: memory of the squares.
        eps: what keeps the root away from zero.
        means: share one mean of v for each tensor; otherwise all of v.
        convex: multiply AdamW's step by 1 - gamma.
        fresh: count the steps of m from 0 in every round, as m itself; otherwise m is small at first, a warm-up.
    """

    gamma: Share = 0.5
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    eps: Epsilon = 1e-8
    means: bool = True
    convex: bool = False
    fresh: bool = False

    def begin(self, sent: Known, kept: None, start: Start) -> _Begun:
        """The server's squares, and no mean gradient yet."""
        weight = 0.0 if self.fresh else sent.m_weight
        moments = AdamMoments(torch.zeros_like(sent.x), sent.x.clone(), weight, sent.v_weight)
        return _Begun(Held(moments), sent.d)

    def adjust(self, grad: Vector, state: _Begun, step: Step) -> Vector:
        """AdamW's direction and the global one."""
        out = LocalAdamW(self.beta1, self.beta2, self.eps).adjust(grad, state.held, step)
        out = out.mul_(1 - self.gamma) if self.convex else out
        return out.add_(state.d, alpha=self.gamma / step.steps)

    def finish(self, state: _Begun, end: End) -> tuple[Moment, None]:
        """The squares."""
        _, v, m_weight, v_weight = state.held.moments
        return Moment(tensor_means(v, end.layout) if self.means else v, m_weight, v_weight), None


@dataclass(frozen=True)
class MixedMuon(_Mixed):
    """client:  Muon from the server's buffer m, its steps times alpha (1 - gamma);   with every step besides
             w <- w - lr gamma d/K, K the client's number of steps
    server:  m <- mean_i m_i;   d <- -mean_i delta_i / lr

    Muon is `LocalMuon`; tensors that are no matrices take Adam's steps from fresh moments in every round.

    Args:
        gamma: share of the global direction; 0 switches it off.
        alpha: factor on Muon's own steps.
        beta1: memory of the gradient.
        beta2: memory of the squares, of tensors that are not matrices.
        eps: what keeps their root away from zero.
        iterations: steps of Newton-Schulz.
    """

    gamma: Share = 0.5
    alpha: Positive = 1.0
    beta1: Fraction = 0.98
    beta2: Fraction = 0.95
    eps: Epsilon = 1e-8
    iterations: int = 5

    def __post_init__(self) -> None:
        LocalMuon(iterations=self.iterations)

    def begin(self, sent: Known, kept: None, start: Start) -> _Begun:
        """The server's buffer, which is zero but on matrices, and no squares yet."""
        return _Begun(Held(AdamMoments(sent.x.clone(), torch.zeros_like(sent.x), 0.0, 0.0)), sent.d)

    def adjust(self, grad: Vector, state: _Begun, step: Step) -> Vector:
        """Muon's direction and the global one."""
        muon = LocalMuon(self.beta1, self.beta2, self.eps, iterations=self.iterations)
        out = muon.adjust(grad, state.held, step).mul_(self.alpha * (1 - self.gamma))
        return out.add_(state.d, alpha=self.gamma / step.steps)

    def finish(self, state: _Begun, end: End) -> tuple[Moment, None]:
        """The buffer of the matrices: an old mean by fresh squares, elsewhere, would give steps of any length."""
        m, _, m_weight, v_weight = state.held.moments
        kept = [x.reshape(-1) if is_matrix(x) else torch.zeros_like(x).reshape(-1) for x in end.layout.split(m)]
        return Moment(torch.cat(kept), m_weight, v_weight), None
