"""Circular convolution with a symmetric kernel, as two sets of short transforms.

torch plans an FFT anew at every call, and for one long row the plan costs more than the transform. So a row of
L = A B elements is read as a table, element a B + b in column a of row b. Its transform is that of Cooley and Tukey:

    Y[k + A l] = sum_b exp(-2 pi i b l / B) exp(-2 pi i b k / L) sum_a exp(-2 pi i a k / A) y[a B + b]

The inner sum is a batch of B real transforms of length A, the outer one a batch of complex transforms of length B for
the columns k = 0 .. A/2; the other columns are conjugates. The bins stay in this order: a symmetric kernel has a real
spectrum, which is multiplied in place, and the same steps backwards give the result.
"""

from functools import lru_cache
from math import isqrt, pi

import torch
from torch import Tensor

_WHOLE = 2048


class Circulant:
    """A circular convolution in single precision.

    Args:
        response: the real spectrum of the symmetric kernel, the length // 2 + 1 bins of its real transform, as doubles.
        length: the number of elements of a row.
    """

    def __init__(self, response: Tensor, length: int) -> None:
        self.length = length
        self.columns = split(length)
        rows, kept = length // self.columns, self.columns // 2 + 1
        bins = (torch.arange(kept) + self.columns * torch.arange(rows).unsqueeze(1)) % length
        # In the memory order in which torch leaves the bins: the transformed axis last.
        self.response = response[torch.minimum(bins, length - bins)].float().t().contiguous().t().unsqueeze(-1)
        angle = torch.outer(torch.arange(rows), torch.arange(kept)).double() * (-2 * pi / length)
        self.turn = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
        self.back = self.turn.conj().resolve_conj()

    def __call__(self, row: Tensor) -> None:
        """Convolve one row in place."""
        table = row.view(self.columns, -1).t()
        bins = torch.fft.rfft(table.contiguous())
        if len(bins) > 1:
            whole = torch.fft.fft(bins.mul_(self.turn), dim=0)
            torch.view_as_real(whole).mul_(self.response)
            torch.mul(torch.fft.ifft(whole, dim=0), self.back, out=bins)
        else:
            torch.view_as_real(bins).mul_(self.response)
        table.copy_(torch.fft.irfft(bins, n=self.columns))


@lru_cache(maxsize=4096)
def split(length: int) -> int:
    """The length of the real transforms: the whole length if it is short, else its factor nearest to the root."""
    if length <= _WHOLE:
        return length
    return next(length // n for n in range(isqrt(length), 0, -1) if length % n == 0)


@lru_cache(maxsize=4096)
def smooth_length(least: int) -> int:
    """The smallest length of at least `least` without a prime factor above 7; a long one is a multiple of 16.

    Args:
        least: the smallest length allowed.
    """
    unit = 16 if least > _WHOLE else 1
    length = -(-least // unit) * unit
    while not is_smooth(length):
        length += unit
    return length


def is_smooth(length: int) -> bool:
    """Whether a length has no prime factor above 7."""
    for prime in (2, 3, 5, 7):
        while length % prime == 0:
            length //= prime
    return length == 1
