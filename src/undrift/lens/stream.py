"""Instruments for many clients: each takes one vector or tensor at a time, never holds all, and can be merged.

`BandStream` is exact and holds one vector in double precision. The streams in `lens.sketch` need pairs of clients and
hold a short random sketch of each. `lens.alignment.CKAStream` runs over batches of samples instead of clients.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Layout, Vector
from undrift.lens.divergence import Drift
from undrift.lens.spectrum import BandConsensus, apply_filter, banded_tensors, edges, long_band_energy

CHUNK = 1 << 16  # elements that are copied in double precision at once


@dataclass(frozen=True)
class StreamSettings:
    """What streams must share to be merged: the layout, the bands, the filter, the width of a sketch and the seed."""

    layout: Layout
    bands: int
    filter: Filter | None
    width: int
    seed: int


class Stream(ABC):
    """One row of numbers per client, filled tensor by tensor, and the rule that a client counts once."""

    def __init__(self, setting: StreamSettings) -> None:
        self.setting = setting
        self.rows: dict[int, Tensor] = {}

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients added so far, sorted."""
        return tuple(sorted(self.rows))

    def column(self, i: int) -> Tensor:
        """Entry i of the clients' rows, ordered by client number whatever the order of arrival."""
        if not self.rows:
            raise ValueError(f"{type(self).__name__}: no client has been added yet; call add first")
        return torch.stack([self.rows[client][i] for client in self.clients]).double()

    def add(self, client: int, v: Vector) -> None:
        """Add a client's vector."""
        self._refuse_twice(client)
        layout = self.setting.layout
        pieces = layout.split(apply_filter(self.setting.filter, v.detach(), layout, client, self.setting.seed))
        row = self.rows[client] = self._row(v.dtype)
        for i, piece in enumerate(pieces):
            self._put(row, i, piece.cpu().reshape(-1))

    def begin(self, client: int, dtype: torch.dtype = torch.float32) -> Callable[[int, Tensor], None]:
        """Start a client whose tensors arrive one at a time, in any order, each once; missing tensors are zero.

        Args:
            client: its number.
            dtype: of its tensors.

        Returns:
            A function that takes a tensor's position in the layout and the tensor, which is not kept.
        """
        self._refuse_twice(client)
        if self.setting.filter is not None:
            raise ValueError(f"{type(self).__name__}: {self.setting.filter!r} needs whole vectors: use add")
        row = self.rows[client] = self._row(dtype)
        return partial(self._take, row)

    def merge(self, other: Self) -> Self:
        """Add another stream's clients to this one; no client may be in both. The order of merging does not matter."""
        if type(other) is not type(self) or other.setting != self.setting:
            raise ValueError(f"{type(self).__name__}: only streams with the same arguments can be merged")
        twice = sorted(self.rows.keys() & other.rows.keys())
        if twice:
            raise ValueError(f"{type(self).__name__}: client {twice[0]} is in both streams; a client counts once")
        self.rows.update(other.rows)
        return self

    def _refuse_twice(self, client: int) -> None:
        if client in self.rows:
            raise ValueError(f"{type(self).__name__}: client {client} was added before; a client counts once")

    def _take(self, row: Tensor, i: int, tensor: Tensor) -> None:
        layout = self.setting.layout
        if tensor.numel() != layout.sizes[i]:
            raise ValueError(f"{layout.names[i]}: expected {layout.sizes[i]} elements, got shape {tuple(tensor.shape)}")
        self._put(row, i, tensor.detach().cpu().reshape(-1))

    @abstractmethod
    def _row(self, dtype: torch.dtype) -> Tensor:
        """Zeros for a client's numbers, allocated before its temporary tensors so that memory is not fragmented."""

    @abstractmethod
    def _put(self, row: Tensor, i: int, piece: Tensor) -> None:
        """Add tensor i of a client, flattened, to its row."""


