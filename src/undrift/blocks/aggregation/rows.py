"""What rules that see every upload apart share."""

from collections.abc import Sequence
from math import ceil

import torch
from torch import Tensor

from undrift.core.model.flat_model import SINGLE, Vector, double
from undrift.core.records.types import Upload


def norm(v: Tensor) -> float:
    """The length of a vector, summed in double precision."""
    return float(torch.linalg.vector_norm(double(v) if v.device.type in SINGLE else v, dtype=torch.float64))


def blend(uploads: Sequence[Upload], shares: Sequence[float]) -> Vector:
    """sum_i share_i delta_i, in double precision."""
    total = torch.zeros_like(uploads[0].delta, dtype=torch.float64)
    for upload, share in zip(uploads, shares, strict=True):
        total.add_(upload.delta, alpha=share)
    return total


def mean(uploads: Sequence[Upload], weights: Sequence[float]) -> Vector:
    """sum_i weight_i delta_i / sum_i weight_i, in double precision."""
    return blend(uploads, weights) / sum(weights)


def by_norm(uploads: Sequence[Upload]) -> list[Upload]:
    """The uploads from the shortest to the longest: sums in this order do not depend on the clients' numbers."""
    return sorted(uploads, key=lambda upload: norm(upload.delta))


def check_bad(name: str, f: float) -> None:
    """Refuse an assumed number of bad uploads that is neither a number of uploads nor a share of them."""
    whole = isinstance(f, int) and f >= 0
    if not whole and not (isinstance(f, float) and 0 <= f < 0.5):
        raise ValueError(f"{name}: f must be a whole number of uploads or a share of them in [0, 0.5), got {f}")


def count_tolerated(f: float, count: int, most: int) -> int:
    """How many of `count` uploads a rule takes for bad: f, or the share f of them rounded up, at most `most`."""
    wanted = f if isinstance(f, int) else ceil(f * count - 1e-9)  # 0.1 * 30 is a little more than 3
    return max(0, min(wanted, most))
