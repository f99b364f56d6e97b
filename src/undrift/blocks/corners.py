"""Fixed classifiers: the corners of a regular simplex, and sparse ones."""

from functools import lru_cache

import torch
from torch import Tensor


def corners(classes: int, dimension: int, seed: int = 0) -> Tensor:
    """The corners of a regular simplex around zero, one column of length one per class, in double precision.

        V = sqrt(C / (C - 1)) U (I - 1 1^T / C),   U^T U = I

    so that V^T V is 1 on the diagonal and -1 / (C - 1) off it, the smallest cosine that C directions can share.

    Args:
        classes: C, 2 or more.
        dimension: of the space, C or more.
        seed: of the Gaussian matrix whose QR factor is U. The signs that a QR leaves open are those of a positive
            diagonal of R, so that every machine has the same corners, up to rounding.

    Example:
        >>> v = corners(3, 5)
        >>> (v.T @ v).round(decimals=6)[0]
        tensor([ 1.0000, -0.5000, -0.5000], dtype=torch.float64)
    """
    if classes < 2:
        raise ValueError(f"corners: a simplex needs 2 classes or more, got {classes}")
    if dimension < classes:
        raise ValueError(f"corners: dimension must be at least the {classes} classes, got {dimension}")
    draw = torch.Generator().manual_seed(seed)
    gaussian = torch.randn(dimension, classes, generator=draw, dtype=torch.float64, device="cpu")
    u, r = torch.linalg.qr(gaussian)
    u = u * r.diagonal().sign()
    fixed: Tensor = (u - u.mean(dim=1, keepdim=True)) * (classes / (classes - 1)) ** 0.5
    return fixed


STEPS, RATE = 1000, 0.25
"""Gradient steps that bring sparse corners apart."""


@lru_cache(maxsize=16)
def sparse_corners(classes: int, dimension: int, sparsity: float = 0.6, seed: int = 0) -> Tensor:
    """Nearly the corners of a regular simplex, most of whose entries are zero; columns of length one, double precision.

    Entries drawn at random are zero in `corners`; steps along the gradient of ||V^T V - S||^2 / 4, S the products of
    the corners, then change the others. With enough of them left, all cosines are within 0.005 of -1 / (C - 1).

    Args:
        classes: C, 2 or more.
        dimension: of the space, C or more.
        sparsity: the share of the entries that are zero, in [0, 1).
        seed: of the corners, and of the choice of the entries.

    Example:
        >>> v = sparse_corners(10, 84)
        >>> int((v == 0).sum()), (v.T @ v).round(decimals=2)[0, :3].tolist()
        (504, [1.0, -0.11, -0.11])
    """
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparse_corners: sparsity must be in [0, 1), got {sparsity}")
    v = corners(classes, dimension, seed)
    draw = torch.Generator().manual_seed(seed)
    kept = torch.ones(v.numel(), dtype=v.dtype)
    kept[torch.randperm(v.numel(), generator=draw, device="cpu")[: int(sparsity * v.numel())]] = 0
    kept = kept.view_as(v)
    if not bool(kept.any(dim=0).all()):
        raise ValueError(
            f"sparse_corners: of {dimension} entries of each class, {sparsity:.0%} zeros leave none to some class; "
            "lower sparsity, or widen the features"
        )
    apart = v.T @ v
    v = v * kept
    v = v / v.norm(dim=0)
    for _ in range(STEPS if sparsity else 0):
        v = v - RATE * kept * (v @ (v.T @ v - apart))
    found: Tensor = v / v.norm(dim=0)
    return found
