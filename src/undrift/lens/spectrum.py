"""Clients' vectors band by band: how far apart they are at each frequency, and how much of each they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt, pi

import torch
from torch import Tensor

from undrift.blocks.spectral import Filter
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.model.random import generator

PLAIN = (
    "Raw values scale with the size of a layer and the length of its vectors: compare layers, rounds and methods by "
    "the normalised ones."
)
FILTERED = (
    PLAIN + " These are values after a filter. An orthogonal projection such as high_pass lowers every distance, "
    "variance and divergence by construction, so that the decrease is no evidence; read the relative forms, and "
    "`filtering` for what was removed."
)

LONG, BLOCK = 1 << 18, 16  # sequences of LONG or more elements are transformed in blocks of BLOCK rows

Vectors = Tensor | Sequence[Vector]
"""Clients' vectors: one per row, or a sequence of them."""


def rows(name: str, vectors: Vectors, layout: Layout | None = None, least: int = 1) -> Tensor:
    """Clients' vectors as a matrix, one row each; anything else is rejected, as are numbers that are not finite.

    Args:
        name: the calling function, for the message.
        vectors: the vectors.
        layout: if given, the rows must be as long as its vector.
        least: the minimum number of rows.
    """
    matrix = vectors if isinstance(vectors, Tensor) else torch.stack(list(vectors)) if len(vectors) else torch.empty(0)
    if matrix.dim() != 2 or len(matrix) < least or not matrix.is_floating_point():
        raise ValueError(
            f"{name}: vectors must be at least {least} rows of floating numbers, one per client, "
            f"got shape {tuple(matrix.shape)} of {matrix.dtype}"
        )
    if layout is not None and matrix.shape[1] != layout.size:
        raise ValueError(f"{name}: a vector must have the {layout.size} elements of the layout, got {matrix.shape[1]}")
    finite = matrix.isfinite().all(dim=1)
    if not bool(finite.all()):
        raise ValueError(
            f"{name}: row {int(finite.int().argmin())} is not finite; if the model has diverged, measure an earlier "
            "round, otherwise leave the row out"
        )
    return matrix.detach().cpu()


def apply_filter(filter: Filter | None, v: Vector, layout: Layout, client: int, seed: int = 0) -> Vector:
    """A client's vector after a filter; a random filter gets a generator of its own for every client."""
    return v if filter is None else filter(v, layout, generator(seed, 0, client, "lens"))


