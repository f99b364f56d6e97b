"""The low band removed by a basis or on a coarse grid, against the Fourier transform in double precision."""

from math import pi

import pytest
import torch
from torch import Tensor

from undrift.blocks import gd, high_pass, low_pass, random_stop
from undrift.blocks.spectral.circulant import Circulant, is_smooth, smooth_length, split
from undrift.blocks.spectral.coarse import Coarse, coarse, grid
from undrift.blocks.spectral.detrend import _weights
from undrift.blocks.spectral.filter import Filter, removed_bins
from undrift.blocks.spectral.lowband import choose, exact, remove_low_
from undrift.core.model.flat_model import Layout

LENGTHS = [*range(8, 40), 61, 97, 128, 432, 509, 640, 1009, 2048, 2303, 2304, 4096, 4801, 5003, 9216, 10_007, 36_863]
LENGTHS += [36_864, 65_537, 102_400, 131_071, 262_144]
MORE = [
    *range(8, 3000, 7),
    *range(3000, 70_000, 1789),
    1_000_003,
    1_048_576,
    1_638_400,
    2_359_296,
    2_999_999,
    3_000_000,
]


def reference(rows: Tensor, count: int) -> Tensor:
    """The bins zeroed in double precision."""
    bins = torch.fft.rfft(rows.double())
    bins[:, :count] = 0
    out: Tensor = torch.fft.irfft(bins, n=rows.shape[-1])
    return out


def inputs(size: int) -> Tensor:
    """Noise, a random walk with a mean, a wave at the edge of the low band of r = 0.05 and one that aliases to it."""
    noise = torch.randn(2, size, generator=torch.Generator().manual_seed(size))
    place = torch.arange(size, dtype=torch.float64) / size
    edge = removed_bins(0.05, size)
    waves = [torch.cos(2 * pi * k * place + 1).float() for k in (edge, size // 8 + edge)]
    return torch.stack([noise[0], noise[1].cumsum(0) + 3, *waves])


def error(size: int, r: float) -> float:
    """The largest error over the inputs, relative to the norm of each."""
    count = removed_bins(r, size)
    if count == 0:
        return 0.0
    rows = inputs(size)
    out = torch.cat([high_pass(r).rows(row.unsqueeze(0), None) for row in rows])  # one long tensor comes alone
    off = torch.linalg.vector_norm(out - reference(rows, count), dim=-1)
    return float((off / torch.linalg.vector_norm(rows.double(), dim=-1)).max())


@pytest.mark.sweep(every=2)
@pytest.mark.quick
@pytest.mark.parametrize("r", [0.01, 0.05, 0.11, 0.3])
def test_stays_within_two_millionths_of_the_transform(r: float) -> None:
    assert max(error(size, r) for size in LENGTHS) < 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.001, 0.005, 0.01, 0.02, 0.05, 0.08, 0.12])
def test_stays_within_two_millionths_at_many_lengths(r: float) -> None:
    assert max(error(size, r) for size in MORE) < 2e-6


@pytest.mark.parametrize("r", [0.2, 0.5, 0.9])
@pytest.mark.sweep(every=2)
def test_a_whole_transform_stays_within_two_millionths(r: float) -> None:
    """Among them long even lengths with a large prime factor: MKL's transform of one such row loses three digits."""
    sizes = [8190, 8206, 9904, 14_858, 76_816, 99_225, 163_840, 262_143, 283_460, 608_176]
    assert all(choose(size, removed_bins(r, size)) == "fft" for size in sizes)
    assert max(error(size, r) for size in sizes) < 2e-6


@pytest.mark.parametrize("chosen", [low_pass(0.3), random_stop(0.3)], ids=str)
def test_ablations_stay_within_two_millionths(chosen: Filter) -> None:
    row = inputs(76_816)[:1]
    found, expected = (chosen.rows(x, torch.Generator().manual_seed(1)) for x in (row, row.double()))
    assert torch.linalg.vector_norm(found - expected) < 2e-6 * torch.linalg.vector_norm(row)


@pytest.mark.parametrize("size", [9216, 10_007])
def test_is_a_linear_symmetric_projection_without_a_mean(size: int) -> None:
    x, y = torch.randn(2, size, generator=torch.Generator().manual_seed(0))
    h = high_pass(0.05)

    def on(v: Tensor) -> Tensor:
        return h.rows(v.unsqueeze(0), None)[0]

    def near(a: Tensor, b: Tensor) -> bool:
        return bool(torch.linalg.vector_norm(a - b) < 2e-6 * size**0.5)

    assert choose(size, removed_bins(0.05, size)) == "grid"
    assert near(on(on(x)), on(x))
    assert near(on(2 * x - y), 2 * on(x) - on(y))
    assert abs(float(on(x).double() @ y.double() - x.double() @ on(y).double())) < 2e-6 * size
    assert abs(float(on(x).double() @ (x - on(x)).double())) < 2e-6 * size
    assert float(on(torch.ones(size)).abs().max()) < 2e-6


