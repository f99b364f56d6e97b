"""Whitening by the inputs of a layer, with matrices that are summed example by example and inverted."""

import torch
from torch import Tensor


def written_out(grad: Tensor, inputs: Tensor, share: float, size: int = 0) -> Tensor:
    """G P (I + A / (share tr A))^-1, A the mean of P x x^T P; P removes the mean of every `size` neighbours, if any."""
    width = inputs.shape[1]
    projection = torch.eye(width, dtype=torch.float64)
    if size:
        same = torch.arange(width)[:, None] // size == torch.arange(width) // size
        projection -= same.double() / size
    second = torch.zeros(width, width, dtype=torch.float64)
    for x in inputs @ projection:
        second += torch.outer(x, x) / len(inputs)
    out: Tensor = grad @ projection @ torch.linalg.inv(torch.eye(width) + second / (share * second.trace()))
    return out
