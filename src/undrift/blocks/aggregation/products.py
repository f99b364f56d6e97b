"""Rules that see every client's factors: LoRA-FAIR corrects B, FlexLoRA decomposes the mean product."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import torch
from torch import Tensor

from undrift.blocks.aggregation.rows import mean
from undrift.blocks.personalization.factors import check_shared, needs_both_factors, overlaps, remembers_directions
from undrift.core import Average, End, Gathering, Needs, ServerView, Upload, Vector
from undrift.core.model.pairs import Pair, find_pairs, truncate, write_pairs
from undrift.util.naming.ranges import Range

Matrices = tuple[Tensor, Tensor]
"""B and A."""


@dataclass(frozen=True)
class _OfProducts(Gathering):
    """The mean by examples, in which the factors of every adapter are other ones."""

    needs = Needs(model="adapted")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Factors that are not both shared and trained, and uploads that start from several models."""
        return needs_both_factors(others) or overlaps(others, "adds up products of the factors")

    def finish(self, state: None, end: End) -> tuple[None, None]:
        """Nothing, if both factors are shared."""
        check_shared(end)
        return None, None

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples."""
        return float(upload.examples)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """The mean, with other factors."""
        counts = [float(upload.examples) for upload in uploads]
        shares = [count / sum(counts) for count in counts]
        out, layout, values = mean(uploads, counts), view.layout, dict[int, Tensor]()
        starts, means = layout.split(view.w0), layout.split(out)
        moves = [layout.split(upload.delta) for upload in uploads]
        for pair in find_pairs(layout):
            b0, a0 = _double(pair, starts)
            each = [_double(pair, tensors) for tensors in moves]
            x = torch.cat([sqrt(p) * (b0 + b) for p, (b, _) in zip(shares, each, strict=True)], dim=1)
            y = torch.cat([sqrt(p) * (a0 + a) for p, (_, a) in zip(shares, each, strict=True)])
            db, da = _double(pair, means)
            b, a = self.factors(pair, (x, y), (b0 + db, a0 + da))
            values |= {pair.b: b - b0, pair.a: a - a0}
        return write_pairs(layout, out, values), view.state

    @abstractmethod
    def factors(self, pair: Pair, stacked: Matrices, averaged: Matrices) -> Matrices:
        """The new factors of an adapter.

        Args:
            pair: the adapter.
            stacked: all clients' factors side by side, whose product is sum_i p_i B_i A_i.
            averaged: the means of the factors.
        """


def _double(pair: Pair, tensors: list[Tensor]) -> Matrices:
    """The factors of a pair in double precision."""
    b, a = pair.factors(tensors)
    return b.double(), a.double()


@dataclass(frozen=True)
class CorrectedFactor(_OfProducts):
    """server:  A = sum_i p_i A_i,  E = sum_i p_i B_i A_i - B A;   B <- sum_i p_i B_i + E A^T (A A^T + lam I)^-1

    Args:
        lam: strength of the ridge; a large one leaves the means of the factors.
    """

    lam: Annotated[float, Range("positive, inf for no correction", lambda x: x > 0)] = 0.01

    def factors(self, pair: Pair, stacked: Matrices, averaged: Matrices) -> Matrices:
        """The ridge solution, from matrices as small as the ranks."""
        (x, y), (b, a) = stacked, averaged
        if self.lam == float("inf"):
            return b, a
        missing = x @ (y @ a.T) - b @ (a @ a.T)
        ridge = a @ a.T + self.lam * torch.eye(len(a), dtype=a.dtype, device=a.device)
        return b + torch.linalg.solve(ridge, missing.T).T, a


@dataclass(frozen=True)
class LargestSingular(_OfProducts):
    """server:  sum_i p_i B_i A_i = U S V^T, largest first;   B <- U_r S_r,  A <- V_r^T, r the rank of the adapter

    The factor that starts at zero takes S: A in an embedding.
    """

    def refuses(self, others: Mapping[str, object]) -> str:
        """Directions remembered in coordinates that change."""
        why = "gives the factors other coordinates"
        if others["server_optimizer"] != Average():
            return f"{why}, and server_optimizer={others['server_optimizer']!r} moves them; leave it out"
        return super().refuses(others) or remembers_directions(others, why)

    def factors(self, pair: Pair, stacked: Matrices, averaged: Matrices) -> Matrices:
        """The largest singular values and their vectors; the means if the product is zero."""
        b, a = averaged
        if not (stacked[0].any() and stacked[1].any()):
            return b, a
        u, s, v = truncate(*stacked, len(a))
        return (u * s, v) if pair.zero == pair.b else (u, s[:, None] * v)
