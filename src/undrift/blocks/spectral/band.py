"""The low band of long rows, removed without a transform of the whole length.

torch plans an FFT anew at every call, and a plan costs as much as many transforms: a batch of short rows is several
times cheaper than one long row. So a row of n = m * parts elements is read as `parts` interleaved rows of m. Bin k of
the whole row is the sum of their k-th bins, the one of row l turned by exp(-2 pi i k l / n); taking this sum out of
each of them again, turned back, zeroes it. While k < m / 2 no other bin of the whole row changes: the result is that
of the long transform, to rounding.
"""

from functools import lru_cache
from math import pi

import torch
from torch import Tensor, device, dtype

from undrift.blocks.spectral.filter import signal, spectrum

_SHORT = 2048
_PARTS = 10


def parts(size: int, count: int) -> int:
    """Into how many interleaved rows a row is split so that its `count` lowest bins stay apart; 1 leaves it whole."""
    if size < _SHORT:
        return 1
    return next(n for n in range(_PARTS, 0, -1) if n == 1 or (size % n == 0 and 2 * count * n <= size))


def without_low(rows: Tensor, count: int) -> Tensor:
    """New rows, the `count` lowest bins of their spectra zeroed."""
    batch, size = rows.shape
    n = parts(size, count)
    if n == 1:
        bins = spectrum(rows)
        bins[:, :count] = 0
        return signal(bins, rows)
    split = rows.reshape(batch, size // n, n).transpose(1, 2).contiguous()
    bins = spectrum(split)
    turn = _turn(size, n, count, bins.dtype, bins.device)
    low = bins[:, :, :count]
    low.addcmul_((low * turn).sum(dim=1, keepdim=True), turn.conj(), value=-1 / n)
    return signal(bins, split).transpose(1, 2).reshape(batch, size)


@lru_cache(maxsize=64)
def _turn(size: int, parts: int, count: int, kind: dtype, place: device) -> Tensor:
    """exp(-2 pi i k l / size) for the rows l and the bins k, from angles in double precision."""
    angle = torch.outer(torch.arange(parts), torch.arange(count)).double() * (-2 * pi / size)
    return torch.polar(torch.ones_like(angle), angle).to(device=place, dtype=kind)
