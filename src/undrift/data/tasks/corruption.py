"""Feature shift: images under the corruptions of CIFAR-C, which client's images get which, and the test set under each.

The settings are those for 32 x 32 images; 28 x 28 grey images use the same. Of the nineteen types frost is missing
because it needs photographs of ice. All arithmetic is element by element and every image has its own random generator,
so the result does not depend on the other images of a batch.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from undrift.core.model.random import derive
from undrift.data.arrays import cache
from undrift.data.arrays.dataset import Arrays, Split
from undrift.data.distortion.kinds import KINDS, STANDARD, check_images, kind_name
from undrift.data.distortion.tools import Images, to_bytes
from undrift.data.partitions.draw import Partition

CHUNK = 256


def corrupt(images: Images, kind: str, keys: ArrayLike, severity: int = 3) -> Images:
    """Apply one corruption to images.

    Args:
        images: images x channels x rows x columns, with one channel or three.
        kind: one of `KINDS`.
        keys: an integer for each image, from `sample_keys`, that seeds its random numbers.
        severity: 1 to 5, as in CIFAR-C.
    """
    kind = kind_name(kind)
    if severity not in range(1, 6):
        raise ValueError(f"corrupt: severity must be a whole number from 1 to 5, got {severity}")
    numbers = np.asarray(keys, np.uint64)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            "corrupt: images must be uint8 of shape (images, 1 or 3 channels, rows, columns), "
            f"got {images.dtype} of shape {images.shape}"
        )
    check_images((kind,), images.shape[1:])
    if numbers.shape != images.shape[:1]:
        raise ValueError(f"corrupt: {len(images)} images need as many keys, got shape {numbers.shape}")
    change, levels = KINDS[kind]
    out = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        part = slice(start, start + CHUNK)
        draws = [Generator(Philox(key=key)) for key in numbers[part].tolist()]
        pixels = images[part].astype(np.float32) / np.float32(255)
        out[part] = to_bytes(change(pixels, draws, *levels[severity - 1]))
    return out


def sample_keys(seed: int, samples: ArrayLike, purpose: str = "corruption") -> NDArray[np.uint64]:
    """A hash of (seed, sample index, purpose) for each sample, without collisions between samples."""
    state = np.asarray(samples, np.uint64) + np.uint64(derive(seed, purpose))
    state = state * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    hashed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return hashed


def client_kinds(client: int, seed: int, kinds: tuple[str, ...] = STANDARD) -> tuple[str, ...]:
    """The corruptions of a client: two or three different ones of `kinds`, with equal probability; one if it is all."""
    draw = np.random.default_rng(derive(seed, "corruption", client))
    count = min(int(draw.integers(2, 4)), len(kinds))
    return tuple(kinds[i] for i in draw.choice(len(kinds), size=count, replace=False))


def own_kinds(client: int, samples: ArrayLike, seed: int, kinds: tuple[str, ...] = STANDARD) -> NDArray[np.str_]:
    """The corruption of each of a client's samples, one of the client's, by a hash of (seed, sample index)."""
    choice = np.array(client_kinds(client, seed, kinds))
    own: NDArray[np.str_] = choice[sample_keys(seed, samples, "kind") % np.uint64(len(choice))]
    return own


def assign(partition: Partition, seed: int) -> NDArray[np.str_]:
    """The corruption of every sample, one of its client's, fixed for all epochs; "" for samples no client has."""
    if not partition.disjoint:
        raise ValueError(
            f"assign: clients of {partition.scheme} share samples, so a sample's client is not known; "
            "use a scheme whose clients share none, for example dirichlet"
        )
    kinds = STANDARD if partition.corruption is None else partition.corruption.kinds
    out = np.full(len(partition.labels), "", f"<U{max(map(len, KINDS))}")
    for client, own in enumerate(partition.clients):
        out[own] = own_kinds(client, own, seed, kinds)
    return out


def corrupted(images: Images, kinds: NDArray[np.str_], seed: int, severity: int = 3) -> Images:
    """All images of a data set, each with its own corruption; those whose kind is "" are unchanged."""
    out = images.copy()
    for kind in np.unique(kinds[kinds != ""]).tolist():
        own = np.flatnonzero(kinds == kind)
        out[own] = corrupt(images[own], kind, sample_keys(seed, own), severity)
    return out


VERSION = 1
"""Part of every cache key: increase it when a corruption changes."""

FIXED = 0
"""The seed of the test images: as in CIFAR-C, they are the same in all runs."""


@dataclass(frozen=True, eq=False)
class CorruptTests:
    """The official test set under each type of corruption.

    A test image is a function of its index, the type, the severity and `FIXED`. The images of a type are made when they
    are first needed and stored in the cache folder; from then on they are memory-mapped. They are not pickled: a worker
    makes or reads its own if it needs any.

    Args:
        clean: the official test set.
        kinds: the types.
        severity: 1 to 5, as in CIFAR-C.
        seed: that of the clients' types; test images do not depend on it.
    """

    clean: Split
    kinds: tuple[str, ...] = STANDARD
    severity: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        check_images(self.kinds, tuple(self.clean.inputs.shape[1:]))

    def __getstate__(self) -> dict[str, Any]:
        """The arguments, without the images made so far."""
        return {name: getattr(self, name) for name in ("clean", "kinds", "severity", "seed")}

    def under(self, kind: str) -> Split:
        """The whole test set under one type."""
        if kind not in self.kinds:
            raise ValueError(f"CorruptTests: {kind!r} is none of the types tested: {', '.join(self.kinds)}")
        if kind not in self._made:
            self._made[kind] = Split(torch.from_numpy(self._read_or_make(kind)), self.clean.targets, self.clean.owners)
        return self._made[kind]

    def make(self) -> None:
        """Make or read the images of all types."""
        for kind in self.kinds:
            self.under(kind)

    def places(self, client: int, chosen: Tensor) -> Tensor:
        """The positions of a client's own test examples, each under its type, in all types' test sets concatenated."""
        own = own_kinds(client, chosen.numpy(), self.seed, self.kinds)
        number = {kind: i for i, kind in enumerate(self.kinds)}
        return torch.tensor([number[kind] for kind in own.tolist()], dtype=torch.int64) * len(self.clean) + chosen

    def take(self, places: Tensor) -> Split:
        """The examples at these positions; see `places`."""
        kind, chosen = places // len(self.clean), places % len(self.clean)
        inputs = torch.empty((len(places), *self.clean.inputs.shape[1:]), dtype=self.clean.inputs.dtype)
        for number in sorted(set(kind.tolist())):
            inputs[kind == number] = self.under(self.kinds[number]).inputs[chosen[kind == number]]
        return Split(inputs, self.clean.targets[chosen])

    @cached_property
    def _made(self) -> dict[str, Split]:
        return {}

    @cached_property
    def _digest(self) -> str:
        """The hash of the clean images."""
        return sha256(np.ascontiguousarray(self.clean.inputs.numpy()).tobytes()).hexdigest()

    def _read_or_make(self, kind: str) -> Images:
        """The images of a type, from the cache or made and stored there."""
        shape = tuple(self.clean.inputs.shape)
        entry = cache.entry(f"corrupt-{kind}-{self.severity}", (), VERSION, FIXED, shape, self._digest)

        def make() -> tuple[Arrays, str]:
            keys = sample_keys(FIXED, np.arange(len(self.clean)), f"test {kind}")
            return {"images": corrupt(self.clean.inputs.numpy(), kind, keys, self.severity)}, ""

        return cache.read_or_make(entry, make)[0]["images"]