@pytest.mark.parametrize("step", [4, 5, 8, 13, 32])
@pytest.mark.parametrize("size", [5760, 5767])
def test_every_distance_of_the_grid(size: int, step: int) -> None:
    count = size // (4 * step)
    row = torch.randn(1, size, generator=torch.Generator().manual_seed(step))
    out = row.clone()
    Coarse(size, count, step).subtract(out[0])
    assert torch.linalg.vector_norm(out - reference(row, count)) < 2e-6 * torch.linalg.vector_norm(row)


def test_bits_of_a_long_tensor_do_not_depend_on_its_neighbours() -> None:
    tensors = torch.randn(3, 96, 96, generator=torch.Generator().manual_seed(0))
    layout = Layout(("a", "b", "c"), ((96, 96),) * 3)
    together = layout.split(high_pass(0.05)(tensors.flatten(), layout))
    for tensor, other in zip(tensors, together, strict=True):
        assert torch.equal(high_pass(0.05)(tensor.flatten(), Layout(("a",), ((96, 96),))).view(96, 96), other)


def test_in_place_and_copy_agree_and_the_input_is_left_alone() -> None:
    layout = Layout(("a", "b", "c"), ((100, 100), (64,), (64,)))
    v = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    before = v.clone()
    out = high_pass(0.1)(v, layout)
    assert torch.equal(v, before)
    high_pass(0.1).apply_(v, layout)
    assert torch.equal(v, out)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(dtype: torch.dtype) -> None:
    rows = torch.randn(2, 9216, generator=torch.Generator().manual_seed(0)).to(dtype)
    out = rows.clone()
    remove_low_(out, 92)
    assert out.dtype == dtype
    bound = 1e-12 if dtype == torch.float64 else 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), reference(rows, 92), rtol=bound, atol=bound)


def test_products_of_lower_precision_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.zeros(1, 8)
    assert exact(rows) and not exact(rows.double())
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    assert not exact(rows)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("size", "count", "way", "step"),
    [
        (64, 1, "basis", 16),
        (2304, 57, "basis", 9),
        (9216, 230, "grid", 9),
        (1_638_400, 40_960, "grid", 10),
        (1_638_400, 8192, "grid", 50),
        (1_000_003, 25_000, "grid", 8),
        (1_638_400, 200_000, "fft", 1),
    ],
)
def test_the_choice(size: int, count: int, way: str, step: int) -> None:
    assert choose(size, count) == way
    assert grid(size, count) == step


def test_tables_are_small_and_computed_once() -> None:
    plan = coarse(1_638_400, 40_960)
    assert plan is coarse(1_638_400, 40_960)
    tables = (plan.spread, plan.convolve.response, plan.convolve.turn, plan.convolve.back)
    assert sum(table.nbytes for table in tables) < 1_638_400 * 4 / 3


@pytest.mark.parametrize("length", [12, 2048, 3000, 5040])
def test_convolution_by_hand(length: int) -> None:
    kernel = torch.zeros(length, dtype=torch.float64)
    kernel[0], kernel[1], kernel[-1], kernel[3], kernel[-3] = 1, 0.5, 0.5, -0.25, -0.25
    row = torch.randn(length, generator=torch.Generator().manual_seed(0))
    exact = row + 0.5 * (row.roll(1) + row.roll(-1)) - 0.25 * (row.roll(3) + row.roll(-3))
    Circulant(torch.fft.rfft(kernel).real, length)(row)
    torch.testing.assert_close(row, exact, rtol=0, atol=3e-6)


def test_lengths_with_short_transforms() -> None:
    assert is_smooth(163_840) and is_smooth(1) and not is_smooth(22)
    assert smooth_length(11) == 12 and smooth_length(2049) == 2160 - 2160 % 16
    assert split(2048) == 2048 and split(163_840) == 512
    assert all(smooth_length(n) >= n and is_smooth(smooth_length(n)) for n in (9, 4999, 1_000_003))


@pytest.mark.quick
@pytest.mark.parametrize(("size", "sigma"), [(5003, 7.5), (8192, 37.48)])
def test_a_gaussian_in_frequency_is_the_sum(size: int, sigma: float) -> None:
    rows = torch.randn(2, size, generator=torch.Generator().manual_seed(0)) + 2
    exact = gd(sigma).rows(rows.double(), None)
    assert abs(sum(_weights(sigma)) - 1) < 1e-12
    assert torch.linalg.vector_norm(gd(sigma).rows(rows, None) - exact) < 2e-6 * torch.linalg.vector_norm(rows)
