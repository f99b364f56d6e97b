"""The two-dimensional variant: each convolution kernel filtered by itself."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

from undrift.blocks.spectral.filter import Filter
from undrift.blocks.spectral.fourier import high_pass
from undrift.core.model.flat_model import Layout, Vector
from undrift.util.naming.ranges import Fraction


@dataclass(frozen=True, repr=False)
class high_pass_2d(Filter):  # noqa: N801  a filter reads as a function
    """Zero the lowest max(1, floor(r * bins)) bins, by radial frequency, of every (out, in) kernel.

    Kernels of one element are left alone, since their mean is all they have; tensors that are no convolution weights
    are filtered by `high_pass(r)`.

    Args:
        r: share of the bins to remove; 0 switches the filter off.
    """

    r: Fraction

    def __call__(self, v: Vector, layout: Layout, generator: Generator | None = None) -> Vector:
        """Filter sequences first, then the kernels of each window size in one batched call."""
        kernels = _kernels(self, layout)
        out = high_pass(self.r, scope=tuple(self._sequences(layout)))(v, layout)
        if self.r == 0:
            return out
        tensors = layout.split(out)
        for (height, width), group in kernels.items():
            stack = torch.cat([tensors[i].reshape(-1, height, width) for i in group])
            flat = self._filter(stack)
            start = 0
            for i in group:
                count = tensors[i].shape[0] * tensors[i].shape[1]
                tensors[i].copy_(flat[start : start + count].view(tensors[i].shape))
                start += count
        return out

    def _sequences(self, layout: Layout) -> list[str]:
        """The names of the tensors in scope that are no convolution weights."""
        pairs = zip(layout.names, layout.shapes, strict=True)
        return [name for name, shape in pairs if len(shape) != 4 and self.covers(name, shape)]

    def _filter(self, kernels: Tensor) -> Tensor:
        """The filter on a batch of kernels."""
        height, width = kernels.shape[-2:]
        bins = torch.fft.rfft2(kernels)
        count = max(1, int(self.r * height * (width // 2 + 1) + 1e-9))
        for row, column in _by_radius(height, width)[:count]:
            bins[:, row, column] = 0
        filtered: Tensor = torch.fft.irfft2(bins, s=(height, width))
        return filtered


@lru_cache(maxsize=64)
def _kernels(filter: high_pass_2d, layout: Layout) -> dict[tuple[int, int], list[int]]:
    """The convolution weights in scope, by window size."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (name, shape) in enumerate(zip(layout.names, layout.shapes, strict=True)):
        if len(shape) == 4 and shape[2] * shape[3] > 1 and filter.covers(name, shape):
            groups.setdefault((shape[2], shape[3]), []).append(i)
    return groups


def _by_radius(height: int, width: int) -> list[tuple[int, int]]:
    """The bins of a real two-dimensional spectrum from the lowest radial frequency to the highest."""
    rows = torch.fft.fftfreq(height, dtype=torch.float64).tolist()
    columns = torch.fft.rfftfreq(width, dtype=torch.float64).tolist()
    bins = [(row, column) for row in range(height) for column in range(len(columns))]
    return sorted(bins, key=lambda place: (round(rows[place[0]] ** 2 + columns[place[1]] ** 2, 12), *place))
