"""Sums of clipped displacements with Gaussian noise: differential privacy for clients, by a server that is trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undrift.blocks.release.clip import Clipping, Following, Radius, clip
from undrift.core import Block, End, Release, Selection, ServerView, Summing, Synchronous, Vector
from undrift.core.records.types import kinds
from undrift.util.naming.ranges import AboveZero


@dataclass(frozen=True)
class PrivateSum(Release):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i
    server:  delta = (sum_i delta_i + noise c n) / m, n standard normal, m the expected cohort

    It goes with equal weights. The noise is on the sum once a round, also where no client took part; what blocks derive
    from sums they derive from the noisy one. Clients that send a displacement that is not finite are rejected.

    With `separation` b above 1 clients take turns, so that each is in one round of b at most, and the noise of the
    rounds is correlated: noise c |f| C^-1 Z in place of noise c Z, where Z has a standard normal vector for each round
    and C is the lower triangular Toeplitz matrix of f_0 = 1, f_k = f_(k-1) (1 - 1 / (2 k)) up to f_(b-1). Later rounds
    take away a part of what one adds, so that the model, the sum of all rounds, has less noise. The noise of earlier
    rounds is drawn again in every round.

    Args:
        c: the largest norm of a client's displacement.
        noise: the standard deviation of the noise in units of c, for each time that a client takes part; 0 clips only.
        separation: how many rounds lie at least between two of a client; 1 draws every round on its own.
    """

    guards = True
    private = True

    c: AboveZero = 1.0
    noise: float = 1.0
    separation: int = 1

    def __post_init__(self) -> None:
        check_noise("PrivateSum", self.noise, self.c)
        if self.separation < 1:
            raise ValueError(f"PrivateSum: separation must be 1 round or more, got {self.separation}")

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the noise does not cover."""
        schedule = others.get("schedule")
        if self.separation > 1 and isinstance(schedule, Synchronous) and schedule.overlaps:
            return (
                f"needs rounds of clients that take turns, and schedule={schedule!r} lets rounds overlap; leave it out"
            )
        return why_uncovered(others)

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Shorten what is longer than c."""
        return clip(delta, self.c)[0]

    def bound(self, sent: None) -> float | None:
        """The radius."""
        return None if self.c == inf else self.c

    def release_sum(self, total: Tensor, view: ServerView[None]) -> Tensor:
        """Add the noise."""
        if not self.noise:
            return total
        factors = correlation(self.separation)
        deviation = self.noise * self.c * sqrt(sum(f * f for f in factors))
        for past, factor in enumerate(inverse(factors, view.round + 1)):
            _add_noise(total, deviation * factor, view, view.round - past)
        return total


class Centred(NamedTuple):
    """Whether a displacement was not longer than the radius, 0.5 or -0.5: one client changes the sum by 0.5 at most."""

    inside: float


