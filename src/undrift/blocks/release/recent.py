"""The mean of those clients' last displacements that come from recent models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from undrift.blocks.release.remembered import why_not
from undrift.core import End, Release, ServerView, Start, Synchronous, Vector


class LastVisit(NamedTuple):
    """A client's last displacement, the round of the model that it started from, and how often it has trained."""

    u: Vector
    version: int
    visits: int


class Former(NamedTuple):
    """What an upload takes the place of: a displacement, its round, and whether there was none."""

    u: Vector
    version: int
    first: int


class Window(NamedTuple):
    """Sums of last displacements by the model that they started from, one row for each of the newest models.

    Model v has row v modulo their number. `counts` has how many displacements are in a row, `reported` how many clients
    have uploaded so far.
    """

    rows: Tensor
    counts: Tensor
    versions: Tensor
    reported: int


@dataclass(frozen=True)
class Recent(Release[Window, LastVisit, None, Former, LastVisit]):
    """client:  uploads delta_i, and u_i with its version v_i;   then u_i <- delta_i, v_i <- the version it started from
    server:  at each arrival  delta = mean of u_i over the clients with age_i <= delay;   age_i = t - v_i at step t

    The server keeps a sum for each of the last delay + 1 versions, from which u_i is taken when its client reports
    again. Clients that have not reported count with u_i = 0 and v_i = 0. A synchronous round of several uploads is
    their mean, and nothing before it counts.

    Args:
        delay: the largest age with which a displacement counts.
    """

    delay: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 50

    def refuses(self, others: Mapping[str, object]) -> str:
        """Weights, blocks that read displacements, and steps from several uploads, whose versions differ."""
        schedule = others["schedule"]
        if isinstance(schedule, Synchronous) and schedule.overlaps and schedule.enough(2) > 1:
            return f"takes one upload per step, found schedule={schedule!r}; use asynchronous, or remembered() instead"
        return why_not(others)

    def init_server(self, w: Vector) -> Window:
        """Empty."""
        numbers = torch.zeros(self.delay + 1, dtype=torch.int64)
        return Window(w.new_zeros(self.delay + 1, len(w)), numbers, numbers - 1, 0)

    def begin(self, sent: None, kept: LastVisit, start: Start) -> LastVisit:
        """The last displacement."""
        return kept

    def finish(self, state: LastVisit, end: End) -> tuple[Former, LastVisit]:
        """Upload the last displacement, and remember this one."""
        return Former(state.u, state.version, int(not state.visits)), LastVisit(
            end.delta.clone(), end.round, state.visits + 1
        )

    def receive(self, delta: Vector, up: Former, view: ServerView[Window]) -> tuple[Vector, Window]:
        """Put the displacement in the place of the former one; the mean of those that are recent."""
        reported = view.state.reported + up.first
        if view.cohort > 1:
            return delta, self.init_server(delta)._replace(reported=reported)
        rows, counts, versions = (x.clone() for x in view.state[:3])
        oldest = view.round - self.delay
        rows[versions < oldest], counts[versions < oldest] = 0, 0
        if not up.first and up.version >= oldest and versions[up.version % len(versions)] == up.version:
            self._add(rows, counts, up.version, -up.u, -1)
        started = view.round - view.age
        if started >= oldest:
            versions[started % len(versions)] = started
            self._add(rows, counts, started, delta, 1)
        silent = view.population - reported if oldest <= 0 else 0
        return rows.sum(dim=0) / max(1, int(counts.sum()) + silent), Window(rows, counts, versions, reported)

    def _add(self, rows: Tensor, counts: Tensor, version: int, u: Vector, count: int) -> None:
        """Add a displacement to the sum of its version, which is exactly zero without any."""
        row = version % len(counts)
        counts[row] += count
        rows[row] = rows[row] + u if counts[row] else 0
