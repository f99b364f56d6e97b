"""Releases of what has changed since a client's last upload, so that a client counts by its last one until it reports.

The vector that is remembered stays with the client: the server needs sums only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from undrift.blocks.aggregation.weights import Uniform
from undrift.blocks.personalization.relaxed import First
from undrift.core import End, Release, ServerView, Start, Sums, Vector


class Last(NamedTuple):
    """A displacement: a client's last one, or on the server the mean of those of all clients."""

    h: Vector


class Contributed(NamedTuple):
    """The model that a client contributed last, and how often it has contributed one."""

    y: Vector
    visits: int


@dataclass
class _Change:
    """What a client remembers, and what it will."""

    old: Vector
    new: Vector
    visits: int = 0


def why_not(others: Mapping[str, object]) -> str:
    """Why changes cannot be released beside other blocks; "" if they can.

    Args:
        others: the blocks of the other slots.
    """
    aggregation = others["aggregation"]
    if type(aggregation) is not Uniform:
        return f"needs equal weights, found aggregation={aggregation!r}; add uniform"
    for slot, block in others.items():
        if getattr(block, "uses", Sums.NONE):
            return f"releases changes, and {slot}={block!r} needs the displacements themselves; leave one of them out"
    return ""


@dataclass(frozen=True)
class Remembered(Release[Last, Last, None, None, _Change]):
    """client:  uploads delta_i - h_i;   then h_i <- delta_i
    server:  v = mean of the uploads;   delta = h + v;   h <- h + K/N v

    With `spread` delta is the new h, the mean of the last displacements of all N clients. K is the number of uploads.

    Args:
        spread: whether an upload counts as one of N clients at once, rather than as one of K.
    """

    spread: bool = False

    def refuses(self, others: Mapping[str, object]) -> str:
        """Weights, and blocks that read displacements."""
        return why_not(others)

    def begin(self, sent: None, kept: Last, start: Start) -> _Change:
        """The last displacement."""
        return _Change(kept.h, kept.h)

    def release(self, delta: Vector, state: _Change, end: End) -> Vector:
        """What has changed."""
        state.new = delta.clone()
        return delta.sub_(state.old)

    def finish(self, state: _Change, end: End) -> tuple[None, Last]:
        """Remember the displacement."""
        return None, Last(state.new)

    def receive(self, delta: Vector, up: None, view: ServerView[Last]) -> tuple[Vector, Last]:
        """Add the change to what all clients contributed last."""
        h = view.state.h + view.cohort / view.population * delta
        return h if self.spread else view.state.h + delta, Last(h)


@dataclass(frozen=True)
class Residual(Release[First, Contributed, First, None, _Change]):
    """client:  uploads y_new - y_i, with y_new = w0 + delta_i;   then y_i <- y_new;   at first y_i is the first model
    server:  delta = 1/N sum of the uploads;   so w = mean of all y_i
    """

    def refuses(self, others: Mapping[str, object]) -> str:
        """Weights, and blocks that read displacements."""
        return why_not(others)

    def init_server(self, w: Vector) -> First:
        """The model itself."""
        return First(w.clone())

    def begin(self, sent: First, kept: Contributed, start: Start) -> _Change:
        """The model that was contributed last."""
        old = kept.y if kept.visits else sent.w
        return _Change(old, old, kept.visits)

    def release(self, delta: Vector, state: _Change, end: End) -> Vector:
        """What has changed of the shared model."""
        state.new = end.w0 + delta
        return end.share(state.new - state.old)

    def finish(self, state: _Change, end: End) -> tuple[None, Contributed]:
        """Remember the model."""
        return None, Contributed(state.new, state.visits + 1)

    def receive(self, delta: Vector, up: None, view: ServerView[First]) -> tuple[Vector, First]:
        """Each client is one of N."""
        return view.cohort / view.population * delta, view.state
