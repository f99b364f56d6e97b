"""A private part of the model."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.block import Personalization
from undrift.types import Array, Run
from undrift.vector import Layout, Vector


class Own(NamedTuple):
    """A client's private values; empty before its first round."""

    values: Array


@dataclass(frozen=True)
class Private(Personalization):
    """client:  the tensors named stay with the client; corrections and filters act on the others only

    Args:
        names: name patterns of the private tensors, for example ("head.*",); () shares everything.
    """

    Client = Own

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.names, str):
            raise TypeError(
                f"Private: names must be a tuple of patterns, got the string {self.names!r}; write ({self.names!r},)"
            )

    def init_client(self, w: Vector) -> Own:
        """Nothing: the first round starts from the common initial values."""
        return Own(torch.empty(0, dtype=w.dtype))

    def shared(self, layout: Layout) -> Tensor | None:
        """Everything that is not named."""
        return _shared(self.names, layout) if self.names else None

    def start(self, params: Vector, kept: Own, layout: Layout) -> Vector:
        """The shared model with the client's own values in it."""
        start = params.clone()
        mask = self.shared(layout)
        if mask is not None and len(kept.values):
            start[~mask] = kept.values
        return start

    def finish(self, local: Own, run: Run) -> tuple[None, Own]:
        """Keep the private values."""
        mask = self.shared(run.layout)
        return None, Own(run.w[:0].clone() if mask is None else run.w[~mask])


@lru_cache(maxsize=64)
def _shared(names: tuple[str, ...], layout: Layout) -> Tensor:
    """The shared elements of a layout; every pattern must name something."""
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise ValueError(f"Private: no tensor is named {pattern!r}; the model has {', '.join(layout.names)}")
    return ~layout.mask(lambda name, _: any(fnmatchcase(name, pattern) for pattern in names))
