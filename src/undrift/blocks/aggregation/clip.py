"""A rule that shortens long displacements to a length that depends on all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from undrift.blocks.aggregation.rows import blend, by_norm, norm
from undrift.core import Robust, ServerView, Upload, Vector


@dataclass(frozen=True)
class MedianClip(Robust):
    """server:  delta = 1/m sum_i min(1, c / ||delta_i||) delta_i,   c = median_i ||delta_i||"""

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Clip at the median norm; of an even number, the mean of the two in the middle."""
        ordered = by_norm(uploads)
        lengths = [norm(upload.delta) for upload in ordered]
        c = median(lengths)
        return blend(ordered, [1.0 if x <= c else c / x for x in lengths]) / len(ordered), None
