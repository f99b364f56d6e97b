"""Rules that shorten long displacements."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from statistics import median
from typing import NamedTuple

from undrift.blocks.aggregation.rows import blend, by_norm, norm
from undrift.core.method.aggregation import Gathering, Robust, Summing
from undrift.core.method.view import End, Gathered
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Cohort, Upload, WeightedSums


def shortening(length: float, c: float) -> float:
    """The factor that makes a length at most c."""
    return 1.0 if length <= c else c / length


@dataclass(frozen=True)
class NormClip(Summing):
    """server:  delta = 1/m sum_i min(1, c / ||delta_i||) delta_i

    Args:
        c: the largest norm that is left alone; infinity gives Uniform.
    """

    guards = True
    reports = ("clipped",)

    c: float = 1.0

    def __post_init__(self) -> None:
        _positive("NormClip", self.c)

    def report(self, state: None, up: None, kept: None, end: End) -> dict[str, float]:
        """Whether the client's displacement is shortened, 1 or 0."""
        return {"clipped": float(norm(end.delta) > self.c)}

    def weigh(self, upload: Upload, up: None) -> float:
        """The factor, which also weighs running statistics."""
        return shortening(norm(upload.delta), self.c)

    def mean(self, sums: WeightedSums[None], cohort: Cohort) -> Vector:
        """By the number of uploads, not by their weights."""
        return sums.delta / cohort.size


@dataclass(frozen=True)
class MedianClip(Robust):
    """server:  delta = 1/m sum_i min(1, c / ||delta_i||) delta_i,   c = median_i ||delta_i||"""

    def combine(self, uploads: Sequence[Upload]) -> Vector:
        """Clip at the median norm; of an even number, the mean of the two in the middle."""
        return _clipped(uploads, median(norm(upload.delta) for upload in uploads))


class Radius(NamedTuple):
    """The norm at which the next round clips."""

    c: float


@dataclass(frozen=True)
class QuantileClip(Gathering[Radius]):
    """server:  delta = 1/m sum_i min(1, c / ||delta_i||) delta_i
             c <- c exp(-lr (x - q)), x the share of clients with ||delta_i|| <= c

    Args:
        c: the norm at which round 0 clips.
        q: the quantile of the norms that c follows.
        lr: how fast; 0 gives NormClip.
    """

    guards = True
    reports = ("clipped", "bound")

    c: float = 0.1
    q: float = 0.5
    lr: float = 0.2

    def __post_init__(self) -> None:
        _positive("QuantileClip", self.c)
        if self.c == float("inf"):
            raise ValueError("QuantileClip: c must be finite to move, got inf; NormClip(inf) clips nothing")
        if not 0 <= self.q <= 1:
            raise ValueError(f"QuantileClip: q must be in [0, 1], got {self.q}")
        if not 0 <= self.lr < float("inf"):
            raise ValueError(f"QuantileClip: lr must be 0 or more and finite, got {self.lr}")

    def init_server(self, w: Vector) -> Radius:
        """The first norm."""
        return Radius(self.c)

    def gather(
        self, uploads: Sequence[Upload], ups: Sequence[None], gathered: Gathered[Radius]
    ) -> tuple[Vector, Radius]:
        """Clip, then move towards the quantile."""
        c = gathered.server.c
        inside = sum(norm(upload.delta) <= c for upload in uploads) / len(uploads)
        gathered.report("clipped", 1 - inside)
        gathered.report("bound", c)
        return _clipped(uploads, c), Radius(c * exp(-self.lr * (inside - self.q)))


def clipping(c: float | None, q: float | None, lr: float) -> NormClip | QuantileClip | MedianClip:
    """The rule of three that the arguments ask for: no c is the median, no q a fixed c."""
    if c is not None:
        return NormClip(c) if q is None else QuantileClip(c, q, lr)
    if q is not None:
        raise ValueError(f"norm clipping: q={q} needs c=, the length to start from, for example c=0.1; got none")
    return MedianClip()


def _clipped(uploads: Sequence[Upload], c: float) -> Vector:
    """The mean of the displacements, each at most c long."""
    ordered = by_norm(uploads)
    return blend(ordered, [shortening(norm(upload.delta), c) for upload in ordered]) / len(ordered)


def _positive(name: str, c: float) -> None:
    """Refuse a radius that is not positive."""
    if not c > 0:
        raise ValueError(f"{name}: c must be positive, got {c}")
