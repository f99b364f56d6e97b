"""Filters that subtract a smooth version of the sequence: the spatial relatives of `high_pass`."""

from dataclasses import dataclass
from math import ceil, exp

import torch
from torch import Generator, Tensor
from torch.nn.functional import conv1d, pad

from undrift.blocks.spectral.filter import Filter, fraction


@dataclass(frozen=True, repr=False)
class _Detrend(Filter):
    """v - Smooth(v), circular, its half-amplitude point at the cut-off of `high_pass(r)`: r/2 cycles per element."""

    r: float

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(type(self).__name__, self.r)

    def touches(self, size: int) -> bool:
        """Tensors shorter than the cut-off wavelength 2/r are left alone."""
        return self.r > 0 and size >= 2 / self.r


@dataclass(frozen=True, repr=False)
class moving_average(_Detrend):  # noqa: N801  a filter reads as a function
    """LAP-D: subtract the centred moving average over the odd window nearest to 1.2067/r.

    Args:
        r: the share of `high_pass` whose cut-off it matches; 0 removes nothing.
    """

    @property
    def window(self) -> int:
        """The number of elements averaged."""
        return 2 * round((1.2067 / self.r - 1) / 2) + 1

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """One running sum in double precision: its cost does not depend on the window."""
        half = self.window // 2
        wrapped = pad(rows.double().unsqueeze(1), (half + 1, half), mode="circular").squeeze(1)
        running = wrapped.cumsum(dim=-1)
        smooth = (running[:, self.window :] - running[:, : -self.window]) / self.window
        return rows - smooth.to(rows.dtype)


@dataclass(frozen=True, repr=False)
class gaussian(_Detrend):  # noqa: N801
    """GD: subtract the average under a Gaussian of standard deviation 0.3748/r, cut at four deviations.

    Args:
        r: the share of `high_pass` whose cut-off it matches; 0 removes nothing.
    """

    def rows(self, rows: Tensor, generator: Generator | None) -> Tensor:
        """A circular convolution with the normalised kernel."""
        deviation = 0.3748 / self.r
        radius = ceil(4 * deviation)
        weights = [exp(-0.5 * (j / deviation) ** 2) for j in range(-radius, radius + 1)]
        kernel = torch.tensor([w / sum(weights) for w in weights], dtype=rows.dtype, device=rows.device)
        wrapped = pad(rows.unsqueeze(1), (radius, radius), mode="circular")
        return rows - conv1d(wrapped, kernel.view(1, 1, -1)).squeeze(1)
