"""Chunks of clients of about equal work, by the measured times of their visits."""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from undrift.engine.worker.partial_sum import Visit

_NEW = 0.5  # weight of the newest visit of a client in its mean
_MEMORY = 100_000  # clients whose times are kept


class VisitCost:
    """Expected seconds of visits.

    A client that was measured is expected to take what it took, the newest visit counting half. One that was not takes
    a fixed time and a time for each example, both from a least-squares line through all visits so far. Before the first
    visit the number of examples decides.
    """

    def __init__(self) -> None:
        self._own: dict[int, float] = {}
        self._count, self._x, self._y, self._xx, self._xy = 0, 0.0, 0.0, 0.0, 0.0

    def note(self, visits: Iterable[Visit]) -> None:
        """Add the visits of a round.

        Args:
            visits: measured where they were trained.
        """
        for visit in visits:
            x, y = float(visit.examples), visit.seconds
            before = self._own.pop(visit.client, y)
            self._own[visit.client] = before + _NEW * (y - before)
            self._count += 1
            self._x, self._y, self._xx, self._xy = self._x + x, self._y + y, self._xx + x * x, self._xy + x * y
        while len(self._own) > _MEMORY:
            del self._own[next(iter(self._own))]  # the client that has not been seen for longest

    def estimate(self, client: int, examples: int) -> float:
        """The seconds a visit is expected to take; before the first visit of all, its number of examples plus one.

        Args:
            client: the client.
            examples: how many training examples it has.
        """
        own = self._own.get(client)
        if own is not None:
            return own
        if not self._count:
            return examples + 1.0
        fixed, each = self._line()
        return fixed + each * examples

    def _line(self) -> tuple[float, float]:
        """Seconds of a visit, and of each of its examples, neither below 0."""
        spread = self._count * self._xx - self._x**2
        each = (self._count * self._xy - self._x * self._y) / spread if spread > 1e-9 * self._xx else 0.0
        fixed = (self._y - each * self._x) / self._count
        if each < 0:
            return self._y / self._count, 0.0
        return (fixed, each) if fixed >= 0 else (0.0, self._xy / self._xx)


def balance(costs: Mapping[int, float], count: int, most: int | None = None) -> list[list[int]]:
    """Clients in at most `count` chunks of about equal cost, in each the most expensive client first.

    Args:
        costs: client -> its expected cost.
        count: how many chunks; with `most` clients in each they must suffice for all.
        most: the most clients in a chunk; None sets no limit.

    Example:
        >>> balance({0: 1.0, 1: 5.0, 2: 2.0, 3: 2.0}, 2)
        [[1], [2, 3, 0]]
        >>> balance({0: 1.0, 1: 5.0, 2: 2.0, 3: 2.0}, 2, most=2)
        [[1, 0], [2, 3]]
    """
    pieces: list[list[int]] = [[] for _ in range(count)]
    loads = [(0.0, i) for i in range(count)]
    heapify(loads)
    for client in sorted(costs, key=lambda c: (-costs[c], c)):
        load, i = heappop(loads)
        pieces[i].append(client)
        if most is None or len(pieces[i]) < most:
            heappush(loads, (load + costs[client], i))
    return [piece for piece in pieces if piece]
