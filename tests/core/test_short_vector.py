"""The short form of a vector: every bit comes back, and no bytes of others do harm."""

from contextlib import suppress
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from undrift.core.records.packed_sum import BLOCK
from undrift.core.records.short_vector import lengthen, shorten


def same(x: Tensor) -> int:
    """The bytes of a vector, which is restored bit for bit."""
    data = shorten(x)
    back = lengthen(data, len(x))
    assert back.dtype == x.dtype and back.numpy().tobytes() == x.numpy().tobytes()
    return len(data)


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_forms(dtype: torch.dtype) -> None:
    draw, width = torch.Generator().manual_seed(0), dtype.itemsize
    noise = torch.randn(BLOCK, generator=draw, dtype=dtype)
    assert same(noise) == 20 + width * BLOCK  # as it is
    assert same(torch.zeros(3 * BLOCK + 1, dtype=dtype)) == 16 + 4 * 4
    few = torch.zeros(2 * BLOCK, dtype=dtype)
    few[[0, 7, BLOCK - 1, 2 * BLOCK - 1]] = noise[:4]
    assert same(few) == 16 + 8 + 4 * (2 + width)
    for bits in range(2, 9):
        most = 2 ** (bits - 1) - 1
        whole = torch.randint(-most, most + 1, (BLOCK,), generator=draw).to(dtype)
        assert same(whole * 2.0**-13) == 20 + BLOCK * bits // 8
    mixed = torch.cat([noise, few, whole, noise[:5]])
    assert same(mixed) == 16 + 4 * 5 + width * BLOCK + 4 * (2 + width) + BLOCK + 5 * width


def test_odd_values() -> None:
    """Negative zeros, subnormal numbers, infinities and NaN with a payload."""
    odd = np.array([-0.0, 1e-45, -1e-40, np.inf, -np.inf, 3.4e38, 1.0], np.float32)
    nan = np.array([0x7FC01234], np.uint32).view(np.float32)
    for values in (odd, nan, odd[:1], odd[1:2], odd[5:], np.concatenate([odd, nan]), odd[:0]):
        same(torch.from_numpy(values.copy()))


def test_noncontiguous_and_random_lengths() -> None:
    chance, draw = Random(0), torch.Generator().manual_seed(1)
    for _ in range(40):
        size = chance.randrange(1, 3 * BLOCK)
        x = torch.randn(size, generator=draw) * (torch.rand(size, generator=draw) < chance.choice([0.001, 0.1, 1]))
        same(x if chance.random() < 0.5 else (x * 16).round() / 2.0 ** chance.randrange(40))
    assert torch.equal(lengthen(shorten(torch.arange(9.0)[::2]), 5), torch.arange(9.0)[::2])


def test_bytes_of_others_raise_or_give_a_vector() -> None:
    draw = torch.Generator().manual_seed(0)
    few = torch.randn(BLOCK + 50, generator=draw) * (torch.rand(BLOCK + 50, generator=draw) < 0.01)
    data, chance = shorten(few), Random(0)
    for size, bad in ((len(few), data[:-1]), (len(few), torch.cat([data, data[:1]])), (len(few) + 1, data)):
        with pytest.raises(ValueError, match="short vector"):
            lengthen(bad, size)
    for bad in (data[:9], data.float(), data[:-2].reshape(2, -1) if len(data) % 2 == 0 else data[:-1].reshape(2, -1)):
        with pytest.raises(ValueError, match="not the bytes"):
            lengthen(bad, len(few))
    for at, value in ((16, 9), (16, 253)):
        bad = data.clone()
        bad[at] = value
        with pytest.raises(ValueError, match="no form"):
            lengthen(bad, len(few))
    sparse = data.clone()
    assert sparse[16] == 254
    sparse[24:26] = torch.tensor([255, 255])  # the first position, behind the end
    with pytest.raises(ValueError, match="ascend"):
        lengthen(sparse, len(few))
    for _ in range(2000):
        bad = data.clone()
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        with suppress(ValueError):
            assert lengthen(bad, len(few)).shape == few.shape
