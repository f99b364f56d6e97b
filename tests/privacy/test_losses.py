"""The privacy loss on a grid: beside exact values, golden numbers of other accountants, and Renyi divergences."""

from math import erf, exp, inf, log, sqrt

import pytest

from undrift.privacy import gaussian_epsilon, loss_epsilon, sampled_epsilon


@pytest.mark.quick
@pytest.mark.parametrize(("noise", "rounds"), [(1.0, 1), (4.0, 10), (10.0, 100)])
def test_without_sampling_it_is_the_exact_value(noise: float, rounds: int) -> None:
    exact, ours = gaussian_epsilon(noise, 1e-5, rounds), loss_epsilon(noise, 1.0, 1e-5, rounds, step=1e-4)
    assert exact <= ours + 1e-9 < exact + 1e-4


def test_it_is_within_the_error_of_the_golden_number_of_another_accountant() -> None:
    """6.777395712150674 is Opacus' PRV accountant, an upper bound that it computes up to 0.01."""
    assert 6.777395712150674 - 0.01 < loss_epsilon(1.5, 0.04, 1e-5, 90 * 25) < 6.777395712150674


@pytest.mark.parametrize(
    "case", [(1.0, 0.01, 1000), (1.0, 0.1, 100), (1.0, 0.05, 500), (0.5, 0.01, 1000), (2.0, 0.5, 50)]
)
def test_the_larger_of_both_bounds_is_that_of_the_divergences(case: tuple[float, float, int]) -> None:
    noise, rate, rounds = case
    fine, coarse = (loss_epsilon(noise, rate, 1e-5, rounds, step=step) for step in (5e-4, 4e-3))
    assert fine <= coarse < sampled_epsilon(noise, rate, 1e-5, rounds)
    assert coarse - fine < 0.02  # a coarser grid is never below


def test_it_grows_with_rounds_and_rate_and_falls_with_noise() -> None:
    base = loss_epsilon(1.0, 0.1, 1e-5, 50)
    assert loss_epsilon(1.0, 0.1, 1e-5, 60) > base > loss_epsilon(1.0, 0.08, 1e-5, 50)
    assert base > loss_epsilon(1.2, 0.1, 1e-5, 50) and base > loss_epsilon(1.0, 0.1, 1e-4, 50)
    assert loss_epsilon(0.0, 0.1, 1e-5, 1) == inf and loss_epsilon(1.0, 0.1, 1e-5, 0) == 0
    with pytest.raises(ValueError, match="delta must be 1e-8 or more"):
        loss_epsilon(1.0, 0.1, 1e-12, 1)


def test_one_release_is_the_hockey_stick_divergence_by_hand() -> None:
    """delta(eps) of the mixture (1 - q) N(0, z^2) + q N(1, z^2) against N(0, z^2), where the loss is above eps."""
    noise, rate, delta = 0.8, 0.3, 1e-3
    epsilon = loss_epsilon(noise, rate, delta, 1)
    cut = noise**2 * log((exp(epsilon) - 1 + rate) / rate) + 0.5
    above = [0.5 - 0.5 * erf((cut - mean) / (noise * sqrt(2))) for mean in (0, 1)]
    assert (1 - rate) * above[0] + rate * above[1] - exp(epsilon) * above[0] == pytest.approx(delta, rel=2e-3)
