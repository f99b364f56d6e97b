"""Schemes that distribute samples over clients. Each is a record of its settings.

A scheme returns two flat arrays of the same length: samples, and the client of each. `str` of a scheme is its canonical
text, without settings that have their default values; `draw.parse` reads it. Schemes of natural clients are in
`natural`, and those of users' own lists in `from_lists`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from undrift.data.distortion.kinds import kinds_text, parse_kinds
from undrift.util.naming.calls import Call, changed_fields

Indices = NDArray[np.int64]
Dealt = tuple[Indices, Indices]


@dataclass(frozen=True)
class Scheme:
    """A way to distribute samples over clients."""

    name: ClassVar[str]
    listed: ClassVar[bool] = False  # whether it gives lists of indices into all samples, instead of dealing them
    by_class: ClassVar[bool] = False  # whether it distributes classes, so that it is of no use for numbers

    @property
    def inner(self) -> "Scheme":
        """The scheme that distributes the samples in the end: that of `over`, or itself.

        Example:
            >>> LongTail(10, over=Quantity(1.0)).inner
            Quantity(alpha=1.0, min_size=10)
        """
        over = getattr(self, "over", None)
        return over.inner if isinstance(over, Scheme) else self

    @property
    def fixed(self) -> bool:
        """Whether it has its own number of clients: that of the data's owners or of its lists."""
        return self.listed

    def call(self) -> Call:
        """Its canonical form: the setting without a default value, then those that differ from theirs, by name."""
        required = [f.name for f in fields(self) if f.default is MISSING]
        given = {name: _canonical(value) for name, value in changed_fields(self).items()}
        return Call(self.name, tuple(given.pop(name) for name in required), given)

    def __str__(self) -> str:
        """The canonical text."""
        return str(self.call())

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        raise NotImplementedError

    def population(self, clients: int | None, samples: int) -> int:
        """The number of clients, validated against the number of samples."""
        if clients is None:
            raise ValueError(f"{self.name}: the number of clients is missing; pass clients=...")
        if not 1 <= clients <= samples:
            raise ValueError(f"{self.name}: clients must be between 1 and the {samples} samples, got {clients}")
        return clients

    def check_range(self, key: str, low: float, high: float) -> None:
        """Raise if a setting is out of range or NaN."""
        if not low <= (value := getattr(self, key)) <= high:
            raise ValueError(
                f"{self.name}: {key} must be between {_canonical(low)} and {_canonical(high)}, got {value}"
            )


@dataclass(frozen=True)
class Iid(Scheme):
    """Shuffled and cut into equal parts; the first clients get the remainder."""

    name: ClassVar[str] = "iid"

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        clients = self.population(clients, len(labels))
        return draw.permutation(len(labels)), np.arange(len(labels)) % clients


@dataclass(frozen=True)
class Quantity(Scheme):
    """Quantity skew alone: the clients' sizes are drawn, every client's labels are distributed as in all the data.

    Every client has `min_size` samples, and the rest is cut in proportions q ~ Dir(alpha, ..., alpha) over the clients.

    Args:
        alpha: small gives a few clients most of the samples, large gives equal sizes.
        min_size: the samples of the smallest client, at least.
    """

    alpha: float
    min_size: int = 10
    name: ClassVar[str] = "quantity"

    def __post_init__(self) -> None:
        self.check_range("alpha", 1e-6, 1e9)
        self.check_range("min_size", 1, np.inf)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        clients = self.population(clients, len(labels))
        rest = len(labels) - self.min_size * clients
        if rest < 0:
            raise ValueError(
                f"{self}: {len(labels)} samples do not give each of {clients} clients min_size={self.min_size}; use "
                "fewer clients or a smaller min_size"
            )
        ends = np.floor(np.cumsum(draw.dirichlet(np.full(clients, self.alpha))) * rest).astype(np.int64)
        ends[-1] = rest
        sizes = self.min_size + np.diff(np.minimum(ends, rest), prepend=0)
        return draw.permutation(len(labels)), np.repeat(np.arange(clients), sizes)


