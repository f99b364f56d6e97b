"""The two Dirichlet schemes. They differ in what is drawn, so their alphas are not to be compared."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from undrift.data.schemes import Dealt, Indices, Scheme, setting_text, shuffled

REDRAWS = 1000
TRIAL, HOPELESS = 20, 40  # if 40 clients fall short on average, 1000 redraws succeed with a chance below 1e-14


@dataclass(frozen=True)
class Dirichlet(Scheme):
    """Class-wise: the samples of each class are cut in proportions q ~ Dir(alpha, ..., alpha) over the clients.

    Args:
        alpha: small is skewed, large is even. It is not comparable with the alpha of `dirichlet-client`.
        min_size: everything is drawn again until the smallest client has so many samples, 1000 times at most.
        balance: clients that hold their fair share get nothing of the classes that follow.

    Note:
        A Dirichlet vector restricted to some clients and renormalised is a Dirichlet vector over those clients, so
        the open clients' shares are drawn directly.
    """

    alpha: float
    min_size: int = 10
    balance: bool = True
    name: ClassVar[str] = "dirichlet"
    value: ClassVar[str | None] = "alpha"

    def __post_init__(self) -> None:
        self.within("alpha", 1e-6, 1e9)
        self.within("min_size", 0, np.inf)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        clients = self.population(clients, len(labels))
        pools = shuffled(labels, draw)
        counts = self._enough([len(pool) for pool in pools], clients, draw)
        return np.concatenate(pools), np.repeat(np.tile(np.arange(clients), len(pools)), counts.ravel())

    def _enough(self, totals: Sequence[int], clients: int, draw: Generator) -> Indices:
        """Counts of each class (row) on each client that leave no client too small."""
        short: list[int] = []
        while self.min_size * clients <= sum(totals) and len(short) < REDRAWS:
            counts = self._counts(totals, clients, draw)
            short.append(int((counts.sum(axis=0) < self.min_size).sum()))
            if not short[-1]:
                return counts
            if len(short) == TRIAL and np.mean(short) > HOPELESS:
                break
        tried = f"in each of {len(short)} draws some fell short, {np.mean(short):.0f} on average" if short else ""
        raise ValueError(
            f"{self}: {sum(totals)} samples do not give each of {clients} clients min_size={self.min_size}"
            f"{tried and f' ({tried})'}; use a larger alpha, fewer clients, a smaller min_size, or "
            f"dirichlet-client:{setting_text(self.alpha)}, whose clients are of equal size"
        )

    def _counts(self, totals: Sequence[int], clients: int, draw: Generator) -> Indices:
        """One draw: each class cut at floor(cumsum(q) n_c)."""
        counts = np.zeros((len(totals), clients), np.int64)
        held, fair = np.zeros(clients, np.int64), sum(totals) / clients
        for row, total in zip(counts, totals, strict=True):
            open = np.flatnonzero(held < fair) if self.balance else np.arange(clients)
            ends = np.floor(np.cumsum(draw.dirichlet(np.full(len(open), self.alpha))) * total)
            ends[-1] = total
            row[open] = np.diff(np.minimum(ends, total), prepend=0)
            held += row
        return counts


@dataclass(frozen=True)
class DirichletClient(Scheme):
    """Client-wise: each client draws samples from classes in its own proportions pi ~ Dir(alpha, ..., alpha).

    All clients are of equal size. They draw in random order, one sample at a time, from the classes that still have
    samples; a client none of whose classes are left draws any sample that is.

    Args:
        alpha: small is skewed, large is even.
        refill: an empty class is filled again, so that clients share samples and others are never used; FL-Simulator
            does so.
        remainder: the first clients get one sample more where the number does not divide; without it they are dropped.
    """

    alpha: float
    refill: bool = False
    remainder: bool = False
    name: ClassVar[str] = "dirichlet-client"
    value: ClassVar[str | None] = "alpha"

    def __post_init__(self) -> None:
        self.within("alpha", 1e-6, 1e9)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        clients = self.population(clients, len(labels))
        used = len(labels) - (0 if self.remainder else len(labels) % clients)
        turns = draw.permutation(np.arange(used) % clients)
        pools = shuffled(labels, draw)
        priors = draw.dirichlet(np.full(len(pools), self.alpha), size=clients)
        classes = self._classes(turns, draw.random(used), priors, [len(pool) for pool in pools])
        samples = np.empty(used, np.int64)
        for c, pool in enumerate(pools):
            places = np.flatnonzero(classes == c)
            samples[places] = pool[np.arange(len(places)) % len(pool)]
        return samples, turns

    def _classes(self, turns: Indices, chances: NDArray[np.float64], priors: NDArray[Any], left: list[int]) -> Indices:
        """The class each turn draws; a client's cumulative table is made anew after a class has run out."""
        tables: dict[int, list[float]] = {}
        classes = []
        for client, chance in zip(turns.tolist(), chances.tolist(), strict=True):
            if client not in tables:
                tables[client] = np.cumsum(np.where(np.array(left) > 0, priors[client], 0)).tolist()
            table: Sequence[float] = tables[client] if tables[client][-1] > 1e-12 else list(accumulate(left))
            c = bisect_right(table, chance * table[-1])
            classes.append(c)
            left[c] -= not self.refill
            if not left[c]:
                tables.clear()
        return np.array(classes, np.int64)
