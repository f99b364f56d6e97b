"""The sheets' examples of operators: perturbations, high-pass filters, detrending, ablations; and their identities."""

from math import ceil, exp, log, pi, sin, sqrt

import pytest
import torch
from torch import Tensor

from support.rounds import close, path, rounds_to, spy
from undrift.algorithms import fedasam, fedfft, fedsam
from undrift.blocks import (
    ASAM,
    SAM,
    Filter,
    Filters,
    cap_norm,
    clip_coordinates,
    gaussian,
    gd,
    high_pass,
    high_pass_2d,
    lap_d,
    low_pass,
    moving_average,
    rescale,
)
from undrift.blocks.spectral.detrend import SIGMA, WINDOW
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout
from undrift.core.records.types import Local
from undrift.testing import Quadratics


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def on(filter: Filter, values: Tensor) -> Tensor:
    return filter(values.reshape(-1), Layout(("t",), (tuple(values.shape),))).view(values.shape)


def two(name: str, *start: float) -> Quadratics:
    """One client with curvatures 1 and 4 and its optimum at zero."""
    return Quadratics([torch.diag(vector(1, 4))], [vector(0, 0)], {name: vector(*start)}, [1])


def slanted(gradient: Tensor) -> Quadratics:
    """One client whose gradient at the start, the origin, is the one given."""
    return Quadratics([torch.eye(len(gradient)).double()], [-gradient], {"w": torch.zeros_like(gradient)}, [1])


EIGHT = torch.arange(1, 9, dtype=torch.float64)
WAVELESS = vector(-2.5, sqrt(2) - 1.5, sqrt(2) - 0.5, 0.5, -0.5, 0.5 - sqrt(2), 1.5 - sqrt(2), 2.5)


