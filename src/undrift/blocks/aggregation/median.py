"""Rules that sort every coordinate by itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.aggregation.rows import check_bad, tolerated
from undrift.core.aggregation import Robust
from undrift.core.types import Upload
from undrift.core.vector import Vector


def _ordered(uploads: Sequence[Upload]) -> Tensor:
    """The displacements, one per row, every column sorted."""
    return torch.stack([upload.delta for upload in uploads]).sort(dim=0).values


@dataclass(frozen=True)
class CoordinateMedian(Robust):
    """server:  delta_j = median_i delta_ij; of an even number, the mean of the two in the middle"""

    def combine(self, uploads: Sequence[Upload]) -> Vector:
        """Sort each coordinate."""
        ordered, count = _ordered(uploads), len(uploads)
        return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


@dataclass(frozen=True)
class TrimmedMean(Robust):
    """server:  delta_j = the mean of delta_ij over i, without the f largest and the f smallest

    A cohort of m <= 2f uploads trims (m - 1) // 2 on each side: the median.

    Args:
        f: how many uploads may be bad, a number or a share of the cohort below 1/2; 0 gives Uniform.
    """

    f: float = 0.1

    def __post_init__(self) -> None:
        check_bad("TrimmedMean", self.f)

    def combine(self, uploads: Sequence[Upload]) -> Vector:
        """Sort each coordinate and cut both ends."""
        count = len(uploads)
        cut = tolerated(self.f, count, (count - 1) // 2)
        return _ordered(uploads)[cut : count - cut].mean(dim=0, dtype=torch.float64)
