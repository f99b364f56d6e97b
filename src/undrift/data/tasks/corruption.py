"""Feature shift: images under the corruptions of CIFAR-C, and which client's images get which.

The settings are those for 32 x 32 images; 28 x 28 grey images use the same. Of the nineteen types frost is missing
because it needs photographs of ice. All arithmetic is element by element and every image has its own random generator,
so the result does not depend on the other images of a batch.
"""

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike, NDArray

from undrift.core.model.random import derive
from undrift.data.distortion.kinds import KINDS, STANDARD
from undrift.data.distortion.names import check_images, kind_name
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