class BandStream(Stream):
    """Exact sums over clients: the consensus per band, the drift and the mean. It holds one vector in double precision.

    Args:
        layout: names and shapes of the tensors.
        bands: how many bands of equal width.
        filter: if given, every vector is filtered first.
        seed: for filters that draw at random.
    """

    def __init__(self, layout: Layout, *, bands: int = 10, filter: Filter | None = None, seed: int = 0) -> None:
        super().__init__(StreamSettings(layout, bands, filter, 0, seed))
        self.kept, self.parts = banded_tensors(layout, bands), slices(layout.sizes)
        # NumPy's zeros take memory only when first written, so a model may be made in between.
        self.total = torch.from_numpy(np.zeros(layout.size))
        self.sums = torch.zeros(2, len(self.kept), bands, dtype=torch.float64)

    def _row(self, dtype: torch.dtype) -> Tensor:
        return torch.zeros(len(self.setting.layout.sizes), dtype=torch.float64)

    def _put(self, row: Tensor, i: int, piece: Tensor) -> None:
        row[i] = _add(self.total[self.parts[i]], piece)
        if i in self.kept:
            raw, energy = self._energy(piece)
            place = self.kept.index(i)
            self.sums[0, place] += raw
            self.sums[1, place] += energy

    def merge(self, other: Self) -> Self:
        """Add another stream's clients to this one."""
        super().merge(other)
        self.total += other.total
        self.sums += other.sums
        return self

    @property
    def mean(self) -> Vector:
        """The mean of the vectors, in double precision."""
        return self.total / len(self.column(0))

    def consensus(self) -> BandConsensus:
        """The same as `lens.consensus` of all vectors at once."""
        layout, bands, count = self.setting.layout, self.setting.bands, len(self.column(0))
        raw, energy = self.sums / count
        shared = torch.empty_like(self.sums)
        for n, i in enumerate(self.kept):
            shared[0, n], shared[1, n] = self._energy(self.total[self.parts[i]])
        shared /= count**2
        widths = torch.tensor([edges(layout.sizes[i], bands) for i in self.kept]).diff(dim=1)
        variance = (raw - shared[0]).clamp(min=0) / widths
        names = tuple(layout.names[i] for i in self.kept)
        return BandConsensus(names, count, energy, shared[1], variance)

    def drift(self, moved: Vector | None = None) -> Drift:
        """The same as `lens.client_drift` of all updates at once.

        Args:
            moved: the displacement of the global model; None takes the mean of the updates.
        """
        layout = self.setting.layout
        norms = torch.stack([self.column(i) for i in range(len(layout.sizes))], dim=1)
        inner = []
        for part in self.parts:
            total = self.total[part]
            step, scale = (total, len(norms)) if moved is None else (moved[part].double(), 1)
            inner.append(torch.stack([total @ step / (len(norms) * scale), step @ step / scale**2]))
        cross, travel = map(_whole, torch.stack(inner).unbind(dim=1))
        squares = norms.square()
        return Drift(
            layers=layout.names,
            distance=torch.cat([norms, squares.sum(dim=1, keepdim=True).sqrt()], dim=1).mean(dim=0),
            scatter=_whole(squares.mean(dim=0)) - 2 * cross + travel,
            moved=travel.sqrt(),
        )

    def _energy(self, piece: Tensor) -> tuple[Tensor, Tensor]:
        return long_band_energy(piece, self.setting.bands)


def slices(sizes: Sequence[int]) -> list[slice]:
    """The slices of consecutive pieces of these sizes."""
    return [slice(a, b) for a, b in pairwise((0, *accumulate(sizes)))]


def _add(total: Tensor, x: Tensor) -> Tensor:
    """Add to a total and return the norm of the addend; in chunks, since both need a copy in double precision."""
    square = torch.zeros((), dtype=torch.float64)
    for into, part in zip(torch.split(total, CHUNK), torch.split(x, CHUNK), strict=True):
        double = part.double()
        into.add_(double)
        square += double @ double
    return square.sqrt()


def _whole(layers: Tensor) -> Tensor:
    """Numbers by layer, followed by their sum."""
    return torch.cat([layers, layers.sum(dim=0, keepdim=True)])
