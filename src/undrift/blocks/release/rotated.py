"""FedRot-LoRA's release: a client turns its factors towards the received ones before they are averaged."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.personalization.factors import check_shared, needs_both_factors, reads_steps
from undrift.core import End, Needs, Release, Vector
from undrift.core.model.pairs import find_pairs, write_pairs
from undrift.util.naming.ranges import Share


@dataclass(frozen=True)
class Rotated(Release):
    """client:  even rounds: U S V^T = A_i A^T;   odd rounds: U S V^T = B_i^T B;   R = U V^T, a rotation
             Q = the rotation nearest to (1 - lam) I + lam R;   A_i <- Q^T A_i;   B_i <- B_i Q

    Rounds count from 0; A and B are the factors as received. The product B_i A_i stays what it is.

    Args:
        lam: how far the factors turn; 0 leaves them alone.
    """

    needs = Needs(model="adapted")

    lam: Share = 0.5

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks that read the displacement as gradient steps, and factors that do not move together."""
        if not self.lam:
            return ""
        return needs_both_factors(others) or reads_steps(others, "turns the factors after training")

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """The displacement to the turned factors."""
        if not self.lam:
            return delta
        check_shared(end)
        ours, theirs = end.layout.split(end.w), end.layout.split(end.w0)
        values = dict[int, Tensor]()
        for pair in find_pairs(end.layout):
            (b, a), (b0, a0) = pair.factors(ours), pair.factors(theirs)
            first = (end.round % 2 == 0) == (pair.zero == pair.b)  # the factor that starts at random comes first
            q = rotation(a.double() @ a0.double().T if first else b.double().T @ b0.double(), self.lam).to(a)
            values |= {pair.a: q.T @ a - a0, pair.b: b @ q - b0}
        return write_pairs(end.layout, delta, values)


def rotation(matrix: Tensor, lam: float) -> Tensor:
    """The rotation towards which a matrix points, of which a share is taken; no rotation if the matrix is zero.

    Args:
        matrix: square, the product of a client's factor and the received one.
        lam: the share, 1 for all of it.
    """
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    if not matrix.any():
        return eye
    soft = (1 - lam) * eye + lam * _polar(matrix)
    return _polar(soft)


def _polar(matrix: Tensor) -> Tensor:
    """The rotation nearest to a matrix."""
    u: Tensor
    v: Tensor
    u, _, v = torch.linalg.svd(matrix)
    if torch.linalg.det(u @ v) < 0:
        v = torch.cat([v[:-1], -v[-1:]])
    return u @ v
