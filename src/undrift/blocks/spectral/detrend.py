"""Filters that subtract a smooth version of the sequence: the spatial relatives of `high_pass`.

Each of them is given by its kernel, `lap_d(window)` and `gd(sigma)`, or by the share r of `high_pass` whose cut-off,
f = r/2 cycles per element, its half-amplitude point matches, `moving_average(r)` and `gaussian(r)`. The relation:

    window k:  sin(pi f k) / (k sin(pi f)) = 1/2, for small f  sinc(f k) = 1/2,  f k = 0.60335,   k = 1.2067/r
    sigma s:   exp(-2 (pi f s)^2) = 1/2,                          f s = sqrt(ln 2 / 2)/pi,        s = 0.3748/r
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp
from typing import Annotated

import torch
from torch import Generator, Tensor
from torch.nn.functional import conv1d, pad

from undrift.blocks.spectral.circulant import Circulant, smooth_length
from undrift.blocks.spectral.filter import Filter
from undrift.core.model.flat_model import double
from undrift.util.naming.ranges import Fraction, Positive, Range

WINDOW, SIGMA = 1.2067, 0.3748
"""The window and the standard deviation that match `high_pass(r)`, times r."""

_LONG = 4096
"""From this length on a Gaussian is applied in frequency."""


@dataclass(frozen=True, repr=False)
class _Detrend(Filter):
    """v - Smooth(v), circular."""

    @property
    def cutoff(self) -> float:
        """The share r of `high_pass` whose cut-off it matches."""
        raise NotImplementedError

    def touches(self, size: int) -> bool:
        """Tensors shorter than the cut-off wavelength 2/r are left alone."""
        return self.cutoff > 0 and size >= 2 / self.cutoff


@dataclass(frozen=True, repr=False)
class lap_d(_Detrend):  # noqa: N801  a filter reads as a function
    """LAP-D: subtract the centred moving average over `window` elements.

    Args:
        window: how many elements are averaged, an odd number of 3 or more.
    """

    window: Annotated[int, Range("an odd whole number of 3 or more", lambda x: x >= 3 and x % 2 == 1)]

    @property
    def cutoff(self) -> float:
        """The share r of `high_pass` whose cut-off it matches."""
        return WINDOW / self.window

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """One running sum in double precision: its cost does not depend on the window."""
        return _without_average(rows, self.window)


@dataclass(frozen=True, repr=False)
class gd(_Detrend):  # noqa: N801
    """GD: subtract the average under a Gaussian of standard deviation `sigma`, cut at four deviations.

    Args:
        sigma: the standard deviation in elements.
    """

    sigma: Positive

    @property
    def cutoff(self) -> float:
        """The share r of `high_pass` whose cut-off it matches."""
        return SIGMA / self.sigma

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """A circular convolution with the normalised kernel."""
        return _without_gaussian(rows, self.sigma)


@dataclass(frozen=True, repr=False)
class _Matched(_Detrend):
    """A kernel chosen by the cut-off that it matches."""

    r: Fraction

    @property
    def cutoff(self) -> float:
        """The share r itself."""
        return self.r


@dataclass(frozen=True, repr=False)
class moving_average(_Matched):  # noqa: N801
    """LAP-D by its cut-off: `lap_d` with the odd window nearest to 1.2067/r.

    Args:
        r: the share of `high_pass` whose cut-off it matches, 0.6 at most, with a window of 3; 0 removes nothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.r > 0.6:
            raise ValueError(
                f"moving_average: r must be 0.6 or less, got {self.r}: the window of 1 that is nearest would remove "
                "everything; use high_pass or gaussian"
            )

    @property
    def window(self) -> int:
        """The number of elements averaged."""
        return 2 * round((WINDOW / self.r - 1) / 2) + 1

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """One running sum in double precision: its cost does not depend on the window."""
        return _without_average(rows, self.window)


@dataclass(frozen=True, repr=False)
class gaussian(_Matched):  # noqa: N801
    """GD by its cut-off: `gd` with the standard deviation 0.3748/r.

    Args:
        r: the share of `high_pass` whose cut-off it matches; 0 removes nothing.
    """

    @property
    def sigma(self) -> float:
        """The standard deviation in elements."""
        return SIGMA / self.r

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """A circular convolution with the normalised kernel."""
        return _without_gaussian(rows, self.sigma)


def _without_average(rows: Tensor, window: int) -> Tensor:
    """Each row minus its centred moving average.

    The difference of two running sums has the rounding of the `window` additions between them only: the average is off
    by at most 2^-53 sum |v|, far below the rounding of single precision.
    """
    half = window // 2
    wrapped = pad(double(rows).unsqueeze(1), (half + 1, half), mode="circular").squeeze(1)
    running = wrapped.cumsum(dim=-1)
    smooth = (running[:, window:] - running[:, :-window]) / window
    return rows - smooth.to(rows)


def _without_gaussian(rows: Tensor, sigma: float) -> Tensor:
    """Each row minus its average under a Gaussian: sums for short rows and wide types, transforms for long ones.

    The sums take n (8 sigma + 1) products, the transforms n log n whatever the sigma.
    """
    radius = ceil(4 * sigma)
    wrapped = pad(rows.unsqueeze(1), (radius, radius), mode="circular")
    if rows.dtype == torch.float32 and rows.device.type == "cpu" and rows.shape[-1] >= _LONG:
        convolve = _gaussian(smooth_length(wrapped.shape[-1]), sigma)
        out = rows.clone()
        line = rows.new_zeros(convolve.length)
        for row, source in zip(out, wrapped.squeeze(1), strict=True):
            line[: len(source)] = source
            line[len(source) :] = 0
            convolve(line)
            row -= line[radius : radius + len(row)]
        return out
    kernel = torch.tensor(_weights(sigma), dtype=rows.dtype, device=rows.device)
    return rows - conv1d(wrapped, kernel.view(1, 1, -1)).squeeze(1)


def _weights(sigma: float) -> list[float]:
    """The normalised kernel of a Gaussian, cut at four deviations."""
    radius = ceil(4 * sigma)
    weights = [exp(-0.5 * (j / sigma) ** 2) for j in range(-radius, radius + 1)]
    total = sum(weights)
    return [w / total for w in weights]


@lru_cache(maxsize=16)
def _gaussian(length: int, sigma: float) -> Circulant:
    """The circular convolution of one length with the kernel of a Gaussian."""
    weights = torch.tensor(_weights(sigma), dtype=torch.float64)
    kernel = pad(weights, (0, length - len(weights))).roll(-(len(weights) // 2))
    return Circulant(torch.fft.rfft(kernel).real, length)
