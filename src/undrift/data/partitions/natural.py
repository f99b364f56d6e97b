"""Natural clients: the data's own writers, roles, domains or sites."""

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from undrift.data.partitions.schemes import Dealt, Indices, Scheme, ranks


@dataclass(frozen=True, kw_only=True)
class Natural(Scheme):
    """The data's own clients: writers, roles, domains. Users that are too small are removed, then users are sampled.

    Args:
        min_size: users with fewer samples are removed.
        fraction: users are drawn until they have this share of the samples, as in LEAF.
        users: this share of the users is drawn.
        samples: this share of each user's samples is drawn, at least one.
        split: each user's samples are shuffled and split evenly over this many clients.
        test: the number of a user that no client has; a run tests on all its examples. None leaves no user out.
    """

    min_size: int = 1
    fraction: float = 1.0
    users: float = 1.0
    samples: float = 1.0
    split: int = 1
    test: int | None = None
    name: ClassVar[str] = "natural"

    def __post_init__(self) -> None:
        for key in ("min_size", "split"):
            self.check_range(key, 1, np.inf)
        for key in ("fraction", "users", "samples"):
            self.check_range(key, 1e-9, 1)

    @property
    def fixed(self) -> bool:
        """Whether it has its own number of clients."""
        return True

    def deal(self, labels: Indices, owners: NDArray[Any] | None, clients: int | None, draw: Generator) -> Dealt:
        """The samples and the client of each, in the order of the owners' names; clients of one owner are adjacent."""
        if owners is None:
            raise ValueError(
                "natural: the data name no owners; pass owners=..., one for each sample; name the column of a table, "
                "--partition column:NAME; or return (inputs, targets, owners) from a data function"
            )
        names, user, sizes = np.unique(owners, return_inverse=True, return_counts=True)
        others = np.array([name != self.test for name in names.tolist()])
        if self.test is not None and (others.all() or not others.any()):
            raise ValueError(f"{self}: test must be one of at least two owners, which are {names[0]} to {names[-1]}")
        able = draw.permutation(np.flatnonzero((sizes >= self.min_size) & others))
        if not len(able):
            largest = sizes[others].max()
            raise ValueError(f"{self}: the largest of {others.sum()} owners has {largest} samples; lower min_size")
        held = np.cumsum(sizes[able])
        enough = int(np.searchsorted(held, self.fraction * held[-1])) + 1
        chosen = np.sort(able[: min(enough, max(1, round(self.users * len(able))))])
        if clients not in (None, len(chosen) * self.split):
            each = f" for {self.split} clients each" if self.split > 1 else ""
            raise ValueError(
                f"{self}: the data have {len(chosen)} such owners{each}, got clients={clients}; leave it out"
            )
        client = np.full(len(names), -1)
        client[chosen] = np.arange(len(chosen))
        samples = np.flatnonzero(client[user] >= 0)
        owner = client[user][samples]
        if self.samples == 1 and self.split == 1:
            return samples, owner
        kept = np.maximum(1, np.rint(self.samples * sizes[chosen])).astype(np.int64)
        if kept.min() < self.split:
            raise ValueError(
                f"{self}: {names[chosen[kept.argmin()]]} has {kept.min()} samples for {self.split} clients; use a "
                f"smaller split, or remove such owners with min_size={ceil(self.split / self.samples)}"
            )
        rank = ranks(owner, draw)
        taken = rank < kept[owner]
        return samples[taken], (owner * self.split + rank % self.split)[taken]


@dataclass(frozen=True)
class ByColumn(Natural):
    """The same, with the column of the data that names the owners; for data of your own, see `undrift.data.load`.

    Args:
        column: the name of the column.
    """

    column: str
    name: ClassVar[str] = "column"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.column:
            raise ValueError("column: the column with each example's client is missing; write column('NAME')")
