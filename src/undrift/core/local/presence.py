"""When devices are there, as intervals of virtual time in whole nanoseconds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Intervals: TypeAlias = tuple[int, Sequence[tuple[int, int]]] | None
"""The period after which a device's intervals repeat, 0 if they do not, and the intervals [from, to); None: always."""

_NEVER = np.iinfo(np.int64).max


class Presence:
    """The intervals in which the clients of a run are there. Client c has those of device c modulo their number.

    Args:
        devices: of each device.
        population: how many clients there are.
    """

    def __init__(self, devices: Sequence[Intervals], population: int) -> None:
        self.population = population
        rows = [_joined(one) for one in devices[:population]]
        self._always = np.array([one is None for one in rows])
        pairs = [pair for one in rows if one is not None for pair in one[1]]
        self._begin, self._end = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
        counts = [0 if one is None else len(one[1]) for one in rows]
        self._first = np.concatenate([[0], np.cumsum(counts)])
        self._device = np.repeat(np.arange(len(rows)), counts)
        self._period = np.array([0 if one is None else one[0] for one in rows], dtype=np.int64)

    @property
    def count(self) -> int:
        """How many intervals there are."""
        return len(self._begin)

    def leave(self, client: int, time: int) -> int | None:
        """When a client leaves: now if it is not there, None if it stays for ever.

        Args:
            client: its number.
            time: now, in nanoseconds.
        """
        device = client % len(self._period)
        first, last = self._first[device : device + 2].tolist()
        if self._always[device]:
            return None
        period, begin, end = int(self._period[device]), self._begin[first:last], self._end[first:last]
        phase = time % period if period else time
        place = int(np.searchsorted(begin, phase, side="right")) - 1
        if place < 0 or phase >= end[place]:
            return time
        further = int(end[0]) if end[place] == period and begin[0] == 0 else 0  # it stays into the next period
        return time + int(end[place]) - phase + further

    def clients(self, time: int) -> NDArray[np.int64]:
        """All clients that are there at a time, sorted."""
        phase, _ = self._phase(time)
        there = self._always.copy()
        there[self._device[(self._begin <= phase) & (phase < self._end)]] = True
        return np.flatnonzero(np.resize(there, self.population))

    def next_join(self, time: int) -> int | None:
        """The first time after this one at which an interval begins; None if there is none."""
        phase, period = self._phase(time)
        wait = self._begin - phase
        wait = np.where(wait > 0, wait, np.where(period > 0, wait + period, _NEVER))
        least = int(wait.min(initial=_NEVER))
        return None if least == _NEVER else time + least

    def opening(self, time: int) -> int:
        """The first time, from this one on, at which a client is there; this one if there is none."""
        return time if len(self.clients(time)) else self.next_join(time) or time

    def _phase(self, time: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For every interval the time within the period of its device, and this period."""
        period = self._period[self._device]
        return np.where(period > 0, time % np.maximum(period, 1), time), period


@dataclass(frozen=True)
class PresentNow:
    """Who is there at a time.

    Args:
        presence: when clients are there.
        time: in nanoseconds.
    """

    presence: Presence
    time: int

    def __contains__(self, client: int) -> bool:
        leave = self.presence.leave(client, self.time)
        return leave is None or leave > self.time

    def clients(self) -> list[int]:
        """All that are there, sorted."""
        return [int(client) for client in self.presence.clients(self.time)]


def _joined(given: Intervals) -> Intervals:
    """Intervals in order, those that overlap or touch as one; None if the device never leaves."""
    if given is None:
        return None
    period, out = given[0], list[tuple[int, int]]()
    for begin, end in sorted(given[1]):
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((begin, end))
    return None if period and out == [(0, period)] else (period, out)