def test_sam_example(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    after = path(fedsam(0.1), two("w", 1, 1), Local(lr=0.1), 1)
    gradient = vector(1 + 0.1 / sqrt(17), 4 + 1.6 / sqrt(17))
    for value, exact, printed in [
        (torch.linalg.vector_norm(seen.steps[0].here), vector(sqrt(17)), ("4.123106",)),
        (seen.steps[0].offset, vector(1, 4) * 0.1 / sqrt(17), ("0.024254", "0.097014")),
        (seen.steps[0].there, gradient, ("1.024254", "4.388057")),
        (after, 1 - 0.1 * gradient, ("0.897575", "0.561194")),
    ]:
        close(value, exact)
        rounds_to(exact, *printed)


def test_asam_example(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(Algorithm(perturbation=ASAM(rho=0.5, eta=0.0)), two("weight", 1, 2), Local(lr=0.1), 1)
    exact = vector(1 * 1, 4 * 8) * 0.5 / sqrt(1 + 16**2)
    close(seen.steps[0].offset, exact)
    rounds_to(exact, "0.031189", "0.998053")
    rounds_to(sqrt(1 + 16**2), "16.031220")


@pytest.mark.parametrize("eta", [0.0, 0.2])
def test_asam_offset_has_length_rho_in_units_of_t(monkeypatch: pytest.MonkeyPatch, eta: float) -> None:
    task = Quadratics.random()
    weights = torch.cat([torch.full((x.numel(),), "weight" in name) for name, x in task.start.items()])
    seen = spy(monkeypatch)
    path(fedasam(0.5, eta), task, Local(lr=0.05, epochs=3), 3)
    for look in seen.steps:
        scale = torch.where(weights, look.w.abs() + eta, torch.ones_like(look.w))
        close(torch.linalg.vector_norm(look.offset / scale), 0.5)  # type: ignore[arg-type, operator]
        close(look.offset, 0.5 * scale**2 * look.here / torch.linalg.vector_norm(scale * look.here))


def test_asam_without_weights_is_sam() -> None:
    base = Quadratics.random()
    renamed = {f"t{i}": x for i, x in enumerate(base.start.values())}
    task = Quadratics(base.curvatures, base.optima, renamed, base.sizes)
    local = Local(lr=0.05, epochs=5)
    runs = [path(Algorithm(perturbation=p), task, local, 10, 3) for p in (ASAM(0.3, 0.2), SAM(0.3))]
    close(*runs)


@pytest.mark.parametrize(
    ("r", "exact"),
    [(0.0, EIGHT), (0.1, EIGHT), (0.2, EIGHT - 4.5), (0.25, EIGHT - 4.5), (0.4, WAVELESS), (0.5, WAVELESS)],
)
def test_eight_vector(r: float, exact: Tensor) -> None:
    close(on(high_pass(r), EIGHT), exact)


def test_printed_digits_of_the_eight_vector_and_the_odd_one() -> None:
    rounds_to(WAVELESS, "-2.5", "-0.085786", "0.914214", "0.5", "-0.5", "-0.914214", "0.085786", "2.5")
    close(on(high_pass(0.34), vector(1, 2, 3, 4, 5)), (-2, -1, 0, 1, 2))


def zeroed(filter: Filter, size: int) -> list[int]:
    """The bins a filter removes from an impulse, which holds all of them alike."""
    impulse = torch.zeros(size, dtype=torch.float64)
    impulse[0] = 1
    left = torch.fft.rfft(on(filter, impulse)).abs()
    assert bool(((left < 1e-12) | ((left - 1).abs() < 1e-12)).all())
    return torch.nonzero(left < 0.5).flatten().tolist()


@pytest.mark.parametrize(
    ("size", "five", "one"),
    [
        (16, 0, 0),
        (37, 0, 0),
        (38, 1, 0),
        (64, 1, 0),
        (128, 3, 0),
        (197, 4, 0),
        (198, 5, 1),
        (256, 6, 1),
        (512, 12, 2),
        (432, 10, 2),
        (640, 16, 3),
        (2304, 57, 11),
        (9216, 230, 46),
        (36864, 921, 184),
        (589824, 14745, 2949),
    ],
)
def test_table_of_removed_bins(size: int, five: int, one: int) -> None:
    bins = size // 2 + 1
    for r, count in ((0.05, five), (0.01, one)):
        assert zeroed(high_pass(r), size) == list(range(count))
        assert zeroed(low_pass(r), size) == list(range(bins - count, bins))


@pytest.mark.parametrize("r", [0.01, 0.05, 0.4])
@pytest.mark.parametrize("size", [640, 2303, 9216, 36865])
def test_high_pass_of_long_tensors_is_the_plain_transform(size: int, r: float) -> None:
    v = torch.randn(2, size, generator=torch.Generator().manual_seed(size), dtype=torch.float64)
    for row in v:
        bins = torch.fft.rfft(row)
        bins[: int(r * len(bins) + 1e-9)] = 0
        close(on(high_pass(r), row), torch.fft.irfft(bins, n=size))


@pytest.mark.parametrize(("r", "wavelength"), [(0.05, 40), (0.01, 200)])
def test_cut_off_wavelength_is_two_over_r(r: float, wavelength: int) -> None:
    size = 100 * wavelength
    n = torch.arange(size, dtype=torch.float64)
    for bin, kept in ((99, 0), (100, 1), (101, 1)):
        wave = torch.sin(2 * pi * bin * n / size)
        close(on(high_pass(r), wave), kept * wave)


@pytest.mark.parametrize("size", [38, 41, 64, 101])
@pytest.mark.parametrize("r", [0.05, 0.1, 0.3])
def test_high_pass_is_an_orthogonal_projection(size: int, r: float) -> None:
    removed = int(r * (size // 2 + 1) + 1e-9)
    matrix = torch.stack([on(high_pass(r), column) for column in torch.eye(size).double()], dim=1)
    close(matrix, matrix.T)
    close(matrix @ matrix, matrix)
    close(torch.trace(matrix), size - max(0, 2 * removed - 1))
    v = torch.cos(torch.arange(size, dtype=torch.float64) ** 2)
    close(v @ v, (matrix @ v) @ (matrix @ v) + (v - matrix @ v) @ (v - matrix @ v))
    assert (on(high_pass(r), torch.ones(size).double()).abs().max() < 1e-12) == (removed >= 1)


def test_fedfft_example(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(fedfft(r=0.25, rho=1.0), slanted(EIGHT), Local(lr=0.1), 1)
    offset = seen.steps[0].offset
    assert offset is not None
    close(offset, (EIGHT - 4.5) / sqrt(204))
    close(torch.linalg.vector_norm(offset), sqrt(42 / 204))
    rounds_to([sqrt(204), sqrt(42 / 204)], "14.282857", "0.453743")
    low = vector(*[4.5 / sqrt(204)] * 8)
    close(offset @ offset, 1 - low @ low)


def test_detrending_kernels_at_the_cut_off() -> None:
    # A circulant operator scales every wave: 400 elements hold bin 10 at frequency 0.025 = r/2.
    window, sigma, frequency = 25, 0.3748 / 0.05, 0.025
    assert moving_average(0.05).window == window and moving_average(0.6).window == 3
    rounds_to(sigma, "7.5")
    box = 1 - sin(pi * window * frequency) / (window * sin(pi * frequency))
    bell = {j: exp(-0.5 * (j / sigma) ** 2) for j in range(-30, 31)}
    wave = {j: torch.cos(torch.tensor(2 * pi * j * frequency, dtype=torch.float64)) for j in bell}
    bump = 1 - sum(bell[j] * wave[j] for j in bell) / sum(bell.values())
    phase = torch.cos(2 * pi * 10 / 400 * torch.arange(400, dtype=torch.float64) + 0.3)
    for filter, gain, printed in ((moving_average(0.05), box, "0.529"), (gaussian(0.05), bump, "0.500")):
        close(on(filter, phase), gain * phase)
        rounds_to(gain, printed)


@pytest.mark.parametrize("window", range(3, 102, 2))
def test_a_window_and_the_share_that_it_matches(window: int) -> None:
    """sin(pi f k) / (k sin(pi f)) is 1/2 at f = r/2; a share gives back its window, and the same filter."""
    filter = lap_d(window)
    matched = moving_average(filter.cutoff)
    assert matched.window == window
    f = filter.cutoff / 2
    assert sin(pi * f * window) / (window * sin(pi * f)) == pytest.approx(0.5, abs=0.35 / window**2 + 1e-5)
    v = torch.cos(torch.arange(4 * window, dtype=torch.float64) ** 2)
    assert torch.equal(on(filter, v), on(matched, v))
    shortest = ceil(2 / filter.cutoff)
    assert filter.touches(shortest) and not filter.touches(shortest - 1)


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 1.5, 7.5, 30.0])
def test_a_deviation_and_the_share_that_it_matches(sigma: float) -> None:
    """exp(-2 (pi f s)^2) is 1/2 at f = r/2; a share gives back its deviation, and the same filter."""
    filter = gd(sigma)
    assert exp(-2 * (pi * filter.cutoff / 2 * sigma) ** 2) == pytest.approx(0.5, abs=1e-4)
    v = torch.cos(torch.arange(ceil(8 * sigma), dtype=torch.float64) ** 2)
    if filter.cutoff < 1:
        matched = gaussian(filter.cutoff)
        assert matched.sigma == pytest.approx(sigma, rel=1e-14)
        close(on(filter, v), on(matched, v))
    shortest = ceil(2 / filter.cutoff)
    assert filter.touches(shortest) and not filter.touches(shortest - 1)
    assert on(filter, v[:shortest]).shape == (shortest,)


def test_the_constants_of_the_relation() -> None:
    """sinc(x) = 1/2 at x = WINDOW / 2, and the Gaussian's closed form."""
    x = WINDOW / 2
    assert sin(pi * x) / (pi * x) == pytest.approx(0.5, abs=2e-5)
    assert pytest.approx(2 * sqrt(log(2) / 2) / pi, abs=5e-5) == SIGMA


@pytest.mark.parametrize("filter", [moving_average(0.05), gaussian(0.05)])
def test_detrending_is_circulant_removes_the_mean_and_skips_small_tensors(filter: Filter) -> None:
    v = torch.cos(torch.arange(97, dtype=torch.float64) ** 2)
    close(on(filter, v.roll(13)), on(filter, v).roll(13))
    close(on(filter, torch.ones(97).double()), torch.zeros(97))
    impulse = torch.zeros(97, dtype=torch.float64)
    impulse[0] = 1
    close(torch.fft.rfft(on(filter, v)).abs(), (torch.fft.rfft(v) * torch.fft.rfft(on(filter, impulse))).abs())
    small = v[:39]
    assert torch.equal(on(filter, small), small)
    assert not torch.equal(on(filter, v[:40]), v[:40])


def test_two_dimensional_filter_on_three_by_three_kernels_subtracts_their_means() -> None:
    kernels = torch.cos(torch.arange(4 * 2 * 9, dtype=torch.float64) ** 2).view(4, 2, 3, 3)
    close(on(high_pass_2d(0.05), kernels), kernels - kernels.mean(dim=(2, 3), keepdim=True))
    points = kernels[:, :, :1, :1].clone()
    assert torch.equal(on(high_pass_2d(0.05), points), points)
    assert torch.equal(on(high_pass_2d(0.0), kernels), kernels)


def test_rescaling_a_sam_offset_to_its_radius_is_fedsam(monkeypatch: pytest.MonkeyPatch) -> None:
    capped = Algorithm(
        perturbation=SAM(0.1), spectral=Filters(perturbation=cap_norm(0.1)), aggregation=fedsam().aggregation
    )
    runs = [path(a, Quadratics.random(), Local(lr=0.05, epochs=5), 30, 3) for a in (capped, fedsam(0.1))]
    close(runs[0], runs[1], tolerance=1e-12)


def test_clipped_and_rescaled_coordinates() -> None:
    close(on(clip_coordinates(3.0), vector(-1, 2, -3, 4, 20, -100)), (-1, 2, -3, 4, 10.5, -10.5))
    close(on(rescale(0.25), EIGHT), EIGHT * sqrt(42 / 204))
