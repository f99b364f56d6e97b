"""Which samples each client has: drawn by a scheme that a text names, and hashed.

The text is in the grammar of `undrift.util.naming.calls`: `dirichlet(0.1)`, `longtail(100, over=dirichlet(0.3))`, or
`package.module:function`, a function of the user; or in the short form of `short_form`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from undrift.core.model.random import derive
from undrift.data.arrays.images import need
from undrift.data.partitions.from_lists import FromFile, FromFunction, Listed, check_lists
from undrift.data.partitions.natural import ByColumn, Natural
from undrift.data.partitions.schemes import (
    Classes,
    Corrupt,
    Dirichlet,
    DirichletClient,
    Iid,
    Indices,
    LongTail,
    Quantity,
    Scheme,
)
from undrift.data.partitions.short_form import is_short, read_short, short_text
from undrift.data.partitions.skew import class_distances
from undrift.util.naming.binding import build, check_literals
from undrift.util.naming.calls import Call, read_call
from undrift.util.naming.names import unknown_name
from undrift.util.naming.references import Reference

SCHEMES: dict[str, type[Scheme]] = {
    scheme.name: scheme
    for scheme in (Iid, Dirichlet, DirichletClient, Classes, Quantity, Natural, ByColumn, FromFile, LongTail, Corrupt)
}
"""Name -> scheme."""

_EXAMPLE = 'for example "dirichlet(0.1)"'


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of each client; every sample has exactly one client if it is `disjoint` and `covers` the data.

    Args:
        clients: the sorted indices of each client's samples.
        labels: the class of every sample of the data, also of those no client has; all 0 if targets are not classes.
        scheme: the canonical text of the scheme.
        seed: the seed of the draw; None for a partition drawn elsewhere.
    """

    clients: tuple[Indices, ...]
    labels: Indices
    scheme: str
    seed: int | None

    def __repr__(self) -> str:
        """The description in one line."""
        return f"Partition({', '.join(f'{key}={value}' for key, value in self.describe().items())})"

    @cached_property
    def sizes(self) -> Indices:
        """How many samples each client has."""
        return np.array([len(own) for own in self.clients], np.int64)

    @cached_property
    def histogram(self) -> Indices:
        """How many samples of each class (column) each client (row) has."""
        classes = int(self.labels.max()) + 1
        rows = np.repeat(np.arange(len(self.clients)), self.sizes)
        cells = rows * classes + self.labels[np.concatenate(self.clients)]
        return np.bincount(cells, minlength=len(self.clients) * classes).reshape(-1, classes)

    @cached_property
    def uses(self) -> Indices:
        """How many clients have each sample of the data."""
        return np.bincount(np.concatenate(self.clients), minlength=len(self.labels))

    @property
    def disjoint(self) -> bool:
        """Whether no sample has two clients."""
        return bool(self.uses.max() <= 1)

    @property
    def covers(self) -> bool:
        """Whether every sample has a client."""
        return bool(self.uses.min() >= 1)

    @property
    def corrupted(self) -> bool:
        """Whether the images must be corrupted by `undrift.data.tasks.corruption`."""
        return self.corruption is not None

    @cached_property
    def corruption(self) -> Corrupt | None:
        """The types and the severity of the corruption; None if images stay as they are."""
        scheme = parse(self.scheme) if self.scheme.startswith(Corrupt.name) else None
        return scheme if isinstance(scheme, Corrupt) else None

    @cached_property
    def sha256(self) -> str:
        """A hash of the index lists, their order and their boundaries."""
        digest = sha256(np.array([len(self.clients), *self.sizes], "<i8").tobytes())
        digest.update(np.concatenate(self.clients).astype("<i8").tobytes())
        return digest.hexdigest()

    def describe(self) -> dict[str, int | float | str | None]:
        """A flat record; `skew` is the mean distance (total variation) of a client's class shares from the pool's.

        With one class, or targets that are not classes, `classes_mean` and `skew` are None.
        """
        held = self.histogram[self.sizes > 0]
        classes = held.shape[1]
        return {
            "scheme": self.scheme,
            "seed": self.seed,
            "clients": len(self.clients),
            "samples": int(self.sizes.sum()),
            "dropped": int((self.uses == 0).sum()),
            "shared": int((self.uses > 1).sum()),
            "size_min": int(self.sizes.min()),
            "size_median": float(np.median(self.sizes)),
            "size_max": int(self.sizes.max()),
            "classes_mean": float((self.histogram > 0).sum(axis=1).mean()) if classes > 1 else None,
            "skew": float(class_distances(held).mean()) if classes > 1 else None,
            "sha256": self.sha256,
        }


