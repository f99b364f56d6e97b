"""Accounting against numbers of the literature, of other libraries and of integrals."""

from math import exp, inf, log, pi, sqrt

import numpy as np
import pytest

from undrift.privacy.accounting import _sampled_divergence as divergence
from undrift.privacy.accounting import (
    _sampled_divergences,
    calibrate_noise,
    gaussian_delta,
    gaussian_epsilon,
    sampled_epsilon,
)


@pytest.mark.quick
@pytest.mark.parametrize(("noise", "epsilon"), [(0.5, 9.9973), (1, 4.3772), (2, 1.9931), (4, 0.9263)])
def test_one_gaussian_release(noise: float, epsilon: float) -> None:
    assert gaussian_epsilon(noise, 1e-5) == pytest.approx(epsilon, abs=5e-5)
    assert gaussian_delta(noise, gaussian_epsilon(noise, 1e-5)) == pytest.approx(1e-5, rel=1e-6)


def test_rounds_add_up_as_one_release_with_less_noise() -> None:
    assert gaussian_epsilon(10, 1e-5, rounds=100) == pytest.approx(gaussian_epsilon(1, 1e-5), rel=1e-9)
    assert gaussian_epsilon(1, 1e-5, rounds=0) == 0 and gaussian_epsilon(0, 1e-5) == inf


WHOLE = [(0.01, 1, 1000, 2.1078), (0.1, 1, 100, 7.9729), (0.05, 1, 500, 8.4323), (0.01, 0.5, 1000, 15.4721)]


@pytest.mark.parametrize(("rate", "noise", "rounds", "epsilon"), WHOLE)
def test_poisson_sampling_at_whole_orders(
    rate: float, noise: float, rounds: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undrift.privacy.accounting.ORDERS", range(2, 513))
    _sampled_divergences.cache_clear()
    assert sampled_epsilon(noise, rate, 1e-5, rounds) == pytest.approx(epsilon, abs=5e-5)
    _sampled_divergences.cache_clear()


def test_the_value_of_opacus() -> None:
    """Opacus's own test of its RDP accountant: noise 1.5, rate 0.04, 90 epochs."""
    assert sampled_epsilon(1.5, 0.04, 1e-5, rounds=90 * 25) == pytest.approx(7.32911117143, rel=1e-9)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("order", [1.1, 1.7, 2.5, 3.0, 6.5, 9.9])
@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.3, 0.8), (0.9, 2.0)])
def test_divergences_are_the_integrals(order: float, rate: float, noise: float) -> None:
    """E over N(0, z^2) of ((1 - q) + q exp((2x - 1) / (2 z^2)))^order, by the trapezoidal rule."""
    x = np.linspace(-40 * noise, order + 40 * noise, 2_000_001)
    ratio = np.logaddexp(log(1 - rate), log(rate) + (2 * x - 1) / (2 * noise**2))
    values = np.exp(order * ratio - x**2 / (2 * noise**2)) / (noise * sqrt(2 * pi))
    assert exp(divergence(noise, rate, order) * (order - 1)) == pytest.approx(np.trapezoid(values, x), rel=1e-9)


def test_more_noise_fewer_rounds_and_rarer_clients_cost_less() -> None:
    base = sampled_epsilon(1.0, 0.1, 1e-5, 50)
    assert sampled_epsilon(1.1, 0.1, 1e-5, 50) < base < sampled_epsilon(1.0, 0.1, 1e-5, 51)
    assert sampled_epsilon(1.0, 0.09, 1e-5, 50) < base < sampled_epsilon(1.0, 0.1, 1e-6, 50)
    assert base < gaussian_epsilon(1.0, 1e-5, 50)  # sampling only helps
    assert sampled_epsilon(0, 0.1, 1e-5, 1) == inf and sampled_epsilon(1, 0.1, 1e-5, 0) == 0


@pytest.mark.parametrize("epsilon", [0.5, 3.0, 20.0])
@pytest.mark.sweep(every=2)
def test_calibrated_noise_spends_the_budget(epsilon: float) -> None:
    noise = calibrate_noise(epsilon, lambda z: sampled_epsilon(z, 0.1, 1e-5, 100))
    assert sampled_epsilon(noise, 0.1, 1e-5, 100) <= epsilon < sampled_epsilon(noise * 0.999, 0.1, 1e-5, 100) + 1e-6
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        calibrate_noise(0, lambda z: 1 / z)
