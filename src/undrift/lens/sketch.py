"""Streams that compare pairs of clients: they hold a short random sketch of each, with the same projection everywhere.

Sketches from different workers are therefore comparable. A sketch has the precision of its client's vector, so its
rounding error is no larger than that of the vector.
"""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Layout
from undrift.core.model.random import derive
from undrift.lens.alignment import normalise
from undrift.lens.divergence import Divergence
from undrift.lens.spectrum import FILTERED, PLAIN, Spread, banded_tensors, edges
from undrift.lens.stream import CHUNK, Stream, StreamSettings, slices


class _SketchStream(Stream):
    """A sketch of each client's vector: `width` numbers for each of its cells, with the same signs for all clients."""

    def __init__(self, setting: StreamSettings, cells: Sequence[int]) -> None:
        if setting.width < 1:
            raise ValueError(f"{type(self).__name__}: width must be 1 or more, got {setting.width}")
        super().__init__(setting)
        self.cells = slices(cells)
        self.bits = _bits(sum(cells), derive(setting.seed, "lens/signs"))

    def sketch(self, x: Tensor, cell: int) -> Tensor:
        """Signed sums of every width-th element; a cell of at most `width` elements is kept exactly."""
        width, first = self.setting.width, self.cells[cell].start
        out = torch.zeros(width, dtype=torch.float64)
        step = max(CHUNK // width, 1) * width
        for start in range(0, len(x), step):
            chunk = x[start : start + step]
            part = chunk.double() * _signs(self.bits, first + start, len(chunk))
            whole = len(part) // width * width
            out += part[:whole].view(-1, width).sum(dim=0)
            out[: len(part) - whole] += part[whole:]
        return out

    def _row(self, dtype: torch.dtype) -> Tensor:
        return torch.zeros(len(self.cells), self.setting.width, dtype=dtype)


class SpreadStream(_SketchStream):
    """Estimates `lens.spread` from a sketch of each band of each client: `width` numbers for each.

    A distance has a relative error of about 1 / sqrt(2 width), the means over pairs and layers a much smaller one.
    Bands with `width` numbers or fewer are exact.

    Args:
        layout: names and shapes of the tensors.
        bands: how many bands of equal width.
        filter: if given, every vector is filtered first.
        width: how many numbers represent a band.
        seed: of the projection; streams to be merged must have the same.
    """

    def __init__(
        self, layout: Layout, *, bands: int = 10, filter: Filter | None = None, width: int = 8, seed: int = 0
    ) -> None:
        self.kept = banded_tensors(layout, bands)
        cuts = [pairwise(edges(layout.sizes[i], bands)) for i in self.kept]
        super().__init__(
            StreamSettings(layout, bands, filter, width, seed), [2 * (b - a) for pairs in cuts for a, b in pairs]
        )

    def _put(self, row: Tensor, i: int, piece: Tensor) -> None:
        if i not in self.kept:
            return
        first = self.kept.index(i) * self.setting.bands
        bins = torch.view_as_real(torch.fft.rfft(piece))
        for cell, (start, end) in enumerate(pairwise(edges(len(piece), self.setting.bands)), first):
            row[cell] = self.sketch(bins[start:end].reshape(-1), cell)

    def spread(self) -> Spread:
        """How far apart the clients are in each band; the root of a mean of squares is corrected for its bias."""
        width, bands, clients = self.setting.width, self.setting.bands, len(self.clients)
        if clients < 2:
            raise ValueError(f"SpreadStream: a pair needs two clients, got {clients}")
        measures = torch.empty(len(self.cells), 3, dtype=torch.float64)
        for n, cell in enumerate(self.cells):
            numbers = cell.stop - cell.start
            pairs = torch.pdist(self.column(n))
            mean = pairs.mean() / (1 - max(0.0, 1 - width / numbers) / (4 * width))
            square = pairs.square_().mean()
            measures[n, 0], measures[n, 1] = mean, (square - mean.square()).clamp(min=0).sqrt()
            measures[n, 2] = square * (clients - 1) / clients / numbers
        distance, deviation, variance = measures.view(-1, bands, 3).unbind(dim=2)
        names = tuple(self.setting.layout.names[i] for i in self.kept)
        return Spread(names, distance, deviation, variance, PLAIN if self.setting.filter is None else FILTERED)


class GramStream(_SketchStream):
    """Estimates inner products of all pairs of clients, by layer: cosines, divergence, points for `pca_of_gram`.

    The error of an inner product is about |x| |y| / sqrt(width) in a layer and less in the whole model; the estimate is
    unbiased.

    Args:
        layout: names and shapes of the tensors.
        filter: if given, every vector is filtered first.
        width: how many numbers represent a tensor.
        seed: of the projection; streams to be merged must have the same.
    """

    def __init__(self, layout: Layout, *, filter: Filter | None = None, width: int = 64, seed: int = 0) -> None:
        super().__init__(StreamSettings(layout, 0, filter, width, seed), layout.sizes)

    def _put(self, row: Tensor, i: int, piece: Tensor) -> None:
        row[i] = self.sketch(piece, i)

    def gram(self) -> Tensor:
        """The inner product of every pair of clients' vectors, estimated."""
        cells = (self.column(i) for i in range(len(self.cells)))
        first = next(cells)
        return reduce(lambda total, cell: total.addmm_(cell, cell.T), cells, first @ first.T)

    def cosines(self) -> Tensor:
        """The cosine of every pair of clients' vectors, estimated."""
        return normalise(self.gram())

    def divergence(self) -> Divergence:
        """The estimated distances of clients from their mean; a filter must be linear: F(mean v) = mean F(v)."""
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


def _bits(count: int, seed: int) -> Tensor:
    """Random bits, eight to a byte: a vector of signs would be a quarter of the model's size."""
    draw = torch.Generator().manual_seed(seed)
    packed = torch.empty(-(-count // 8), dtype=torch.uint8)
    for part in torch.split(packed, CHUNK // 8):
        drawn = torch.randint(0, 2, (len(part), 8), generator=draw, dtype=torch.uint8)
        part.copy_((drawn << torch.arange(8, dtype=torch.uint8)).sum(dim=1))
    return packed


def _signs(bits: Tensor, start: int, count: int) -> Tensor:
    """A range of the bits as 1 and -1."""
    skipped = start % 8
    packed = bits[start // 8 : -(-(start + count) // 8)].unsqueeze(1)
    ones = (packed >> torch.arange(8, dtype=torch.uint8)).bitwise_and_(1).view(torch.int8).flatten()
    return ones[skipped : skipped + count].mul_(2).sub_(1)
