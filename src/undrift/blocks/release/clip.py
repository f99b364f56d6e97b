"""Displacements that are shortened before they leave the client."""

from dataclasses import dataclass
from math import exp, inf
from typing import NamedTuple

from undrift.blocks.aggregation.rows import norm
from undrift.core.method.block import Release
from undrift.core.method.view import End, ServerView, Start
from undrift.core.model.flat_model import Vector


def shortening(length: float, c: float) -> float:
    """The factor that makes a length at most c."""
    return 1.0 if length <= c else c / length


@dataclass(frozen=True)
class NormClip(Release):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i

    Args:
        c: the largest norm that is left alone; infinity clips nothing.
    """

    guards = True
    reports = ("clipped",)

    c: float = 1.0

    def __post_init__(self) -> None:
        _check_radius("NormClip", self.c)

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Shorten what is longer than c."""
        length = norm(delta)
        end.report("clipped", float(length > self.c))
        return delta if length <= self.c else delta.mul_(shortening(length, self.c))

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
class _Clipping:
    """The radius of the round, and whether the displacement was not longer."""

    c: float
    inside: bool = True


@dataclass(frozen=True)
class QuantileClip(Release[Radius, None, Radius, Inside, _Clipping]):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i
    server:  c <- c exp(-lr (x - q)), x the share of clients with ||delta_i|| <= c before

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
        _check_radius("QuantileClip", self.c)
        if self.c == inf:
            raise ValueError("QuantileClip: c must be finite to move, got inf; NormClip(inf) clips nothing")
        if not 0 <= self.q <= 1:
            raise ValueError(f"QuantileClip: q must be in [0, 1], got {self.q}")
        if not 0 <= self.lr < inf:
            raise ValueError(f"QuantileClip: lr must be 0 or more and finite, got {self.lr}")

    def init_server(self, w: Vector) -> Radius:
        """The first norm."""
        return Radius(float(self.c))

    def send(self, view: ServerView[Radius]) -> Radius:
        """The radius."""
        return view.state

    def begin(self, sent: Radius, kept: None, start: Start) -> _Clipping:
        """The radius of the round."""
        return _Clipping(sent.c)

    def release(self, delta: Vector, state: _Clipping, end: End) -> Vector:
        """Shorten what is longer than the radius."""
        length = norm(delta)
        state.inside = length <= state.c
        return delta if state.inside else delta.mul_(shortening(length, state.c))

    def bound(self, sent: Radius) -> float:
        """The radius of the round."""
        return sent.c

    def finish(self, state: _Clipping, end: End) -> tuple[Inside, None]:
        """Whether the displacement was left alone."""
        return Inside(float(state.inside)), None

    def receive(self, delta: Vector, up: Inside, view: ServerView[Radius]) -> tuple[Vector, Radius]:
        """Move the radius towards the quantile."""
        c, inside = view.state.c, up.inside / view.cohort
        view.report("clipped", 1 - inside)
        view.report("bound", c)
        return delta, Radius(c * exp(-self.lr * (inside - self.q)))


def _check_radius(name: str, c: float) -> None:
    """Refuse a radius that is not positive."""
    if not c > 0:
        raise ValueError(f"{name}: c must be positive, got {c}")
