"""The ways to deal samples to clients. Each is a record of its settings; a short text names it.

A scheme gives two flat arrays of one length: samples, and beside each the client that gets it. `str` of a scheme is
its canonical text, without the settings left at their defaults; `undrift.data.partition.parse` reads it back. The two
Dirichlet schemes are in `undrift.data.dirichlet`.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Dealt = tuple[Indices, Indices]


@dataclass(frozen=True)
class Scheme:
    """A way to deal samples to clients."""

    name: ClassVar[str]
    value: ClassVar[str | None] = None  # the field that stands after the colon

    def __str__(self) -> str:
        """The canonical text; what lies under `over` stands last and may have settings of its own."""
        text = self.name if self.value is None else f"{self.name}:{setting_text(getattr(self, self.value))}"
        changed = [f.name for f in fields(self) if f.name != self.value and getattr(self, f.name) != f.default]
        changed.sort(key=lambda key: key == "over")
        return ",".join([text, *(f"{key}={setting_text(getattr(self, key))}" for key in changed)])

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        raise NotImplementedError

    def population(self, clients: int | None, samples: int) -> int:
        """The number of clients, checked against the number of samples."""
        if clients is None:
            raise ValueError(f"{self.name}: the number of clients is missing; pass clients=...")
        if not 1 <= clients <= samples:
            raise ValueError(f"{self.name}: clients must be between 1 and the {samples} samples, got {clients}")
        return clients

    def within(self, key: str, low: float, high: float) -> None:
        """Refuse a setting out of its range, NaN included."""
        if not low <= (value := getattr(self, key)) <= high:
            raise ValueError(
                f"{self.name}: {key} must be between {setting_text(low)} and {setting_text(high)}, got {value}"
            )


@dataclass(frozen=True)
class Iid(Scheme):
    """Shuffled and cut into equal parts; the first clients get what is left over."""

    name: ClassVar[str] = "iid"

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        clients = self.population(clients, len(labels))
        return draw.permutation(len(labels)), np.arange(len(labels)) % clients


@dataclass(frozen=True)
class Classes(Scheme):
    """Pathological: every client has exactly `count` classes; each class is split evenly over its holders.

    Args:
        count: classes per client.
    """

    count: int
    name: ClassVar[str] = "classes"
    value: ClassVar[str | None] = "count"

    def __post_init__(self) -> None:
        self.within("count", 1, np.inf)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        clients = self.population(clients, len(labels))
        pools = shuffled(labels, draw)
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
class Natural(Scheme):
    """The data's own clients: writers, roles, hospitals. Users too small are left out first, then whole users sampled.

    Args:
        min_size: users with fewer samples are left out.
        fraction: users are drawn until they hold this share of the samples, as LEAF does.
        users: this share of the users is drawn.
    """

    min_size: int = 1
    fraction: float = 1.0
    users: float = 1.0
    name: ClassVar[str] = "natural"

    def __post_init__(self) -> None:
        self.within("min_size", 1, np.inf)
        for key in ("fraction", "users"):
            self.within(key, 1e-9, 1)

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each; clients are numbered in the order of their owners' names."""
        if owners is None:
            raise ValueError("natural: the data name no owners; pass owners=..., one for each sample")
        names, user, sizes = np.unique(owners, return_inverse=True, return_counts=True)
        able = draw.permutation(np.flatnonzero(sizes >= self.min_size))
        if not len(able):
            raise ValueError(f"{self}: the largest of {len(names)} owners has {sizes.max()} samples; lower min_size")
        held = np.cumsum(sizes[able])
        enough = int(np.searchsorted(held, self.fraction * held[-1])) + 1
        chosen = np.sort(able[: min(enough, max(1, round(self.users * len(able))))])
        if clients not in (None, len(chosen)):
            raise ValueError(f"{self}: the data have {len(chosen)} such owners, got clients={clients}; leave it out")
        client = np.full(len(names), -1)
        client[chosen] = np.arange(len(chosen))
        samples = np.flatnonzero(client[user] >= 0)
        return samples, client[user][samples]


@dataclass(frozen=True)
class LongTail(Scheme):
    """Class c of C keeps n_0 factor^(-c / (C - 1)) samples; the rest is dealt by the scheme under `over`.

    Args:
        factor: how many times larger the first class is than the last.
        over: how the kept samples are dealt.
    """

    factor: float
    over: Scheme = Iid()
    name: ClassVar[str] = "longtail"
    value: ClassVar[str | None] = "factor"

    def __post_init__(self) -> None:
        self.within("factor", 1, 1e9)
        if isinstance(self.over, (LongTail, Corrupt)):
            raise ValueError(
                f"longtail: over={self.over.name} cannot lie under it; corrupt stands first, longtail once"
            )

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        pools = shuffled(labels, draw)
        powers = np.arange(len(pools)) / max(1, len(pools) - 1)
        targets = np.floor(len(pools[0]) * self.factor**-powers + 1e-9).astype(np.int64)
        if targets[-1] < 1:
            raise ValueError(f"longtail: factor must be at most the {len(pools[0])} samples of the first class")
        kept = np.sort(np.concatenate([pool[:target] for pool, target in zip(pools, targets, strict=True)]))
        samples, client = self.over.deal(labels[kept], None if owners is None else owners[kept], clients, draw)
        return kept[samples], client


@dataclass(frozen=True)
class Corrupt(Scheme):
    """Feature shift: dealt by the scheme under `over`; `undrift.data.corruption` then changes the images of clients."""

    over: Scheme = Iid()
    name: ClassVar[str] = "corrupt"

    def __post_init__(self) -> None:
        if isinstance(self.over, Corrupt):
            raise ValueError("corrupt: over=corrupt cannot lie under it; name it once")

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """Samples, and the client of each."""
        return self.over.deal(labels, owners, clients, draw)


def shuffled(labels: Indices, draw: Generator) -> list[Indices]:
    """The samples of each class there is, each list shuffled."""
    order = draw.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def holders(clients: int, classes: int, each: int, draw: Generator) -> NDArray[np.bool_]:
    """Which client (row) holds which class: `each` per client, each class as often as any other, up to one.

    A shuffled deck is dealt; a class a client got twice is swapped with a card of a client that lacks it. Above half
    of the classes it is easier to deal those a client lacks.
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
    """Swap one card for another so that neither side gets a second of its kind."""
    own = deck[i, place]
    fits = (counts[i][deck] == 0) & (counts[:, own] == 0)[:, None]
    j, k = divmod(int(draw.choice(np.flatnonzero(fits))), deck.shape[1])
    other = deck[j, k]
    deck[i, place], deck[j, k] = other, own
    for client, lost, gained in ((i, own, other), (j, other, own)):
        counts[client, lost] -= 1
        counts[client, gained] += 1


def setting_text(value: object) -> str:
    """A setting as it is written in a text."""
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")
