"""The instruments for many clients: each takes one vector at a time, never holds all, and adds to those of others.

`BandStream` is exact and holds one vector in double precision. `SpreadStream` and `GramStream` need pairs of clients
and hold a short random sketch of each, the same projection everywhere, so that sketches made on different workers
compare. `lens.alignment.CKAStream` runs over batches of samples instead of clients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.engine.random import derive
from undrift.lens.alignment import normalise
from undrift.lens.divergence import Divergence, Drift
from undrift.lens.spectrum import FILTERED, PLAIN, Consensus, Spread, edges, filtered, kept, long_band_energy
from undrift.vector import Layout, Vector

CHUNK = 1 << 18  # elements that are copied in double precision at once


@dataclass(frozen=True)
class _Setting:
    """What streams must share to be added: the layout, the bands, the filter, the width of a sketch and the seed."""

    layout: Layout
    bands: int
    filter: Filter | None
    width: int
    seed: int


class _Stream:
    """One row of numbers per client, and the rule that a client counts once."""

    def __init__(self, setting: _Setting) -> None:
        self.setting = setting
        self.rows: dict[int, Tensor] = {}

    @property
    def clients(self) -> tuple[int, ...]:
        """Those taken so far, sorted."""
        return tuple(sorted(self.rows))

    def column(self, i: int) -> Tensor:
        """Entry i of the clients' rows, in the order of their numbers, whatever the order in which they came."""
        if not self.rows:
            raise ValueError(f"{type(self).__name__}: no client was added yet")
        return torch.stack([self.rows[client][i] for client in self.clients])

    def merge(self, other: Self) -> Self:
        """Add what another stream saw to this one; the clients must differ. The order of merging does not matter."""
        if type(other) is not type(self) or other.setting != self.setting:
            raise ValueError(f"{type(self).__name__}: only streams with the same arguments can be merged")
        twice = sorted(self.rows.keys() & other.rows.keys())
        if twice:
            raise ValueError(f"{type(self).__name__}: client {twice[0]} is in both streams; a client counts once")
        self.rows.update(other.rows)
        return self

    def _take(self, client: int, v: Vector) -> list[Tensor]:
        """The tensors of a client's vector, filtered and flat; refuse a client that was here before."""
        if client in self.rows:
            raise ValueError(f"{type(self).__name__}: client {client} was added before; a client counts once")
        layout = self.setting.layout
        v = filtered(self.setting.filter, v.detach(), layout, client, self.setting.seed)
        return [tensor.reshape(-1) for tensor in layout.split(v.cpu())]


class BandStream(_Stream):
    """Exact sums over clients: the consensus per band, the drift and the mean. It holds one vector in double precision.

    Args:
        layout: names and shapes of the tensors.
        bands: how many bands of equal width.
        filter: if given, every vector is filtered first.
        seed: for filters that draw at random.
    """

    def __init__(self, layout: Layout, *, bands: int = 10, filter: Filter | None = None, seed: int = 0) -> None:
        super().__init__(_Setting(layout, bands, filter, 0, seed))
        self.kept = kept(layout, bands)
        self.total = torch.zeros(layout.size, dtype=torch.float64)
        self.sums = torch.zeros(2, len(self.kept), bands, dtype=torch.float64)

    def add(self, client: int, v: Vector) -> None:
        """Take a client's vector."""
        places, pieces = {i: n for n, i in enumerate(self.kept)}, self._take(client, v)
        # Made first, since small tensors that stay would cut up the room that the large ones leave.
        row = torch.empty(len(pieces), dtype=torch.float64)
        for i, (piece, part) in enumerate(zip(pieces, _slices(self.setting.layout.sizes), strict=True)):
            row[i] = _add(self.total[part], piece)
            if i in places:
                plain, energy = self._energy(piece)
                self.sums[0, places[i]] += plain
                self.sums[1, places[i]] += energy
        self.rows[client] = row

    def merge(self, other: Self) -> Self:
        """Add what another stream saw to this one."""
        super().merge(other)
        self.total += other.total
        self.sums += other.sums
        return self

    @property
    def mean(self) -> Vector:
        """The mean of the vectors, in double precision."""
        return self.total / len(self.column(0))

    def consensus(self) -> Consensus:
        """The same as `lens.consensus` of all vectors at once."""
        layout, bands, count = self.setting.layout, self.setting.bands, len(self.column(0))
        parts = _slices(layout.sizes)
        plain, energy = self.sums / count
        shared = torch.empty_like(self.sums)
        for n, i in enumerate(self.kept):
            shared[0, n], shared[1, n] = self._energy(self.total[parts[i]])
        shared /= count**2
        widths = torch.tensor([edges(layout.sizes[i], bands) for i in self.kept]).diff(dim=1)
        variance = (plain - shared[0]).clamp(min=0) / widths
        names = tuple(layout.names[i] for i in self.kept)
        return Consensus(names, count, energy, shared[1], variance)

    def drift(self, moved: Vector | None = None) -> Drift:
        """The same as `lens.client_drift` of all updates at once.

        Args:
            moved: the displacement of the global model; None takes the mean of the updates.
        """
        layout = self.setting.layout
        norms = torch.stack([self.column(i) for i in range(len(layout.sizes))], dim=1)
        inner = []
        for part in _slices(layout.sizes):
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


