"""Noise in shares: every client adds a part of it, so that with secure sums no server sees a sum without noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log2, sqrt
from typing import TypeAlias

import torch
from torch import Generator, Tensor

from undrift.blocks.release.clip import clip
from undrift.blocks.release.private import check_noise, why_uncovered
from undrift.core import End, Release, Vector
from undrift.util.naming.ranges import AboveZero

Draw: TypeAlias = Callable[[int, int], Tensor]
"""Gives whole numbers from 0 below a power of two, all equally likely: its arguments are the power and how many."""

_BITS = 24  # whole numbers up to 2^24 are exact in single precision
_TAIL = 16  # a share is larger than so many standard deviations with a probability below 1e-54
_LEAST = 64  # the smallest standard deviation of a share in units of the grid, see PrivateShares


@dataclass(frozen=True)
class PrivateShares(Release):
    """client:  delta_i <- g (toward_zero(min(1, c / ||delta_i||) delta_i / g) + y_i),
             P(y) ~ exp(-y^2 / (2 s^2)) over the whole numbers, s = ceil(noise c / (sqrt(least) g))
    server:  delta = sum_i delta_i / m, m the expected cohort

    It goes with equal weights and with secure sums of `least` parties or more: the server then sees no sum without
    noise. The sum of n shares has the variance n / least (noise c)^2 or a little more, for every set of n >= least
    survivors; the accounting states that of `least`. Noise of clients that collude with the server does not count:
    make `least` the number of honest ones.

    g is a power of two, such that the numbers of the grid are exact in single precision. Rounding towards zero makes no
    vector longer. A sum of n discrete Gaussian variables has the Renyi divergence of the Gaussian with their variance
    up to 10 n exp(-(pi s)^2) for each parameter, which is 0 in double precision as s is 64 at least.

    A displacement that is not finite counts as zero. The rows of a run have no losses and norms: nothing of the clients
    but the sum leaves them.

    Sources: C. L. Canonne, G. Kamath and T. Steinke, "The discrete Gaussian for differential privacy", 2020; P.
    Kairouz, Z. Liu and T. Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", 2021 (sums).

    Args:
        c: the largest norm of a client's displacement.
        noise: the standard deviation of the noise on the sum of `least` clients, in units of c; 0 clips only.
        least: the fewest clients whose sum is unmasked.
    """

    private = True

    c: AboveZero = 1.0
    noise: float = 1.0
    least: int = 10

    def __post_init__(self) -> None:
        check_noise("PrivateShares", self.noise, self.c)
        if self.least < 2:
            raise ValueError(f"PrivateShares: least must be 2 clients or more, got {self.least}")
        if self.noise and self.grid < 2.0**-60:
            raise ValueError(f"PrivateShares: c must be above 2^-36, as sums have a resolution of 2^-60, got {self.c}")
        if self.noise and self.deviation < _LEAST:
            raise ValueError(
                f"PrivateShares: noise={self.noise} in shares of least={self.least} clients is too small for the grid; "
                f"set noise above {sqrt(self.least) / 130_000:.2g}"
            )

    @property
    def grid(self) -> float:
        """The unit of the numbers that are released."""
        return 2.0 ** ceil(log2((self.c + _TAIL * self._share) / 2**_BITS))

    @property
    def deviation(self) -> int:
        """The standard deviation of a share, in units of the grid."""
        return ceil(self._share / self.grid)

    @property
    def _share(self) -> float:
        return self.noise * self.c / sqrt(self.least)

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the noise does not cover."""
        return why_uncovered(others)

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Shorten what is longer than c, and add the client's share of the noise."""
        if not self.noise:
            return clip(delta, self.c)[0]
        x = delta.cpu().double()
        length = float(torch.linalg.vector_norm(x))
        factor = min(1.0, self.c * (1 - 2.0**-40) / (length or 1.0)) if isfinite(length) else 0.0  # no rounding above c
        whole = torch.nan_to_num(x).mul_(factor / self.grid).trunc_()
        whole += draw_discrete(len(x), self.deviation, self.open_noise(end))
        return end.share(delta.copy_(whole.mul_(self.grid)))

    def open_noise(self, end: End) -> Generator | Draw:
        """What the client's share is drawn from: the run's seed; nodes of a deployment put a secret in its place."""
        return end.random("share")


def draw_discrete(size: int, deviation: int, random: Generator | Draw) -> Tensor:
    """Whole numbers from the discrete Gaussian distribution, exactly: nothing but whole numbers is drawn and compared.

    A number is +-(k s + j), P(k) ~ exp(-k^2 / 2), j uniform below s, accepted with exp(-j (2 k s + j) / (2 s^2)).

    Source: C. F. F. Karney, "Sampling exactly from the normal distribution", 2016, for a discrete one.

    Args:
        size: how many.
        deviation: s, at most 2^24; from 1 it is the standard deviation up to 1e-7 of it.
        random: where they are drawn from.

    Example:
        >>> draw_discrete(100_000, 1000, torch.Generator().manual_seed(0)).double().std().round(decimals=-1)
        tensor(1000., dtype=torch.float64)
    """
    draw = draw_from(random) if isinstance(random, Generator) else random
    found, missing = [torch.zeros(0, dtype=torch.int64)], size
    while missing:
        k = _count(2 * missing + 64, draw)
        k = k[_accept(k * (k - 1), 2, draw)]
        j = _draw_below(len(k), deviation, draw)
        kept = _accept(j * (2 * k * deviation + j), 2 * deviation**2, draw)
        value = (k * deviation + j)[kept]
        sign = 1 - 2 * draw(2, len(value))
        found.append((sign * value)[(value > 0) | (sign > 0)][:missing])
        missing -= len(found[-1])
    return torch.cat(found)


def draw_from(random: Generator) -> Draw:
    """Whole numbers from a generator: see `Draw`."""
    return lambda span, size: torch.randint(span, (size,), generator=random)


def _count(size: int, draw: Draw) -> Tensor:
    """How often exp(-1/2) accepts before it does not."""
    found, left = torch.zeros(size, dtype=torch.int64), torch.arange(size)
    while len(left):
        left = left[_accept(torch.ones_like(left), 2, draw)]
        found[left] += 1
    return found


def _accept(above: Tensor, below: int, draw: Draw) -> Tensor:
    """True with the probability exp(-above / below), for whole numbers of 0 or more.

    By von Neumann: of the numbers r, r / 2, r / 3, ... as probabilities, the first that fails has an odd place with the
    probability exp(-r), r up to 1. What is above 1 takes further trials.
    """
    found = torch.ones(len(above), dtype=torch.bool)
    rest, whole = above % below, above // below
    turn, left = 0, torch.arange(len(above))
    while len(left):
        ratio = rest[left] if turn == 0 else torch.full_like(left, below)
        place = 1
        while len(left):
            passed = _draw_below(len(left), below * place, draw) < ratio
            found[left[~passed]] = place % 2 == 1
            left, ratio, place = left[passed], ratio[passed], place + 1
        turn += 1
        left = (found & (whole >= turn)).nonzero().flatten()
    return found


def _draw_below(size: int, limit: int, draw: Draw) -> Tensor:
    """Whole numbers from 0 below a limit, all equally likely."""
    span = 1 << (limit - 1).bit_length()  # a power of two divides the range of the generator
    found = draw(span, size)
    while len(over := (found >= limit).nonzero().flatten()):
        found[over] = draw(span, len(over))
    return found
