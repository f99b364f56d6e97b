"""The low band of a long row, computed on a coarse grid and subtracted: the cost is two passes over the row.

The projection on the frequencies |k| < c of a row of n elements is P = (1/n) sum_k e_k e_k^*. A wave e_k of so low a
frequency is the interpolation of its values on every D-th point by a window phi, up to a known factor and an error
that falls exponentially with the window's width of w points:

    e_k(j) = (D / Phi_k) sum_l phi(j - D l) e_k(D l),          Phi_k = sum_t phi(t) cos(2 pi k t / n)

So P = S^T G S with S the sums under the windows, S_lj = phi(j - D l), and G(l - l') = (1/n) sum_k (D / Phi_k)^2
cos(2 pi k D (l - l') / n), a Toeplitz matrix. With the Kaiser-Bessel window of beta = pi w (1 - 1 / (2 sigma)) and the
oversampling sigma = n / (2 c D) the error is about exp(-pi w sqrt(1 - 1 / sigma)).

S is a matrix product: the row is read as a table whose rows hold several grid cells, and its product with one small
matrix gives the contributions of these cells to the points around them. S^T is the transposed product, subtracted in
place. If D divides n, the grid closes to a circle and G is a circular convolution of length n / D. If not, the row is
a segment, the grid continues beyond its ends, and G is embedded in a circular convolution of twice the length: every n
works, also a prime.
"""

from functools import lru_cache
from math import ceil, log, pi, sqrt
from threading import local

import torch
from torch import Tensor

from undrift.blocks.spectral.circulant import Circulant, is_smooth, smooth_length

_ERROR = 2e-7
_OVERSAMPLING = 2
_CELLS = 8
_STEPS = (4, 64)
_scratch = local()


def grid(size: int, count: int) -> int:
    """The distance of the grid's points for the `count` lowest bins of a row; 1 if they are too many.

    The largest distance that leaves the oversampling and divides the row into a length with short transforms; without
    one, the largest multiple of 4.

    Args:
        size: the length of the row.
        count: how many bins are removed.
    """
    least, most = _STEPS
    limit = min(most, size // (2 * _OVERSAMPLING * count))
    if limit < least:
        return 1
    divisors = (d for d in range(limit, max(least, limit // 2) - 1, -1) if size % d == 0 and is_smooth(size // d))
    return next(divisors, limit // 4 * 4)


class Coarse:
    """The removal of the `count` lowest bins of rows of one length, in single precision.

    Args:
        size: the length of a row.
        count: how many bins are removed, the mean first.
        step: the distance D of the grid's points, 2 or more.
    """

    def __init__(self, size: int, count: int, step: int) -> None:
        self.size = size
        sigma = size / (2 * count * step)
        width = ceil(-log(_ERROR) / (pi * sqrt(1 - 1 / sigma)))
        window = _window(width, step, sigma)
        self.cells = _CELLS
        self.spread = _block(window, step, self.cells).float()
        self.groups = ceil(size / len(self.spread))
        self.points = self.groups * self.cells + width - 1
        circle = size % step == 0 and is_smooth(size // step)
        self.length = size // step if circle else smooth_length(2 * self.points - 1)
        bins = torch.zeros(size // 2 + 1, dtype=torch.float64)
        bins[:count] = (step / torch.fft.rfft(window, n=size)[:count].abs()) ** 2
        if circle:
            response = bins[: self.length // 2 + 1] / step
        else:
            lags = torch.fft.irfft(bins, n=size)[torch.arange(self.points) * step % size]
            kernel = lags.new_zeros(self.length)
            kernel[: self.points] = lags
            kernel[self.length - self.points + 1 :] = lags[1:].flip(0)
            response = torch.fft.rfft(kernel).real
        self.convolve = Circulant(response, self.length)

    def subtract(self, row: Tensor) -> None:
        """Take the low band out of a contiguous row, in place."""
        block, wide = self.spread.shape
        whole = self.size // block
        extra = ceil((wide - self.cells) / self.cells)
        room = max(self.length, (self.groups + extra) * self.cells)
        parts, line = _room(self.groups * wide, room)
        parts = parts.view(self.groups, wide)
        table, rest = row[: whole * block].view(whole, block), row[whole * block :].unsqueeze(0)
        torch.mm(table, self.spread, out=parts[:whole])
        if rest.numel():
            torch.mm(rest, self.spread[: rest.numel()], out=parts[whole:])
        self._add_up(parts, line, extra)
        self.convolve(line[: self.length])
        beyond = self.points - self.length
        if beyond > 0:
            line[self.length : self.points] = line[:beyond]
        parts.copy_(line.as_strided(parts.shape, (self.cells, 1)))
        table.addmm_(parts[:whole], self.spread.t(), alpha=-1)
        if rest.numel():
            rest.addmm_(parts[whole:], self.spread[: rest.numel()].t(), alpha=-1)

    def _add_up(self, parts: Tensor, line: Tensor, extra: int) -> None:
        """Sum the contributions of all cells to each point; those beyond the end of a circle belong to its start."""
        line[self.groups * self.cells :] = 0
        points = line[: (self.groups + extra) * self.cells].view(-1, self.cells)
        points[: self.groups] = parts[:, : self.cells]
        for i in range(1, extra + 1):
            piece = parts[:, i * self.cells : (i + 1) * self.cells]
            points[i : i + self.groups, : piece.shape[1]] += piece
        beyond = self.points - self.length
        if beyond > 0:
            line[:beyond] += line[self.length : self.points]


@lru_cache(maxsize=64)
def coarse(size: int, count: int) -> Coarse:
    """The removal for one length, its tables computed once.

    Args:
        size: the length of a row.
        count: how many bins are removed.
    """
    return Coarse(size, count, grid(size, count))


def _window(width: int, step: int, sigma: float) -> Tensor:
    """The Kaiser-Bessel window over `width` cells, one value per element, symmetric."""
    taps = width * step
    beta = pi * width * (1 - 1 / (2 * sigma))
    place = (torch.arange(taps, dtype=torch.float64) - (taps - 1) / 2) * (2 / taps)
    return torch.i0(beta * (1 - place**2).sqrt()) / torch.i0(torch.tensor(beta, dtype=torch.float64))


def _block(window: Tensor, step: int, cells: int) -> Tensor:
    """The matrix from the elements of `cells` cells to the points around them."""
    width = len(window) // step
    one = window.view(width, step).flip(0).t()
    block = one.new_zeros(cells, step, cells + width - 1)
    for cell in range(cells):
        block[cell, :, cell : cell + width] = one
    return block.view(cells * step, -1)


def _room(*sizes: int) -> tuple[Tensor, ...]:
    """Uninitialised vectors, of one memory per thread that grows to the largest request and is used again."""
    flat: Tensor | None = getattr(_scratch, "flat", None)
    if flat is None or len(flat) < sum(sizes):
        flat = _scratch.flat = torch.empty(sum(sizes))
    return torch.split(flat[: sum(sizes)], list(sizes))
