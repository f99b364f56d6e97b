"""Displacements that are shortened before they leave the client."""

from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

from undrift.blocks.aggregation.rows import norm
from undrift.core import End, Release, ServerView, Start, Vector
from undrift.core.records.types import UpT
from undrift.util.naming.ranges import AboveZero, NonNegative, Share


def clip(delta: Vector, c: float) -> tuple[Vector, bool]:
    """A displacement, overwritten so that its norm is at most c, and whether it was not longer before."""
    length = norm(delta)
    return (delta, True) if length <= c else (delta.mul_(c / length), False)


@dataclass(frozen=True)
class NormClip(Release):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i

    Args:
        c: the largest norm that is left alone; infinity clips nothing.
    """

    guards = True
    reports = ("clipped",)

    c: AboveZero = 1.0

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Shorten what is longer than c."""
        delta, inside = clip(delta, self.c)
        end.report("clipped", float(not inside))
        return delta

    def bound(self, sent: None) -> float | None:
        """The radius."""
        return None if self.c == inf else self.c


class Radius(NamedTuple):
    """The norm at which a round clips."""

    c: float


class Inside(NamedTuple):
    """Whether a displacement was not longer than the radius, 1 or 0; summed, how many were not."""

    inside: float


@dataclass
class Clipping:
    """The radius of the round, and whether the displacement was not longer."""

    c: float
    inside: bool = True


@dataclass(frozen=True)
class Following(Release[Radius, None, Radius, UpT, Clipping]):
    """A radius that follows a quantile of the clients' norms: what its two forms have in common.

    Args:
        c: the norm at which round 0 clips.
        q: the quantile of the norms that c follows.
        lr: how fast; 0 keeps c.
    """

    guards = True

    c: AboveZero = 0.1
    q: Share = 0.5
    lr: NonNegative = 0.2

    def __post_init__(self) -> None:
        if self.c == inf:
            raise ValueError(f"{type(self).__name__}: c must be finite to move, got inf; NormClip(inf) clips nothing")

    def init_server(self, w: Vector) -> Radius:
        """The first norm."""
        return Radius(float(self.c))

    def begin(self, sent: Radius, kept: None, start: Start) -> Clipping:
        """The radius of the round."""
        return Clipping(sent.c)

    def release(self, delta: Vector, state: Clipping, end: End) -> Vector:
        """Shorten what is longer than the radius."""
        delta, state.inside = clip(delta, state.c)
        return delta

    def bound(self, sent: Radius) -> float:
        """The radius of the round."""
        return sent.c

    def moved(self, c: float, inside: float) -> Radius:
        """The next radius, from this one and the share of clients that were not longer."""
        return Radius(c * exp(-self.lr * (inside - self.q)))


@dataclass(frozen=True)
class QuantileClip(Following[Inside]):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i
    server:  c <- c exp(-lr (x - q)), x the share of clients with ||delta_i|| <= c before

    Args:
        c: the norm at which round 0 clips.
        q: the quantile of the norms that c follows.
        lr: how fast; 0 gives NormClip.
    """

    reports = ("clipped", "bound")

    def finish(self, state: Clipping, end: End) -> tuple[Inside, None]:
        """Whether the displacement was left alone."""
        return Inside(float(state.inside)), None

    def receive(self, delta: Vector, up: Inside, view: ServerView[Radius]) -> tuple[Vector, Radius]:
        """Move the radius towards the quantile."""
        c, inside = view.state.c, up.inside / view.cohort
        view.report("clipped", 1 - inside)
        view.report("bound", c)
        return delta, self.moved(c, inside)