def edges(size: int, bands: int) -> list[int]:
    """Where the bands of a tensor's size // 2 + 1 bins begin, and the end: floor(b * bins / bands)."""
    bins = size // 2 + 1
    return [b * bins // bands for b in range(bands + 1)]


def banded_tensors(layout: Layout, bands: int) -> list[int]:
    """The positions in the layout of the tensors that have a bin for every band; the others are skipped."""
    if bands < 1:
        raise ValueError(f"bands must be 1 or more, got {bands}")
    fitting = [i for i, size in enumerate(layout.sizes) if size // 2 + 1 >= bands]
    if not fitting:
        raise ValueError(
            f"no tensor has the {2 * bands - 2} elements that {bands} bands need; the largest has {max(layout.sizes)}: "
            f"take a larger model, or in Python bands={max(layout.sizes) // 2 + 1} or fewer"
        )
    return fitting


def band_energy(power: Tensor, size: int, bands: int) -> tuple[Tensor, Tensor]:
    """The energy of spectra in each band, as the sum of |V|^2 over the bins and in the tensor's own units.

    The second counts every bin but the mean and the Nyquist bin twice and divides by the size, so that the bands of a
    tensor add up to its squared norm.
    """
    sums = torch.stack([power[..., a:b].sum(dim=-1) for a, b in pairwise(edges(size, bands))], dim=-1)
    energy = 2 * sums
    energy[..., 0] -= power[..., 0]
    if size % 2 == 0:
        energy[..., -1] -= power[..., -1]
    return sums, energy / size


def long_band_energy(x: Tensor, bands: int) -> tuple[Tensor, Tensor]:
    """`band_energy` of one long sequence, with memory for only half of its spectrum.

    The sequence is a matrix, the transform one of its columns, a rotation and one of its rows (Bailey's four steps):
    row k1 and column k2 are bin k1 + n1 k2. A real sequence needs the rows up to n1 / 2; all but the first and the last
    of them also represent their mirror images.
    """
    size = len(x)
    n1 = next(n for n in range(isqrt(size), 0, -1) if size % n == 0)
    if size < LONG or n1 < 2 * BLOCK:
        return band_energy(_square(torch.fft.rfft(x.double())), size, bands)
    table, n2 = x.view(n1, -1), size // n1
    work = torch.empty(n1 // 2 + 1, n2, dtype=torch.complex128)
    for c in range(0, n2, BLOCK):
        work[:, c : c + BLOCK] = torch.fft.rfft(table[:, c : c + BLOCK].double(), dim=0)
    place, cuts = torch.arange(n2), torch.tensor(edges(size, bands)[1:])
    energy, alone = torch.zeros(2, bands, dtype=torch.float64)
    for r in range(0, len(work), BLOCK):
        row = torch.arange(r, min(r + BLOCK, len(work))).unsqueeze(1)
        angle = (row * place).double() * (-2 * pi / size)
        power = _square(torch.fft.fft(work[r : r + BLOCK] * torch.polar(torch.ones_like(angle), angle)))
        power *= torch.where((row == 0) | (2 * row == n1), 1.0, 2.0)
        bin = row + n1 * place
        band = torch.searchsorted(cuts, torch.minimum(bin, size - bin), right=True)
        energy += torch.bincount(band.flatten(), weights=power.flatten(), minlength=bands)
        real = (bin == 0) | (2 * bin == size)
        alone += torch.bincount(band[real], weights=power[real], minlength=bands)
    return (energy + alone) / 2, energy / size


def _square(bins: Tensor) -> Tensor:
    """The squared magnitude of complex numbers; the input is overwritten."""
    return torch.view_as_real(bins).square_().sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Spread:
    """How far apart clients are in each band; rows are layers, columns bands.

    Args:
        layers: the names of the tensors.
        distance: the mean over pairs of clients of the norm of V_j - V_k in the band, V = rfft(v) unnormalised.
        deviation: the standard deviation of these norms over the pairs.
        variance: the mean over the band's bins of the clients' variance (1/C) sum_k |V_k - mean V|^2.
        reading: how to read the numbers.
    """

    layers: tuple[str, ...]
    distance: Tensor
    deviation: Tensor
    variance: Tensor
    reading: str = PLAIN

    @property
    def overall(self) -> dict[str, Tensor]:
        """Each measure per band over all layers; `deviation` is over layers and pairs at once, so it mixes layers."""
        mean = self.distance.mean(dim=0)
        mixed = (self.deviation.square() + (self.distance - mean).square()).mean(dim=0).sqrt()
        variance = self.variance.mean(dim=0)
        return {"distance": mean, "deviation": mixed, "variance": variance, "normalised": _unit(mean)}

    @property
    def normalised(self) -> Tensor:
        """Each layer's distances divided by the root of the sum of their squares over the bands."""
        return _unit(self.distance)

    def as_dict(self) -> dict[str, float | str]:
        """All numbers: `distance/3` is that of band 3 over all layers, `conv.weight/distance/3` that of a layer."""
        own = {"distance": self.distance, "deviation": self.deviation, "variance": self.variance}
        return {**_flat(self.overall, self.layers, {**own, "normalised": self.normalised}), "reading": self.reading}


def spread(vectors: Vectors, layout: Layout, *, bands: int = 10, filter: Filter | None = None, seed: int = 0) -> Spread:
    """How far apart clients' gradients, perturbations or updates are in each band of each tensor's spectrum.

    A tensor is read as a sequence in (out, in, h, w) order. Tensors with fewer bins than bands are skipped. The cost
    grows with the square of the number of clients; `lens.sketch` estimates the same for many.

    An orthogonal projection (`high_pass`) lowers every one of these numbers by construction: a decrease after it is no
    evidence that it helps; see `filtering`.

    Args:
        vectors: one per client, at least two, all taken at the same model.
        layout: names and shapes of the tensors.
        bands: how many bands of equal width.
        filter: if given, the vectors are filtered first.
        seed: for filters that draw at random.
    """
    matrix = rows("spread", vectors, layout, least=2)
    measures = [_spread(bins, size, bands) for _, bins, size in _spectra(matrix, layout, bands, filter, seed)]
    distance, deviation, variance = (torch.stack(list(values)) for values in zip(*measures, strict=True))
    names = tuple(layout.names[i] for i in banded_tensors(layout, bands))
    return Spread(names, distance, deviation, variance, PLAIN if filter is None else FILTERED)


@dataclass(frozen=True, eq=False)
class BandConsensus:
    """How much of each band clients share; rows are layers, columns bands.

    Args:
        layers: the names of the tensors.
        clients: how many clients there are.
        energy: the mean over clients of the band's energy, in the units of the vectors squared.
        shared: the energy of the clients' mean.
        variance: the same as in `Spread`.
        reading: how to read the numbers.
    """

    layers: tuple[str, ...]
    clients: int
    energy: Tensor
    shared: Tensor
    variance: Tensor
    reading: str = (
        "The ratio is 1 where all clients have the same vector and 1/clients where they share nothing; the agreement "
        "is 1 and 0. A filter can help where the bands it removes agree less than those it keeps: what clients do not "
        "share averages out anyway, what they share is lost."
    )

    @property
    def ratio(self) -> Tensor:
        """Energy of the mean divided by mean energy, by layer and band; 0 where there is none."""
        return share_of(self.shared, self.energy)

    @property
    def overall(self) -> dict[str, Tensor]:
        """Per band over all layers: the ratio of the summed energies, the agreement, and the band's share of energy."""
        shared, energy = self.shared.sum(dim=0), self.energy.sum(dim=0)
        ratio = share_of(shared, energy)
        share = share_of(energy, energy.sum())
        return {"ratio": ratio, "agreement": agreement(ratio, self.clients), "energy_share": share}

    def as_dict(self) -> dict[str, float | str]:
        """All numbers: `ratio/0` is that of the lowest band over all layers, `conv.weight/ratio/0` that of a layer."""
        own = {"ratio": self.ratio, "energy": self.energy, "shared": self.shared, "variance": self.variance}
        return {**_flat(self.overall, self.layers, own), "reading": self.reading}


def consensus(
    vectors: Vectors, layout: Layout, *, bands: int = 10, filter: Filter | None = None, seed: int = 0
) -> BandConsensus:
    """The energy of the clients' mean divided by their mean energy, per layer and band; arguments as for `spread`."""
    matrix = rows("consensus", vectors, layout)
    measures = []
    for _, bins, size in _spectra(matrix, layout, bands, filter, seed):
        mean = bins.mean(dim=0)
        apart = band_energy(_square(bins - mean), size, bands)[0].mean(dim=0) / torch.tensor(edges(size, bands)).diff()
        energy, shared = (band_energy(_square(x), size, bands)[1] for x in (bins, mean))
        measures.append((energy.mean(dim=0), shared, apart))
    energy, shared, variance = (torch.stack(list(values)) for values in zip(*measures, strict=True))
    return BandConsensus(
        tuple(layout.names[i] for i in banded_tensors(layout, bands)), len(matrix), energy, shared, variance
    )


def agreement(ratio: Tensor, clients: int) -> Tensor:
    """The mean inner product of two different clients over the mean energy: (C ratio - 1) / (C - 1).

    It is 0 in expectation for clients that share nothing, however many, and 1 for identical clients.
    """
    return (clients * ratio - 1) / max(clients - 1, 1)


def _spectra(
    matrix: Tensor, layout: Layout, bands: int, filter: Filter | None, seed: int
) -> Iterator[tuple[int, Tensor, int]]:
    """The clients' spectra, one tensor after the other, in double precision."""
    if filter is not None:
        matrix = torch.stack([apply_filter(filter, v, layout, k, seed) for k, v in enumerate(matrix)])
    pieces = torch.split(matrix, list(layout.sizes), dim=1)
    for i in banded_tensors(layout, bands):
        yield i, torch.fft.rfft(pieces[i].double()), layout.sizes[i]


def _spread(bins: Tensor, size: int, bands: int) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and deviation of the pairs' distances, and the variance, in each band of one tensor."""
    cuts = edges(size, bands)
    parts = [torch.view_as_real(bins[:, a:b]).flatten(1) for a, b in pairwise(cuts)]
    pairs = torch.stack([torch.pdist(part) for part in parts])
    apart = torch.stack([(part - part.mean(dim=0)).square().sum() for part in parts])
    return pairs.mean(dim=1), pairs.std(dim=1, correction=0), apart / len(bins) / torch.tensor(cuts).diff()


def _unit(values: Tensor) -> Tensor:
    """Rows scaled to length one; zero stays zero."""
    return share_of(values, torch.linalg.vector_norm(values, dim=-1, keepdim=True).expand_as(values))


def share_of(part: Tensor, whole: Tensor) -> Tensor:
    """A part divided by the whole; zero where the whole is zero, nan where it is nan."""
    return torch.where(whole <= 0, 0.0, part / whole)


def _flat(overall: dict[str, Tensor], layers: Sequence[str], own: dict[str, Tensor]) -> dict[str, float | str]:
    """Measures per band over all layers, then by layer, under one name each."""
    flat: dict[str, float | str] = {}
    for prefix, table in [("", overall), *((f"{x}/", {m: v[n] for m, v in own.items()}) for n, x in enumerate(layers))]:
        for measure, values in table.items():
            flat |= {f"{prefix}{measure}/{b}": x for b, x in enumerate(values.tolist())}
    return flat
