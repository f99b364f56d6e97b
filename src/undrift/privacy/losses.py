"""A second accountant of Poisson sampling: the distribution of the privacy loss, on a grid that never understates it.

The loss of a release at x is log(P(x) / Q(x)), P and Q its densities with and without a client. That of many releases
is a sum, so distributions are convolved. The mass between two points of the grid is put on both such that it stays the
same under P and under Q, which can only raise delta (Doroshenko et al., "Connect the dots: tighter discrete
approximations of privacy loss distributions", 2022). What is outside the grid counts as lost.

`statement` reports the Renyi divergences of `accounting`, which are larger; a test compares both.
"""

from math import inf, log, log1p

import numpy as np
from numpy.typing import NDArray

from undrift.privacy.accounting import least

_Array = NDArray[np.float64]
_TAIL = 1e-13  # of the mass, left out on either side of a release and of the sum


def loss_epsilon(noise: float, rate: float, delta: float, rounds: int, step: float = 1e-3) -> float:
    """An epsilon of some Gaussian releases, each of a sum over clients that take part by chance, each on its own.

    Args:
        noise: the noise multiplier of each.
        rate: the probability with which a client takes part.
        delta: the delta, 1e-8 at least.
        rounds: how many releases there are.
        step: between two points of the grid; a finer one gives a little less.

    Example:
        >>> round(loss_epsilon(1.0, 0.01, 1e-5, rounds=1000), 3)
        1.829
    """
    if not 1e-8 <= delta < 1:
        raise ValueError(f"delta must be 1e-8 or more and below 1, got {delta:g}: the convolution has double precision")
    if noise == 0 or rounds == 0:
        return inf if rounds else 0.0
    return max(_one_way(noise, rate, delta, rounds, step, removed) for removed in (True, False))


def _one_way(noise: float, rate: float, delta: float, rounds: int, step: float, removed: bool) -> float:
    """Epsilon where a client is removed, or added."""
    from scipy.fft import irfft, next_fast_len, rfft  # imported here so that runs start without SciPy

    first, mass = _discrete_loss(noise, rate, step, removed)
    points: _Array = (first + np.arange(len(mass), dtype=np.float64)) * step
    low, high = (_reach(points, mass, rounds, sign) for sign in (-1, 1))
    length = next_fast_len(int((high - low) / step) + 2, real=True)
    whole = np.zeros(length)
    np.add.at(whole, np.arange(len(mass)) % length, mass)
    summed = np.clip(irfft(rfft(whole) ** rounds, length), 0, None)
    start = int(low // step)  # the sum's losses are (start + i) step; entry k of the circle is of loss k + first rounds
    losses = (start + np.arange(length)) * step
    summed = summed[(start - first * rounds + np.arange(length)) % length]
    lost = 1 - mass.sum() ** rounds + 2 * _TAIL

    def spent(epsilon: float) -> float:
        above = losses > epsilon
        return float(lost + (summed[above] * -np.expm1(epsilon - losses[above])).sum())

    return least(lambda epsilon: spent(epsilon) <= delta, digits=1e-9)


def _discrete_loss(noise: float, rate: float, step: float, removed: bool) -> tuple[int, _Array]:
    """The number of the first point of the grid, and the mass under P at every point."""
    from scipy.special import ndtr

    sign = 1 if removed else -1  # a client is added: P is the noise alone; mirrored, so that the loss grows with x
    x = np.array([-9.0 * noise, 9.0 * noise]) + ([0, 1] if removed else [-1, 0])
    rest = log1p(-rate) if rate < 1 else -inf
    ends = sign * np.logaddexp(rest, log(rate) + (2 * sign * x - 1) / (2 * noise**2))
    first, last = int(np.floor(ends[0] / step)), int(np.ceil(ends[1] / step))
    grid: _Array = np.arange(first, last + 1, dtype=np.float64) * step
    cuts = _inverse(grid, noise, rate, removed)
    alone, shifted = np.diff(ndtr(cuts / noise)), np.diff(ndtr((cuts - sign) / noise))
    mixture = (1 - rate) * alone + rate * shifted
    over, under = (mixture, alone) if removed else (alone, mixture)
    up = np.clip((over - np.exp(grid[:-1]) * under) / -np.expm1(-step), 0, over)
    mass = np.zeros(len(grid))
    mass[1:] += up
    mass[:-1] += over - up
    return first, mass


def _inverse(losses: _Array, noise: float, rate: float, removed: bool) -> _Array:
    """Where a release has these losses; infinite where it has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.exp(losses if removed else -losses)
        x = noise**2 * np.log((ratio - (1 - rate)) / rate) + 0.5
    x = np.where(ratio > 1 - rate, x, -inf)
    found: _Array = x if removed else -x
    return found


def _reach(points: _Array, mass: _Array, rounds: int, sign: int) -> float:
    """How far the sum of losses reaches with all but `_TAIL` of its mass, by Chernoff's bound."""
    held = mass > 0
    best = inf
    for order in np.geomspace(1e-2, 1e3, 120):
        weights = np.log(mass[held]) + order * sign * points[held]
        top = weights.max()
        moment = top + log(np.exp(weights - top).sum())
        best = min(best, (rounds * moment - log(_TAIL)) / order)
    return sign * min(best, rounds * float((sign * points[held]).max()))
