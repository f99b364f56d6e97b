"""Sums of clipped displacements with Gaussian noise: differential privacy for clients, by a server that is trusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undrift.blocks.release.clip import Clipping, Following, Radius, check_radius, clip
from undrift.core.method.aggregation import Summing
from undrift.core.method.block import Block, Release
from undrift.core.method.selection import Selection
from undrift.core.method.view import End, ServerView
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import kinds


@dataclass(frozen=True)
class PrivateSum(Release):
    """client:  delta_i <- min(1, c / ||delta_i||) delta_i
    server:  delta = (sum_i delta_i + noise c n) / m, n standard normal, m the expected cohort

    It goes with equal weights. The noise is on the sum once a round, also where no client took part; what blocks derive
    from sums they derive from the noisy one. Clients that send a displacement that is not finite are rejected.

    Args:
        c: the largest norm of a client's displacement.
        noise: the standard deviation of the noise in units of c; 0 clips only.
    """

    guards = True
    private = True

    c: float = 1.0
    noise: float = 1.0

    def __post_init__(self) -> None:
        check_radius("PrivateSum", self.c)
        _check_noise("PrivateSum", self.noise, self.c)

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the noise does not cover."""
        return _uncovered(others)

    def release(self, delta: Vector, state: None, end: End) -> Vector:
        """Shorten what is longer than c."""
        return clip(delta, self.c)[0]

    def bound(self, sent: None) -> float | None:
        """The radius."""
        return None if self.c == inf else self.c

    def release_sum(self, total: Tensor, view: ServerView[None]) -> Tensor:
        """Add the noise."""
        return _add_noise(total, self.noise * self.c if self.noise else 0.0, view)


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
        _check_noise("PrivateQuantile", self.noise, self.c)
        if self.spread is not None and not 2 * self.spread > self.noise:
            raise ValueError(f"PrivateQuantile: spread must be above noise / 2 = {self.noise / 2}, got {self.spread}")

    def refuses(self, others: Mapping[str, object]) -> str:
        """What the noise does not cover."""
        return _uncovered(others)

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


def _uncovered(others: Mapping[str, object]) -> str:
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


def _add_noise(total: Tensor, deviation: float, view: ServerView[Radius] | ServerView[None]) -> Tensor:
    """Gaussian noise of a standard deviation on every entry of a sum."""
    if deviation == 0:
        return total
    drawn = torch.randn(total.shape, generator=view.random("noise"), dtype=torch.float64)
    return total.add_(drawn.to(total.device), alpha=deviation)


def _check_noise(name: str, noise: float, c: float) -> None:
    """Refuse noise that is not a number of 0 or more, and noise without a radius."""
    if not 0 <= noise < inf:
        raise ValueError(f"{name}: noise must be 0 or more and finite, got {noise}")
    if noise and c == inf:
        raise ValueError(f"{name}: noise needs a finite c, got c={c}")
