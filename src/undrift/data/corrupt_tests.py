"""The official test set under corruption: every image under every type, made once."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undrift.data import cache
from undrift.data.corruption import corrupt, own_kinds, sample_keys
from undrift.data.dataset import Split
from undrift.data.distortion.kinds import STANDARD
from undrift.data.distortion.names import check_images
from undrift.data.distortion.tools import Images

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
        """The settings alone."""
        return {name: getattr(self, name) for name in ("clean", "kinds", "severity", "seed")}

    def under(self, kind: str) -> Split:
        """The whole test set under one type."""
        if kind not in self.kinds:
            raise ValueError(f"CorruptTests: {kind!r} is none of the types tested: {', '.join(self.kinds)}")
        if kind not in self._made:
            self._made[kind] = Split(torch.from_numpy(self._stored(kind)), self.clean.targets, self.clean.owners)
        return self._made[kind]

    def make(self) -> None:
        """Make or read the images of all types."""
        for kind in self.kinds:
            self.under(kind)

    def places(self, client: int, chosen: Tensor) -> Tensor:
        """Where a client's own test examples are if the types' test sets follow one another, each under its type."""
        own = own_kinds(client, chosen.numpy(), self.seed, self.kinds)
        number = {kind: i for i, kind in enumerate(self.kinds)}
        return torch.tensor([number[kind] for kind in own.tolist()], dtype=torch.int64) * len(self.clean) + chosen

    def take(self, places: Tensor) -> Split:
        """The examples at these places; see `places`."""
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

    def _stored(self, kind: str) -> Images:
        """The images of a type, from the cache or made and stored there."""
        shape = tuple(self.clean.inputs.shape)
        entry = cache.entry(f"corrupt-{kind}-{self.severity}", (), VERSION, FIXED, shape, self._digest)
        held = cache.read(entry)
        if held is None:
            keys = sample_keys(FIXED, np.arange(len(self.clean)), f"test {kind}")
            images = {"images": corrupt(self.clean.inputs.numpy(), kind, keys, self.severity)}
            held = (cache.write(entry, images, "") and cache.read(entry)) or (images, "")
        return held[0]["images"]
