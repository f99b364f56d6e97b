"""Feature shift: the standard image corruptions at severity 3, and which client's images get which.

The settings are those for 32 x 32 images; 28 x 28 grey ones take the same. Of the fifteen standard types frost is left
out, since it needs photographs of ice. All arithmetic is element by element and every image has a generator of its own,
so that the result does not depend on the images beside it.
"""

import numpy as np
from numpy.random import Generator, Philox
from numpy.typing import ArrayLike, NDArray

from undrift.core.random import derive
from undrift.data.distortion import KINDS, Images, to_bytes
from undrift.data.partition import Partition
from undrift.util.names import suggest

CHUNK = 256


def corrupt(images: Images, kind: str, keys: ArrayLike) -> Images:
    """Corrupt images, all in one way.

    Args:
        images: images x channels x rows x columns, with one channel or three.
        kind: one of `KINDS`.
        keys: a whole number for each image, from `sample_keys`, that fixes what is random about it.
    """
    if kind not in KINDS:
        raise ValueError(f"corrupt: no corruption is named {kind!r}; {suggest(kind, KINDS)}")
    numbers = np.asarray(keys, np.uint64)
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            "corrupt: images must be uint8 of shape (images, 1 or 3 channels, rows, columns), "
            f"got {images.dtype} of shape {images.shape}"
        )
    if numbers.shape != images.shape[:1]:
        raise ValueError(f"corrupt: {len(images)} images need as many keys, got shape {numbers.shape}")
    out = np.empty_like(images)
    for start in range(0, len(images), CHUNK):
        part = slice(start, start + CHUNK)
        draws = [Generator(Philox(key=key)) for key in numbers[part].tolist()]
        out[part] = to_bytes(KINDS[kind](images[part].astype(np.float32) / np.float32(255), draws))
    return out


def sample_keys(seed: int, samples: ArrayLike, purpose: str = "corruption") -> NDArray[np.uint64]:
    """A hash of (seed, sample index, purpose) for each sample; different samples get different ones."""
    state = np.asarray(samples, np.uint64) + np.uint64(derive(seed, purpose))
    state = state * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    hashed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return hashed


def client_kinds(client: int, seed: int) -> tuple[str, ...]:
    """The corruptions of a client: two or three, each number as likely, all different."""
    draw = np.random.default_rng(derive(seed, "corruption", client))
    chosen = draw.choice(len(KINDS), size=draw.integers(2, 4), replace=False)
    return tuple(list(KINDS)[i] for i in chosen)


def assign(partition: Partition, seed: int) -> NDArray[np.str_]:
    """The corruption of every sample, one of its client's, fixed for all epochs; "" for samples no client has."""
    if not partition.disjoint:
        raise ValueError(f"assign: clients of {partition.scheme} share samples, so a sample's client is not known")
    kinds = np.full(len(partition.labels), "", f"<U{max(map(len, KINDS))}")
    for client, own in enumerate(partition.clients):
        choice = np.array(client_kinds(client, seed))
        kinds[own] = choice[sample_keys(seed, own, "kind") % np.uint64(len(choice))]
    return kinds


def corrupted(images: Images, kinds: NDArray[np.str_], seed: int) -> Images:
    """All images of a data set, each corrupted in its own way; those whose kind is "" stay as they are."""
    out = images.copy()
    for kind in np.unique(kinds[kinds != ""]).tolist():
        own = np.flatnonzero(kinds == kind)
        out[own] = corrupt(images[own], kind, sample_keys(seed, own))
    return out
