"""Privacy loss of Gaussian noise over rounds: exact without sampling, by Renyi divergences with Poisson sampling.

The noise multiplier z is the standard deviation of the noise on a sum, in units of the largest norm that one client
adds to it. Written here because the exact forms are short, and `dp-accounting` needs an old version of attrs.

Sources: B. Balle and Y. Wang, "Improving the Gaussian mechanism for differential privacy", 2018, theorem 8 (exact);
I. Mironov, K. Talwar and L. Zhang, "Renyi differential privacy of the sampled Gaussian mechanism", 2019, sections 3.2
and 3.3 (Poisson sampling); B. Balle et al., "Hypothesis testing interpretations and Renyi differential privacy", 2020,
theorem 21 (from Renyi divergences to epsilon).
"""

from collections.abc import Callable
from functools import cache
from math import exp, inf, lgamma, log, log1p, log2, sqrt

import torch
from torch import Tensor

ORDERS = (*(1 + x / 10 for x in range(1, 100)), *range(11, 64), *(64 * 2**x for x in range(4)))
"""The orders at which Renyi divergences are taken; the best one gives epsilon."""


def gaussian_delta(noise: float, epsilon: float) -> float:
    """The smallest delta of one Gaussian release for an epsilon; exact.

    Args:
        noise: the noise multiplier.
        epsilon: the epsilon.

    Example:
        >>> round(gaussian_delta(1.0, 4.3772), 7)
        1e-05
    """
    if noise == 0:
        return 1.0
    shift = 1 / (2 * noise)
    first, second = _log_normal_cdf(shift - epsilon * noise), _log_normal_cdf(-shift - epsilon * noise)
    return max(0.0, exp(first) - exp(epsilon + second))


def gaussian_epsilon(noise: float, delta: float, rounds: int = 1) -> float:
    """The smallest epsilon of some Gaussian releases for a delta, each of a sum that every client may be in; exact.

    Args:
        noise: the noise multiplier of each.
        delta: the delta.
        rounds: how many releases there are.

    Example:
        >>> round(gaussian_epsilon(10.0, 1e-5, rounds=100), 4)
        4.3772
    """
    if noise == 0:
        return inf if rounds else 0.0
    return least(lambda epsilon: gaussian_delta(noise / sqrt(rounds), epsilon) <= delta) if rounds else 0.0


def sampled_epsilon(noise: float, rate: float, delta: float, rounds: int) -> float:
    """An epsilon of some Gaussian releases, each of a sum over clients that take part by chance, each on its own.

    Args:
        noise: the noise multiplier of each.
        rate: the probability with which a client takes part.
        delta: the delta.
        rounds: how many releases there are.

    Example:
        >>> round(sampled_epsilon(1.0, 0.01, 1e-5, rounds=1000), 4)
        2.1014
    """
    if noise == 0 or rounds == 0:
        return inf if rounds else 0.0
    pairs = zip(ORDERS, _sampled_divergences(noise, rate), strict=True)
    return max(0.0, min(_convert(order, rounds * divergence, delta) for order, divergence in pairs))


def calibrate_noise(epsilon: float, spend: Callable[[float], float]) -> float:
    """The smallest noise multiplier, to four digits, that spends at most an epsilon.

    Args:
        epsilon: the budget.
        spend: the epsilon that is spent with a noise multiplier; it falls as that grows.

    Example:
        >>> round(calibrate_noise(4.3772, lambda noise: gaussian_epsilon(noise, 1e-5)), 3)
        1.0
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be above 0, got {epsilon}: no noise reaches less")
    return least(lambda noise: noise > 0 and spend(noise) <= epsilon, digits=1e-4)


def least(holds: Callable[[float], bool], digits: float = 1e-12) -> float:
    """The least positive number that holds, by bisection; infinity if none below 1e9 does."""
    low, high = 0.0, 1.0
    while not holds(high):
        low, high = high, 2 * high
        if high > 1e9:
            return inf
    for _ in range(int(log2(1 / digits)) + 3):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@cache
def _sampled_divergences(noise: float, rate: float) -> tuple[float, ...]:
    """The Renyi divergences of one release with Poisson sampling, at all orders."""
    return tuple(_sampled_divergence(noise, rate, order) for order in ORDERS)


def _sampled_divergence(noise: float, rate: float, order: float) -> float:
    """The Renyi divergence of one release with Poisson sampling at an order."""
    if rate == 1:
        return order / (2 * noise**2)
    whole = float(order).is_integer()
    return (_log_moment_whole if whole else _log_moment_between)(noise, rate, order) / (order - 1)


def _log_moment_whole(noise: float, rate: float, order: float) -> float:
    """Log of sum_k binomial(order, k) (1 - rate)^(order - k) rate^k exp((k^2 - k) / (2 noise^2))."""
    k = torch.arange(int(order) + 1, dtype=torch.float64)
    terms = _log_binomial(order, k) + (order - k) * log1p(-rate) + k * log(rate) + (k * k - k) / (2 * noise**2)
    return float(terms.logsumexp(0))


def _log_moment_between(noise: float, rate: float, order: float) -> float:
    """The same at an order that is not whole: two series, split where both densities are equal.

    Their terms alternate and fall as k^-(order + 2): what is left out is smaller than 1e-11 of the first.
    """
    k = torch.arange(4096, dtype=torch.float64)
    rest, split = order - k, noise**2 * log(1 / rate - 1) + 0.5
    below = (k - int(order) - 1).clamp(min=0)  # factors order - i with i > order are negative
    sign, coefficient = 1 - 2 * (below % 2), _log_binomial(order, k)
    left = k * log(rate) + rest * log1p(-rate) + (k * k - k) / (2 * noise**2)
    right = rest * log(rate) + k * log1p(-rate) + (rest * rest - rest) / (2 * noise**2)
    left += coefficient + torch.special.log_ndtr((split - k) / noise)
    right += coefficient + torch.special.log_ndtr((rest - split) / noise)
    top = torch.maximum(left.max(), right.max())
    return float(top + (sign * ((left - top).exp() + (right - top).exp())).sum().log())


def _log_binomial(order: float, k: Tensor) -> Tensor:
    """Log |binomial(order, k)|."""
    return lgamma(order + 1) - torch.lgamma(k + 1) - torch.lgamma(order - k + 1)


def _convert(order: float, divergence: float, delta: float) -> float:
    """The epsilon that a Renyi divergence of an order gives at a delta."""
    return divergence + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1)


def _log_normal_cdf(x: float) -> float:
    return float(torch.special.log_ndtr(torch.tensor(x, dtype=torch.float64)))
