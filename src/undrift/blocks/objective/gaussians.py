"""Gaussians with independent coordinates: what an encoder gives, how far two are apart, and their product."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

Gaussian = tuple[Tensor, Tensor]
"""The mean and the standard deviation of every coordinate."""

LEAST = 1e-3
"""The least deviation an encoder gives: no precision is above 1e6, so that sums over many examples stay exact."""


def decode_gaussian(raw: Tensor) -> Gaussian:
    """The Gaussians that an encoder's last layer stands for: the first half of its outputs and softplus of the rest."""
    mean, spread = raw.chunk(2, dim=-1)
    return mean, softplus(spread).clamp(min=LEAST)


def divergence(first: Gaussian, second: Gaussian) -> Tensor:
    """KL(first || second), summed over the last axis."""
    (mean, deviation), (other, spread) = first, second
    ratio, away = deviation / spread, (mean - other) / spread
    return ((ratio.square() + away.square() - 1) / 2 - ratio.log()).sum(dim=-1)


def product(precision: Tensor, weighted: Tensor, unit: float = 1.0) -> Gaussian:
    """The product of experts: precisions add up, and the mean is that of the experts weighted by them.

    Args:
        precision: the sum of the experts' precisions 1/deviation^2.
        weighted: the sum of their means times their precisions.
        unit: the precision of one more expert with mean 0; 0 leaves it out.

    Example:
        >>> [round(float(x), 7) for x in product(torch.tensor(2.0).double(), torch.tensor(4.0))]  # of N(1, 1), N(3, 1)
        [1.3333333, 0.5773503]
    """
    whole = precision + unit
    return weighted / whole, torch.rsqrt(whole)
