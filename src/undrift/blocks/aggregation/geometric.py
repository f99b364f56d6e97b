"""The point with the smallest sum of distances to all uploads."""

from collections.abc import Sequence
from dataclasses import dataclass

from undrift.blocks.aggregation.rows import by_norm, mean, norm
from undrift.core import Robust, ServerView, Upload, Vector
from undrift.util.naming.ranges import Natural, Positive


@dataclass(frozen=True)
class GeometricMedian(Robust):
    """server:  delta = argmin_z sum_i a_i ||z - delta_i||, by smoothed Weiszfeld steps from the mean by a_i
             z <- sum_i b_i delta_i / sum_i b_i,   b_i = a_i / max(floor, ||z - delta_i||)

    Args:
        passes: how many steps; fewer are taken once the sum of distances falls by less than 1e-6 of itself.
        floor: the smallest distance that is divided by.
        by_examples: whether a_i is n_i; otherwise every a_i is 1.
    """

    passes: Natural = 4
    floor: Positive = 1e-5
    by_examples: bool = True

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples, or one."""
        return float(upload.examples) if self.by_examples else 1.0

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        """Weiszfeld's steps."""
        ordered, last = by_norm(uploads), float("inf")
        weights = [self.weigh(upload, None, 0) for upload in ordered]
        z = mean(ordered, weights)
        for _ in range(self.passes):
            away = [norm(z - upload.delta) for upload in ordered]
            now = sum(a * x for a, x in zip(weights, away, strict=True))
            if last - now < 1e-6 * now:
                break
            last = now
            z = mean(ordered, [a / max(self.floor, x) for a, x in zip(weights, away, strict=True)])
        return z, None
