"""SOAP on the clients: Adam in the eigenbases of Shampoo's factors."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.local_optimizer.moments import Held, WithMoments
from undrift.core import Array, Layout, Step, Vector
from undrift.core.model.flat_model import double
from undrift.util.naming.ranges import Count, Epsilon, Fraction

Squares = list[list[tuple[int, Tensor]]]
"""For every tensor its axes with a square matrix each."""


class SoapMoments(NamedTuple):
    """The mean gradient, the mean square in the bases, the sums of their weights, the steps, factors and bases.

    Factors and bases are the square matrices of all axes that have one, in a row; empty before the first gradient.
    """

    m: Vector
    v: Vector
    m_weight: float
    v_weight: float
    steps: int
    factors: Array
    bases: Array


def preconditioned(layout: Layout, largest: int) -> Iterator[list[int]]:
    """For every tensor the axes that have a factor: of tensors with several, those with 2 to `largest` elements.

    Args:
        layout: the tensors.
        largest: the longest axis with a factor.
    """
    for shape in layout.shapes:
        yield [axis for axis, n in enumerate(shape) if len(shape) > 1 and 1 < n <= largest]


def factors_length(layout: Layout, largest: int) -> int:
    """How many numbers the factors of a model have.

    Example:
        >>> factors_length(Layout(("weight", "bias"), ((3, 5), (3,))), 10)
        34
    """
    axes = zip(layout.shapes, preconditioned(layout, largest), strict=True)
    return sum(shape[axis] ** 2 for shape, chosen in axes for axis in chosen)


def squares(flat: Array, layout: Layout, largest: int) -> Squares:
    """Factors or bases as square matrices, views of the array that has them in a row.

    Args:
        flat: the array.
        layout: the tensors.
        largest: the longest axis with a factor.
    """
    out, place = Squares(), 0
    for shape, chosen in zip(layout.shapes, preconditioned(layout, largest), strict=True):
        out.append([])
        for axis in chosen:
            n = shape[axis]
            out[-1].append((axis, flat[place : place + n * n].view(n, n)))
            place += n * n
    return out


def turn(v: Vector, layout: Layout, bases: Squares, *, back: bool = False) -> Vector:
    """A vector whose tensors are written in their bases, or written in those of the model again.

    Args:
        v: the vector.
        layout: its tensors.
        bases: an orthonormal basis for each axis that has one, in columns.
        back: from the bases to the model.
    """
    out = v.clone()
    for target, own in zip(layout.split(out), bases, strict=True):
        x: Tensor = target
        for axis, q in own:
            x = (x.movedim(axis, -1) @ (q.T if back else q)).movedim(-1, axis)
        if own:
            target.copy_(x)
    return out


def eigenbases(factors: Array, layout: Layout, largest: int) -> Array:
    """The eigenvectors of every factor, those of large eigenvalues first; computed in double precision.

    Args:
        factors: in a row.
        layout: the tensors.
        largest: the longest axis with a factor.
    """
    out = torch.empty_like(factors)
    pairs = zip(squares(out, layout, largest), squares(factors, layout, largest), strict=True)
    for target, source in pairs:
        for (_, q), (_, factor) in zip(target, source, strict=True):
            q.copy_(torch.linalg.eigh(double(factor)).eigenvectors.flip(1))
    return out


@dataclass(frozen=True)
class LocalSOAP(WithMoments[SoapMoments]):
    """client:  Q_a^T: from the model into the bases Q_a of a tensor's axes a; L_a the factors
             m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) (Q^T g)^2
             w <- w - lr Q [(Q^T m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)], t steps so far
             L_a <- beta2 L_a + (1 - beta2) G_a G_a^T, G_a the gradient with axis a as rows and all others as columns
             every `frequency` steps  Q_a <- the orthonormal factor of L_a Q_a, columns and v sorted by Q_a^T L_a Q_a

    The first gradient gives the first factors, Q_a their eigenvectors, and moves nothing. Tensors with one axis, and
    axes longer than `largest`, have no factor: their Q is the identity, which is Adam. Weight decay is decoupled.

    Args:
        beta1: memory of the gradient.
        beta2: memory of the squares and of the factors.
        eps: what keeps the root away from zero.
        moments: "reset" or "keep": all of it begins anew with a round, or stays with the client.
        frequency: steps from one change of the bases to the next.
        largest: longest axis with a factor; 1 gives LocalAdamW.
    """

    beta1: Fraction = 0.95
    beta2: Fraction = 0.95
    eps: Epsilon = 1e-8
    moments: str = "reset"
    frequency: Count = 10
    largest: Count = 10_000

    decoupled = True

    def __post_init__(self) -> None:
        if self.moments == "average":
            raise ValueError(
                'LocalSOAP: moments must be "reset" or "keep": a mean of squares in different bases is none; '
                "MixedSOAP(gamma=0) averages the factors"
            )
        super().__post_init__()

    def zero(self, w: Vector) -> SoapMoments:
        """No gradient yet."""
        return SoapMoments(torch.zeros_like(w), torch.zeros_like(w), 0.0, 0.0, 0, w.new_empty(0), w.new_empty(0))

    def adjust(self, grad: Vector, state: Held[SoapMoments], step: Step) -> Vector:
        """Adam's direction in the bases, in those of the model."""
        layout, now = step.layout, state.moments
        length = factors_length(layout, self.largest)
        if len(now.bases) < length:
            factors = grad.new_zeros(length)
            self._learn(factors, grad, layout)
            state.moments = now._replace(factors=factors, bases=eigenbases(factors, layout, self.largest))
            return torch.zeros_like(grad)
        bases = squares(now.bases, layout, self.largest)
        turned = turn(grad, layout, bases)
        m = now.m.mul_(self.beta1).add_(grad, alpha=1 - self.beta1)
        v = now.v.mul_(self.beta2).addcmul_(turned, turned, value=1 - self.beta2)
        m_weight = self.beta1 * now.m_weight + (1 - self.beta1)
        v_weight = self.beta2 * now.v_weight + (1 - self.beta2)
        inside = (turn(m, layout, bases) / m_weight).div_((v.sqrt() / sqrt(v_weight)).add_(self.eps))
        out = turn(inside, layout, bases, back=True)
        self._learn(now.factors, grad, layout)
        count = now.steps + 1
        if count % self.frequency == 0:
            self._follow(now.factors, now.bases, v, layout)
        state.moments = SoapMoments(m, v, m_weight, v_weight, count, now.factors, now.bases)
        return out

    def _learn(self, factors: Array, grad: Vector, layout: Layout) -> None:
        """Add a gradient to the factors."""
        for x, own in zip(layout.split(grad), squares(factors, layout, self.largest), strict=True):
            for axis, factor in own:
                rows = x.movedim(axis, 0).flatten(1)
                factor.addmm_(rows, rows.T, beta=self.beta2, alpha=1 - self.beta2)

    def _follow(self, factors: Array, bases: Array, v: Vector, layout: Layout) -> None:
        """One step of orthogonal iteration of all bases, and the squares in the order of their columns."""
        pairs = zip(squares(factors, layout, self.largest), squares(bases, layout, self.largest), strict=True)
        for square, (known, own) in zip(layout.split(v), pairs, strict=True):
            for (axis, factor), (_, q) in zip(known, own, strict=True):
                exact = double(q)
                grown = double(factor) @ exact
                order = (exact * grown).sum(dim=0).argsort(descending=True, stable=True)
                square.copy_(square.index_select(axis, order.to(square.device)))
                q.copy_(torch.linalg.qr(grown[:, order]).Q)