@dataclass(frozen=True)
class Classes(Scheme):
    """Pathological: every client has exactly `count` classes; each class is split evenly over its holders.

    Args:
        count: classes per client.
    """

    count: int
    name: ClassVar[str] = "classes"
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_range("count", 1, np.inf)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        clients = self.population(clients, len(labels))
        pools = shuffle_classes(labels, draw)
        if self.count > len(pools):
            raise ValueError(f"classes: count must be at most the {len(pools)} classes there are, got {self.count}")
        takers = []
        for pool, held in zip(pools, holders(clients, len(pools), self.count, draw).T, strict=True):
            own = draw.permutation(np.flatnonzero(held))
            if len(own) > len(pool):
                raise ValueError(
                    f"{self}: class {labels[pool[0]]} has {len(pool)} samples for {len(own)} clients; "
                    "use fewer clients or fewer classes per client"
                )
            takers.append(own[np.arange(len(pool)) % len(own)] if len(own) else np.full(len(pool), -1))
        samples, taker = np.concatenate(pools), np.concatenate(takers)
        return samples[taker >= 0], taker[taker >= 0]


@dataclass(frozen=True)
class LongTail(Scheme):
    """Class c of C keeps n_0 factor^(-c / (C - 1)) samples; the scheme `over` distributes them.

    Args:
        factor: how many times larger the first class is than the last.
        over: the scheme that distributes the remaining samples.
    """

    factor: float
    over: Scheme = Iid()
    name: ClassVar[str] = "longtail"
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_range("factor", 1, 1e9)
        if isinstance(self.over, (LongTail, Corrupt)):
            raise ValueError(
                f"longtail: over={self.over.name} is not possible; corrupt must come first, longtail only once"
            )
        if self.over.listed:
            raise ValueError(
                f"longtail: over={self.over} is not possible: its lists give the clients' examples; use one of them"
            )

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        pools = shuffle_classes(labels, draw)
        powers = np.arange(len(pools)) / max(1, len(pools) - 1)
        targets = np.floor(len(pools[0]) * self.factor**-powers + 1e-9).astype(np.int64)
        if targets[-1] < 1:
            raise ValueError(f"longtail: factor must be at most the {len(pools[0])} samples of the first class")
        kept = np.sort(np.concatenate([pool[:target] for pool, target in zip(pools, targets, strict=True)]))
        samples, client = self.over.deal(labels[kept], None if owners is None else owners[kept], clients, draw)
        return kept[samples], client