class _SketchStream(_Stream):
    """A sketch of each client's vector: `width` numbers for each of its cells, with the same signs for all clients."""

    def __init__(self, setting: _Setting, cells: Sequence[int]) -> None:
        if setting.width < 1:
            raise ValueError(f"{type(self).__name__}: width must be 1 or more, got {setting.width}")
        super().__init__(setting)
        self.cells = _slices(cells)
        draw = torch.Generator().manual_seed(derive(setting.seed, "lens/signs"))
        self.signs = torch.randint(0, 2, (sum(cells),), generator=draw, dtype=torch.int8).mul_(2).sub_(1)

    def sketch(self, x: Tensor, cell: int) -> Tensor:
        """The sums, with signs, of every width-th element; a cell of no more than `width` elements is kept exactly."""
        width, signs = self.setting.width, self.signs[self.cells[cell]]
        out = torch.zeros(width, dtype=torch.float64)
        step = max(CHUNK // width, 1) * width
        for start in range(0, len(x), step):
            part = x[start : start + step].double() * signs[start : start + step]
            whole = len(part) // width * width
            out += part[:whole].view(-1, width).sum(dim=0)
            out[: len(part) - whole] += part[whole:]
        return out


class SpreadStream(_SketchStream):
    """Estimates `lens.spread` from a sketch of each band of each client: 8 * width bytes for each.

    One distance has a relative error of about 1 / sqrt(2 width); the means over pairs and layers have much less. Bands
    with `width` numbers or fewer are exact.

    Args:
        layout: names and shapes of the tensors.
        bands: how many bands of equal width.
        filter: if given, every vector is filtered first.
        width: how many numbers stand for a band.
        seed: of the projection, the same wherever a part of the clients is taken.
    """

    def __init__(
        self, layout: Layout, *, bands: int = 10, filter: Filter | None = None, width: int = 8, seed: int = 0
    ) -> None:
        self.kept = kept(layout, bands)
        cuts = [pairwise(edges(layout.sizes[i], bands)) for i in self.kept]
        super().__init__(
            _Setting(layout, bands, filter, width, seed), [2 * (b - a) for pairs in cuts for a, b in pairs]
        )

    def add(self, client: int, v: Vector) -> None:
        """Take a client's vector."""
        bands, out = self.setting.bands, torch.empty(len(self.cells), self.setting.width, dtype=torch.float64)
        pieces = self._take(client, v)
        for n, i in enumerate(self.kept):
            bins = torch.view_as_real(torch.fft.rfft(pieces[i].double()))
            for b, (start, end) in enumerate(pairwise(edges(len(pieces[i]), bands))):
                out[n * bands + b] = self.sketch(bins[start:end].reshape(-1), n * bands + b)
        self.rows[client] = out

    def spread(self) -> Spread:
        """How far apart the clients are in each band; the root of a mean of squares is corrected for its bias."""
        width, bands, clients = self.setting.width, self.setting.bands, len(self.clients)
        if clients < 2:
            raise ValueError(f"SpreadStream: a pair needs two clients, got {clients}")
        found = torch.empty(len(self.cells), 3, dtype=torch.float64)
        for n, cell in enumerate(self.cells):
            numbers = cell.stop - cell.start
            pairs = torch.pdist(self.column(n))
            mean = pairs.mean() / (1 - max(0.0, 1 - width / numbers) / (4 * width))
            square = pairs.square_().mean()
            found[n, 0], found[n, 1] = mean, (square - mean.square()).clamp(min=0).sqrt()
            found[n, 2] = square * (clients - 1) / clients / numbers
        distance, deviation, variance = found.view(-1, bands, 3).unbind(dim=2)
        names = tuple(self.setting.layout.names[i] for i in self.kept)
        return Spread(names, distance, deviation, variance, PLAIN if self.setting.filter is None else FILTERED)


class GramStream(_SketchStream):
    """Estimates inner products of all pairs of clients, by layer: cosines, divergence, points for `pca_of_gram`.

    An inner product is off by about |x| |y| / sqrt(width) in a layer, and by less in the whole model; its expectation
    is exact.

    Args:
        layout: names and shapes of the tensors.
        filter: if given, every vector is filtered first.
        width: how many numbers stand for a tensor.
        seed: of the projection, the same wherever a part of the clients is taken.
    """

    def __init__(self, layout: Layout, *, filter: Filter | None = None, width: int = 64, seed: int = 0) -> None:
        super().__init__(_Setting(layout, 0, filter, width, seed), layout.sizes)

    def add(self, client: int, v: Vector) -> None:
        """Take a client's vector."""
        pieces = self._take(client, v)
        self.rows[client] = torch.stack([self.sketch(piece, i) for i, piece in enumerate(pieces)])

    def gram(self) -> Tensor:
        """The inner product of every pair of clients' vectors, estimated."""
        cells = (self.column(i) for i in range(len(self.cells)))
        first = next(cells)
        return reduce(lambda total, cell: total.addmm_(cell, cell.T), cells, first @ first.T)

    def cosines(self) -> Tensor:
        """The cosine of every pair of clients' vectors, estimated."""
        return normalise(self.gram())

    def divergence(self) -> Divergence:
        """The distances of clients from their mean, estimated, with a filter taken as linear: F(mean v) = mean F(v)."""
        squares, norm = [], []
        for i in range(len(self.cells)):
            cell = self.column(i)
            squares.append((cell - cell.mean(dim=0)).square().sum(dim=1))
            norm.append(torch.linalg.vector_norm(cell.mean(dim=0)))
        table = torch.stack(squares)
        return Divergence(
            layers=self.setting.layout.names,
            distance=table.sqrt().mean(dim=1),
            squared=table.mean(dim=1),
            norm=torch.stack(norm),
            clients=table.sum(dim=0).sqrt(),
            reading=PLAIN if self.setting.filter is None else FILTERED,
        )


def _slices(sizes: Sequence[int]) -> list[slice]:
    """Where pieces of these sizes lie one after the other."""
    return [slice(a, b) for a, b in pairwise((0, *accumulate(sizes)))]


def _add(total: Tensor, x: Tensor) -> Tensor:
    """Add to a total, and give the norm of what was added; in pieces, since both need a copy in double precision."""
    square = torch.zeros((), dtype=torch.float64)
    for into, part in zip(torch.split(total, CHUNK), torch.split(x, CHUNK), strict=True):
        double = part.double()
        into.add_(double)
        square += double @ double
    return square.sqrt()


def _whole(layers: Tensor) -> Tensor:
    """Numbers by layer, and their sum in the last place."""
    return torch.cat([layers, layers.sum(dim=0, keepdim=True)])