def partition(
    scheme: str | Scheme | Sequence[ArrayLike] | Mapping[str, ArrayLike],
    labels: ArrayLike,
    clients: int | None = None,
    seed: int = 0,
    owners: ArrayLike | None = None,
) -> Partition:
    """Distribute the samples of a data set over clients.

    Args:
        scheme: a scheme or its text, for example "dirichlet(0.1)" or "longtail(100, over=dirichlet-client(0.3))"; or
            the indices of each client's samples.
        labels: the class of each sample, whole numbers from 0; or numbers to predict, which only some schemes take.
        clients: how many clients; "natural" takes the data's own.
        seed: the seed of the draw.
        owners: the owner of each sample, for "natural" and "column('NAME')".

    Example:
        >>> partition("classes(2)", [0, 1, 2, 3] * 6, clients=4).sizes
        array([6, 6, 6, 6])
    """
    targets = np.asarray(labels)
    numbers = targets.dtype.kind == "f" and targets.size > 0
    known = np.zeros(len(targets), np.int64) if numbers else _labels(targets)
    if not isinstance(scheme, str | Scheme):
        return Partition(check_lists(scheme, len(known)), known, "lists", None)
    drawn = parse(scheme) if isinstance(scheme, str) else scheme
    whose = None if owners is None else np.asarray(owners)
    if whose is not None and whose.shape != known.shape:
        raise ValueError(f"partition: owners must name one for each of {len(known)} samples, got shape {whose.shape}")
    if isinstance(clients, bool) or not isinstance(clients, int | np.integer | None):
        raise TypeError(f"partition: clients must be a whole number, got {clients!r}")
    if numbers and (drawn.by_class or drawn.inner.by_class):
        raise ValueError(
            f"{drawn}: it distributes classes, and these targets are numbers; use iid, column('NAME'), "
            "file('clients.json') or a function of yours"
        )
    if isinstance(own := drawn.inner, Listed):
        return Partition(own.client_indices(targets, whose, clients, seed), known, str(drawn), seed)
    draw = np.random.default_rng(derive(seed, "partition"))
    samples, client = drawn.deal(known, whose, clients, draw)
    order = np.lexsort((samples, client))
    count = int(client.max()) + 1 if clients is None else int(clients)
    ends = np.cumsum(np.bincount(client, minlength=count))[:-1]
    return Partition(tuple(np.split(samples[order].astype(np.int64), ends)), known, str(drawn), seed)


@lru_cache(maxsize=256)
def parse(text: str) -> Scheme:
    """The scheme that a text names.

    Example:
        >>> str(parse("dirichlet(0.10, min_size=10, balance=False)")), str(parse("dirichlet:0.1"))
        ('dirichlet(0.1, balance=False)', 'dirichlet(0.1)')
    """
    return _scheme(read_short(text, SCHEMES) if is_short(text, SCHEMES) else read_call(text, _EXAMPLE))


def _scheme(call: Call) -> Scheme:
    """The scheme that a call names: one of ours, or a function of the user."""
    if call.name in SCHEMES:
        return build(SCHEMES[call.name], call, nested=_scheme)
    if Reference.parse(call.name) is None:
        raise ValueError(f"partition: {unknown_name('scheme', call.name, SCHEMES)}")
    if call.positional:
        raise ValueError(f"{call.source!r}: name its arguments, for example {call.name}(share=0.5)")
    check_literals(call)
    return FromFunction(call.name, tuple(sorted(call.named.items())))


def canonical_text(text: str) -> str:
    """The text of a partition as settings have it; a short form that is not canonical stays, as runs have recorded it.

    Example:
        >>> canonical_text("dirichlet:0.1"), canonical_text("dirichlet: 0.10")
        ('dirichlet(0.1)', 'dirichlet: 0.10')
    """
    scheme = parse(text)
    return text if is_short(text, SCHEMES) and text != short_text(scheme.call()) else str(scheme)


def identity_text(text: str) -> str:
    """The text that stands for a partition in the identity of a run: its short form, if that can be read.

    Example:
        >>> identity_text("dirichlet(0.1, balance=False)")
        'dirichlet:0.1,balance=false'
    """
    if is_short(text, SCHEMES):
        return text
    scheme = parse(text)
    short = short_text(scheme.call())
    with suppress(ValueError):
        if parse(short) == scheme:
            return short
    return str(scheme)


def from_flower(
    partitioner: Any, labels: ArrayLike, columns: Mapping[str, ArrayLike] | None = None, index: str = "index"
) -> Partition:
    """The partition of a partitioner from `flwr-datasets`.

    Args:
        partitioner: without a dataset, or with one that has the column `index`.
        labels: the class of each sample.
        columns: the columns that the partitioner reads, by name; default the labels as `label`.
        index: the column that numbers the samples.
    """
    known = _labels(labels)
    if not partitioner.is_dataset_assigned():
        made_from = need("datasets").Dataset.from_dict
        read = {name: np.asarray(column) for name, column in (columns or {"label": known}).items()}
        partitioner.dataset = made_from({**read, index: np.arange(len(known))})
    name = type(partitioner).__name__
    if index not in partitioner.dataset.column_names:
        raise ValueError(
            f"from_flower: the dataset of {name} has no column {index!r}; give it none, or number its rows"
        )
    parts = [partitioner.load_partition(i)[index] for i in range(partitioner.num_partitions)]
    clients = tuple(np.sort(np.asarray(part, np.int64)) for part in parts)
    if len(dealt := np.concatenate(clients)) and not 0 <= dealt.min() <= dealt.max() < len(known):
        raise ValueError(f"from_flower: {name} numbers samples up to {dealt.max()}, but there are {len(known)} labels")
    return Partition(clients, known, f"flower:{name}", None)


def _labels(labels: ArrayLike) -> Indices:
    """Labels as whole numbers from 0, one for each sample."""
    array = np.asarray(labels)
    if array.ndim != 1 or not len(array) or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(
            "partition: labels must be one whole number from 0 for each sample, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64)
