"""Muon on the clients."""

from dataclasses import dataclass
from math import sqrt
from typing import Annotated

import torch
from torch import Tensor

from undrift.blocks.local_optimizer.adam import AdamMoments, LocalAdamW
from undrift.blocks.local_optimizer.moments import Held
from undrift.core import Step, Vector
from undrift.util.naming.ranges import Fraction, Range

POLYNOMIAL = (3.4445, -4.7750, 2.0315)
"""Jordan's coefficients of s <- a s + b s^3 + c s^5 for the singular values."""

RMS = 0.2
"""The root mean square of AdamW's usual updates, which a matrix's update is scaled to."""


@dataclass(frozen=True)
class LocalMuon(LocalAdamW):
    """client:  m <- beta1 m + (1 - beta1) g;   M = (1 - beta1) g + beta1 m of each matrix, A x B
             W <- W - lr 0.2 sqrt(max(A, B)) O,   O: M with its singular values driven towards 1 (Newton-Schulz)
             all other tensors as LocalAdamW, from the same m; weight decay decoupled

    As `torch.optim.Muon` (Jordan, 2024) with Nesterov's momentum and the scale that matches AdamW's updates (Liu et
    al., 2025), so that one learning rate suits matrices and the rest; in float32 where torch's takes bfloat16. A matrix
    is a tensor with two or more axes that is more than one row or column; a kernel of a convolution is a row.

    Args:
        beta1: memory of the gradient, 0.95 in Muon.
        beta2: memory of the squares, of tensors that are not matrices.
        eps: what keeps their root away from zero.
        moments: "reset", "keep" or "average": m, v and t are zero when a round begins, stay with the client, or are the
            means of what the last cohort uploaded.
        iterations: steps of Newton-Schulz.
    """

    beta1: Fraction = 0.95
    beta2: Fraction = 0.95
    iterations: Annotated[int, Range("1 to 99", lambda x: 1 <= x < 100, "; 5 is the usual number")] = 5

    def adjust(self, grad: Vector, state: Held[AdamMoments], step: Step) -> Vector:
        """AdamW's direction, with those of the matrices replaced."""
        out = super().adjust(grad, state, step)
        ahead = grad.lerp(state.moments.m, self.beta1)
        for target, source in zip(step.layout.split(out), step.layout.split(ahead), strict=True):
            if is_matrix(source):
                matrix = source.flatten(1)
                scale = RMS * sqrt(max(matrix.shape))
                target.copy_(orthogonal(matrix, self.iterations).mul_(scale).view_as(target))
        return out


def is_matrix(tensor: Tensor) -> bool:
    """Whether a tensor has two or more axes and is more than one row or column; a kernel of a convolution is a row."""
    return tensor.dim() > 1 and min(tensor.flatten(1).shape) > 1


def orthogonal(matrix: Tensor, iterations: int) -> Tensor:
    """A matrix with the same singular vectors and singular values near 1, by a polynomial that is iterated.

    Example:
        >>> torch.linalg.svdvals(orthogonal(torch.tensor([[3.0, 0.0], [0.0, 0.2]]), 5))
        tensor([1.1265, 0.6988])
    """
    a, b, c = POLYNOMIAL
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / torch.linalg.vector_norm(x).clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T.clone() if tall else x
