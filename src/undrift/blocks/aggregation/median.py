"""Rules that sort every coordinate by itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from undrift.blocks.aggregation.rows import check_bad, count_tolerated
from undrift.core import Robust, ServerView, Upload, Vector

_PIECE = 1 << 18  # coordinates at a time: sorting takes four times the memory of what is sorted


def _each(uploads: Sequence[Upload], rule: Callable[[Tensor], Tensor]) -> Vector:
    """A rule for displacements, one per row and every column sorted, applied piece by piece."""
    pieces = zip(*(torch.split(upload.delta, _PIECE) for upload in uploads), strict=True)
    return torch.cat([rule(torch.stack(piece).sort(dim=0).values) for piece in pieces])


def coordinate_median(uploads: Sequence[Upload]) -> Vector:
    """The median of every coordinate; of an even number, the mean of the two in the middle."""
    low, high = (len(uploads) - 1) // 2, len(uploads) // 2
    return _each(uploads, lambda ordered: (ordered[low] + ordered[high]) / 2)


@dataclass(frozen=True)
class CoordinateMedian(Robust):
    """server:  delta_j = median_i delta_ij; of an even number, the mean of the two in the middle"""

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Sort each coordinate."""
        return coordinate_median(uploads), None


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

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Sort each coordinate and cut both ends."""
        count = len(uploads)
        cut = count_tolerated(self.f, count, (count - 1) // 2)
        return _each(uploads, lambda ordered: ordered[cut : count - cut].mean(dim=0, dtype=torch.float64)), None