@dataclass(frozen=True)
class Corrupt(Scheme):
    """Feature shift: the scheme `over` distributes samples; `data.tasks.corruption` then corrupts clients' images.

    Args:
        over: the scheme that distributes the samples.
        severity: how strong corruptions are, 1 to 5 as in CIFAR-C.
        types: the types that are dealt to clients and tested: "standard", "all", or names joined by "+".
    """

    over: Scheme = Iid()
    severity: int = 3
    types: str = "standard"
    name: ClassVar[str] = "corrupt"

    def __post_init__(self) -> None:
        self.check_range("severity", 1, 5)
        object.__setattr__(self, "types", kinds_text(parse_kinds(self.types)))
        if isinstance(self.over, Corrupt):
            raise ValueError("corrupt: over=corrupt is not possible; name it once")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of the types."""
        return parse_kinds(self.types)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        return self.over.deal(labels, owners, clients, draw)


def shuffle_classes(labels: Indices, draw: Generator) -> list[Indices]:
    """The shuffled samples of each class that occurs."""
    order = draw.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def holders(clients: int, classes: int, each: int, draw: Generator) -> NDArray[np.bool_]:
    """Which client (row) has which class: `each` per client, with class counts that differ by at most one.

    A shuffled deck of classes is dealt; a class that a client got twice is swapped with a client that lacks it. Above
    half of the classes it is easier to deal the classes that a client lacks.
    """
    if 2 * each > classes:
        return ~holders(clients, classes, classes - each, draw)
    quota = np.full(classes, each * clients // classes)
    quota[draw.permutation(classes)[: each * clients - quota.sum()]] += 1
    deck = draw.permutation(np.repeat(np.arange(classes), quota)).reshape(clients, each)
    counts = np.zeros((clients, classes), np.int64)
    np.add.at(counts, (np.arange(clients)[:, None], deck), 1)
    for i, place in np.ndindex(clients, each):
        if counts[i, deck[i, place]] > 1:
            _swap(deck, counts, i, place, draw)
    return counts > 0


def _swap(deck: Indices, counts: Indices, i: int, place: int, draw: Generator) -> None:
    """Swap a class with another client so that neither has a class twice."""
    own = deck[i, place]
    fits = (counts[i][deck] == 0) & (counts[:, own] == 0)[:, None]
    j, k = divmod(int(draw.choice(np.flatnonzero(fits))), deck.shape[1])
    other = deck[j, k]
    deck[i, place], deck[j, k] = other, own
    for client, lost, gained in ((i, own, other), (j, other, own)):
        counts[client, lost] -= 1
        counts[client, gained] += 1


def ranks(groups: Indices, draw: Generator | None = None) -> Indices:
    """The place of each sample in its group, in a random order if `draw` is given; groups are numbered from 0.

    Example:
        >>> ranks(np.array([0, 1, 1, 0, 1])).tolist()
        [0, 0, 1, 1, 2]
    """
    mixed = np.arange(len(groups)) if draw is None else draw.permutation(len(groups))
    order = mixed[np.argsort(groups[mixed], kind="stable")]
    counts = np.bincount(groups)
    out = np.empty(len(groups), np.int64)
    out[order] = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
    return out


def _canonical(value: object) -> object:
    """A setting as the canonical text has it: a whole number without ".0", a scheme as its call."""
    if isinstance(value, Scheme):
        return value.call()
    return int(value) if isinstance(value, float) and str(value).endswith(".0") else value


REDRAWS = 1000
TRIAL, HOPELESS = 20, 40  # if 40 clients fall short on average, 1000 redraws succeed with a chance below 1e-14


@dataclass(frozen=True)
class Dirichlet(Scheme):
    """Class-wise: the samples of each class are cut in proportions q ~ Dir(alpha, ..., alpha) over the clients.

    Args:
        alpha: small is skewed, large is even. It is not comparable with the alpha of `dirichlet-client`.
        min_size: the draw is repeated, up to 1000 times, until every client has at least this many samples.
        balance: clients that have their fair share get no samples of the classes that follow.

    Note:
        A Dirichlet vector restricted to some clients and renormalised is a Dirichlet vector over those clients, so
        the open clients' shares are drawn directly.
    """

    alpha: float
    min_size: int = 10
    balance: bool = True
    name: ClassVar[str] = "dirichlet"
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_range("alpha", 1e-6, 1e9)
        self.check_range("min_size", 0, np.inf)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        clients = self.population(clients, len(labels))
        pools = shuffle_classes(labels, draw)
        counts = self._enough([len(pool) for pool in pools], clients, draw)
        return np.concatenate(pools), np.repeat(np.tile(np.arange(clients), len(pools)), counts.ravel())

    def _enough(self, totals: Sequence[int], clients: int, draw: Generator) -> Indices:
        """Counts of each class (row) per client, drawn until no client is too small."""
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
            f'clients of equal size: --partition "{DirichletClient(self.alpha)}"'
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

    All clients have the same size. They draw in random order, one sample at a time, from the classes that still have
    samples; a client whose classes are all empty draws any remaining sample.

    Args:
        alpha: small is skewed, large is even.
        refill: an empty class is refilled, so that clients share samples and others are never used, as in
            FL-Simulator.
        remainder: if the samples do not divide evenly, the first clients get one more; if false, these are dropped.
    """

    alpha: float
    refill: bool = False
    remainder: bool = False
    name: ClassVar[str] = "dirichlet-client"
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check_range("alpha", 1e-6, 1e9)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each."""
        clients = self.population(clients, len(labels))
        used = len(labels) - (0 if self.remainder else len(labels) % clients)
        turns = draw.permutation(np.arange(used) % clients)
        pools = shuffle_classes(labels, draw)
        priors = draw.dirichlet(np.full(len(pools), self.alpha), size=clients)
        classes = self._classes(turns, draw.random(used), priors, [len(pool) for pool in pools])
        samples = np.empty(used, np.int64)
        for c, pool in enumerate(pools):
            places = np.flatnonzero(classes == c)
            samples[places] = pool[np.arange(len(places)) % len(pool)]
        return samples, turns

    def _classes(self, turns: Indices, chances: NDArray[np.float64], priors: NDArray[Any], left: list[int]) -> Indices:
        """The class each turn draws; clients' cumulative tables are rebuilt after a class has run out."""
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