@dataclass(frozen=True)
class PrivateQuantile(Following[Centred]):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i, b_i = 1 if ||delta_i|| <= c else 0
    server:  delta = (sum_i delta_i + z c n) / m;  c <- c exp(-lr (b - q)),
             b = 1/2 + (sum_i (b_i - 1/2) + spread n') / m,  z = (noise^-2 - (2 spread)^-2)^(-1/2)

    m is the expected cohort, n and n' are standard normal. Both sums together cost what one with `noise` would.

    Args:
        c: the norm at which round 0 clips.
        q: the quantile of the norms that c follows.
        lr: how fast.
        noise: the noise multiplier of the whole round; 0 follows the quantile only.
        spread: the standard deviation of the noise on the count, in clients; None is m / 20.
    """

    private = True
    reports = ("bound",)

    noise: float = 1.0
    spread: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise("PrivateQuantile", self.noise, self.c)
        if self.spread is not None and not 2 * self.spread > self.noise:
            raise ValueError(f"PrivateQuantile: spread must be above noise / 2 = {self.noise / 2}, got {self.spread}")

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the noise does not cover."""
        return why_uncovered(others)

    def finish(self, state: Clipping, end: End) -> tuple[Centred, None]:
        """Whether the displacement was left alone."""
        return Centred(0.5 if state.inside else -0.5), None

    def release_sum(self, total: Tensor, view: ServerView[Radius]) -> Tensor:
        """Add the noise that is left to the sum beside the count."""
        spread = self._spread(view.cohort)
        rest = self.noise / sqrt(1 - (self.noise / (2 * spread)) ** 2) if self.noise else 0.0
        return _add_noise(total, rest * view.state.c, view)

    def receive(self, delta: Vector, up: Centred | None, view: ServerView[Radius]) -> tuple[Vector, Radius]:
        """Move the radius towards the quantile, by the noisy count."""
        spread = self._spread(view.cohort) if self.noise else 0.0
        drawn = float(torch.randn((), generator=view.random("count"), dtype=torch.float64))
        inside = 0.5 + ((up.inside if up else 0.0) + spread * drawn) / view.cohort
        view.report("bound", view.state.c)
        return delta, self.moved(view.state.c, inside)

    def _spread(self, cohort: int) -> float:
        spread = cohort / 20 if self.spread is None else self.spread
        if not 2 * spread > self.noise:
            raise ValueError(
                f"PrivateQuantile: noise on the count of {spread} clients leaves nothing of noise={self.noise} for the "
                f"displacements of {cohort} clients; set spread above {self.noise / 2}, or a larger cohort"
            )
        return spread


def correlation(separation: int) -> list[float]:
    """The first column of C, see `PrivateSum`: the square root of the matrix of prefix sums, cut after some rounds.

    Sources: H. Fichtenberger, M. Henzinger and J. Upadhyay, "Constant matters: fine-grained complexity of
    differentially private continual observation", 2022 (the square root); N. P. Kalinin and C. Lampert, "Banded square
    root matrix factorization for differentially private model training", 2024 (cut, so that the columns of a client's
    rounds have no row in common).

    Args:
        separation: how many entries are not zero.

    Example:
        >>> correlation(4)
        [1.0, 0.5, 0.375, 0.3125]
    """
    found = [1.0]
    for k in range(1, separation):
        found.append(found[-1] * (1 - 1 / (2 * k)))
    return found


def inverse(factors: Sequence[float], length: int) -> list[float]:
    """The first column of the inverse of a lower triangular Toeplitz matrix.

    Args:
        factors: the first column of the matrix, which begins with 1; what is missing is 0.
        length: how many entries.

    Example:
        >>> inverse([1.0, 0.5], 4)
        [1.0, -0.5, 0.25, -0.125]
    """
    found = [1.0]
    for t in range(1, length):
        found.append(-sum(f * found[t - j] for j, f in enumerate(factors[: t + 1]) if j))
    return found[:length]


def why_uncovered(others: Mapping[str, object]) -> str:
    """What would leave the clients, or change who takes part, beside the noise; "" if nothing would."""
    why = ""
    for slot, block in others.items():
        if slot == "aggregation" and not (isinstance(block, Summing) and _counts_alike(block)):
            why = f"aggregation={block!r} weighs uploads by what clients report, or one by one; use uniform"
        elif slot == "selection" and type(block) is not Selection:
            why = f"selection={block!r} chooses clients by their data; leave it out"
        elif isinstance(block, Block) and block.Up is not None:
            why = f"{slot}={block!r} uploads {', '.join(kinds(block.Up))} besides the displacement; leave it out"
    return why and f"does not cover the whole method: {why}"


def _counts_alike(rule: Summing[Any, Any, Any, Any, Any]) -> bool:
    """Whether a rule adds nothing of an upload but its displacement, with weight one."""
    return rule.equal_weights and not rule.extra and not rule.scalars


def _add_noise(
    total: Tensor, deviation: float, view: ServerView[Radius] | ServerView[None], round: int | None = None
) -> Tensor:
    """Gaussian noise of a standard deviation on every entry of a sum; that of an earlier round is drawn again."""
    if deviation == 0:
        return total
    random = replace(view, round=view.round if round is None else round).random("noise")
    drawn = torch.randn(total.shape, generator=random, dtype=torch.float64)
    return total.add_(drawn.to(total.device), alpha=deviation)


def check_noise(name: str, noise: float, c: float) -> None:
    """Refuse noise that is not a number of 0 or more, and noise without a radius."""
    if not 0 <= noise < inf:
        raise ValueError(f"{name}: noise must be 0 or more and finite, got {noise}")
    if noise and c == inf:
        raise ValueError(f"{name}: noise needs a finite c, got c={c}")
