"""FedMuon with control variates: every step is a polar factor of the corrected momentum."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from undrift.blocks.drift.scaffold import Variate
from undrift.blocks.local_optimizer.muon import is_matrix, orthogonal
from undrift.core import End, Layout, LocalOptimizer, ServerView, Start, Step, Vector, unit
from undrift.util.naming.ranges import PositiveShare, Range


class _Momentum(NamedTuple):
    """The momentum as it changes, the client's variate, and the global one minus it."""

    m: Vector
    c_i: Vector
    difference: Vector


def polar(matrix: Tensor, iterations: int) -> Tensor:
    """The nearest matrix with orthonormal rows or columns; zero for zero.

    Args:
        matrix: the matrix.
        iterations: steps of Newton-Schulz, which is near it; 0 computes it exactly.

    Example:
        >>> polar(torch.tensor([[3.0, 0.0], [0.0, 0.2]]), 0)
        tensor([[1., 0.],
                [0., 1.]])
    """
    if iterations:
        return orthogonal(matrix, iterations)
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    factor: Tensor = u @ v * matrix.any()
    return factor


def polar_factors(v: Vector, layout: Layout, iterations: int) -> Vector:
    """Every tensor's polar factor, a kernel of a convolution as a row; one of a single row or axis has unit length.

    Args:
        v: the vector.
        layout: its tensors.
        iterations: see `polar`.
    """
    out = torch.empty_like(v)
    for target, source in zip(layout.split(out), layout.split(v), strict=True):
        if is_matrix(source):
            target.copy_(polar(source.flatten(1), iterations).view_as(target))
        else:
            target.copy_(unit(source.reshape(-1)).view_as(target))
    return out


@dataclass(frozen=True)
class CorrectedMuon(LocalOptimizer[Variate, Variate, Variate, Variate, _Momentum]):
    """client:  m <- (1 - a) m + a g;   w <- w - lr P(m - c_i + c), P each tensor's polar factor
             m begins as c_i, which was the client's last m;   at the end c_i <- m
    server:  c <- c + 1/N sum_i (new c_i - old c_i);   w <- w + 1/N sum_i delta_i

    The server's step is 1/N for each client of the cohort, not 1/m.

    Args:
        a: share of the gradient in the momentum; 1 has no memory.
        iterations: steps of Newton-Schulz for the polar factors of matrices; 0 computes them exactly.
    """

    a: PositiveShare = 0.9
    iterations: Annotated[int, Range("0 to 99", lambda x: 0 <= x < 100)] = 5

    def begin(self, sent: Variate, kept: Variate, start: Start) -> _Momentum:
        """The momentum of the client's last round."""
        return _Momentum(kept.c.clone(), kept.c, sent.c - kept.c)

    def adjust(self, grad: Vector, state: _Momentum, step: Step) -> Vector:
        """The polar factors of the corrected momentum."""
        return polar_factors(state.m.lerp_(grad, self.a) + state.difference, step.layout, self.iterations)

    def finish(self, state: _Momentum, end: End) -> tuple[Variate, Variate]:
        """The momentum is the new variate; its change travels."""
        return Variate(state.m - state.c_i), Variate(state.m)

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """The mean over all clients, of which those that are absent do not move."""
        return delta * (view.cohort / view.population), Variate(view.state.c + up.c / view.population)
