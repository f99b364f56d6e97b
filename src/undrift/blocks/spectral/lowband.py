"""The low band of rows, removed in place by whichever way is fastest for their length.

| rows | way |
|---|---|
| short, or few bins: a table of at most 2^18 numbers | a product with the orthonormal basis of the band |
| long, on a CPU, at most an eighth of the bins | a coarse grid, `coarse.py` |
| everything else, double precision among it | a Fourier transform of the whole row, the reference |

The choice depends on length, count, dtype and device only, so all workers make the same. On a CPU all three stay within
2e-6 of the reference in double precision, relative to the norm of the row.
"""

from functools import lru_cache
from math import pi

import torch
from torch import Tensor

from undrift.blocks.spectral.coarse import coarse, grid
from undrift.blocks.spectral.filter import signal, spectrum

_TABLE = 2**18


def remove_low_(rows: Tensor, count: int) -> None:
    """Remove the `count` lowest bins, the mean first, from contiguous rows, in place.

    Args:
        rows: a batch of rows of one length.
        count: how many bins are removed, 1 or more.
    """
    if rows.dtype in (torch.float16, torch.bfloat16):
        wide = rows.float()
        remove_low_(wide, count)
        rows.copy_(wide)
        return
    way = choose(rows.shape[-1], count) if exact(rows) else "fft"
    if way == "basis":
        table = _basis(rows.shape[-1], count)
        rows.addmm_(rows @ table, table.t(), alpha=-1)
    elif way == "grid":
        remover = coarse(rows.shape[-1], count)
        for row in rows:
            remover.subtract(row)
    else:
        bins = spectrum(rows)
        bins[:, :count] = 0
        rows.copy_(signal(bins, rows))


def exact(rows: Tensor) -> bool:
    """Whether matrix products of these rows round as single precision does: on a CPU in the highest precision."""
    single = rows.dtype == torch.float32 and rows.device.type == "cpu"
    return single and torch.get_float32_matmul_precision() == "highest"


@lru_cache(maxsize=4096)
def choose(size: int, count: int) -> str:
    """How the `count` lowest bins are removed from rows in single precision: "basis", "grid" or "fft".

    Args:
        size: the length of a row.
        count: how many bins are removed.
    """
    waves = 2 * count - 1
    if size * waves <= _TABLE and waves <= size:
        return "basis"
    return "grid" if grid(size, count) > 1 else "fft"


@lru_cache(maxsize=64)
def _basis(size: int, count: int) -> Tensor:
    """The orthonormal waves of the `count` lowest bins, as columns."""
    turns = torch.outer(torch.arange(size), torch.arange(count)) % size
    angle = turns.double() * (2 * pi / size)
    waves: Tensor = torch.cat([angle.cos(), angle[:, 1:].sin()], dim=1) * (2 / size) ** 0.5
    waves[:, 0] = size**-0.5
    return waves.float()
