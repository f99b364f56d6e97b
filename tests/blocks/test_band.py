"""The split transform against the transform of the whole length."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift.blocks.spectral.band import parts, without_low


def whole(rows: torch.Tensor, count: int) -> torch.Tensor:
    bins = torch.fft.rfft(rows)
    bins[:, :count] = 0
    return torch.fft.irfft(bins, n=rows.shape[-1])


@settings(deadline=None)
@given(st.integers(2, 9000), st.floats(0, 0.6), st.integers(1, 3))
def test_equals_the_whole_transform(size: int, r: float, batch: int) -> None:
    count = int(r * (size // 2 + 1))
    rows = torch.randn(batch, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    before = rows.clone()
    torch.testing.assert_close(without_low(rows, count), whole(rows, count), rtol=0, atol=1e-11)
    assert torch.equal(rows, before)


@pytest.mark.parametrize("n", range(2, 11))
def test_equals_the_whole_transform_at_the_edge(n: int) -> None:
    """As many bins as a split into n rows can hold, with an even and an odd length of each."""
    for length in (2048, 2049):
        size, count = n * length, length // 2
        assert parts(size, count) >= n
        rows = torch.randn(2, size, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
        torch.testing.assert_close(without_low(rows, count), whole(rows, count), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_keeps_the_dtype(dtype: torch.dtype) -> None:
    rows = torch.randn(2, 9216, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = without_low(rows, 92)
    assert out.dtype == dtype
    error = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), whole(rows.double(), 92), rtol=error, atol=10 * error)


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [(2000, 10, 1), (2053, 20, 1), (1_638_400, 40_960, 10), (1_048_576, 26_214, 8), (36_864, 921, 9), (4096, 1025, 1)],
)
def test_parts(size: int, count: int, expected: int) -> None:
    assert parts(size, count) == expected
