"""Control variates that are means of the gradients on a client's path, whatever the local optimizer does with them."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undrift.blocks.drift.scaffold import KeptVariates, Variate
from undrift.core import End, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import PositiveShare


class PathVariates(NamedTuple):
    """The client's variate, its difference to the global one, and the mean of the gradients so far."""

    c_i: Vector
    difference: Vector
    mean: Vector


@dataclass(frozen=True)
class _Inside(KeptVariates[Variate, PathVariates]):
    """client:  g <- g - c_i + c;   at the end c_i <- mean_k g_k, before the correction"""

    def begin(self, sent: Variate, kept: Variate, start: Start) -> PathVariates:
        """The correction of the round; no gradient yet."""
        return PathVariates(kept.c, sent.c - kept.c, torch.zeros_like(sent.c))

    def adjust(self, grad: Vector, state: PathVariates, step: Step) -> Vector:
        """Add the gradient to the mean, then correct it."""
        state.mean.add_(grad, alpha=1 / step.steps)
        return grad.add_(state.difference)


@dataclass(frozen=True)
class ScaffoldInside(_Inside):
    """client:  g <- g - c_i + c;   at the end c_i <- mean_k g_k, before the correction, clipped and filtered as g is
    server:  c <- c + 1/N sum_i (new c_i - old c_i)

    For plain SGD it is `Scaffold`, whose variates are these means by another way. The correction is inside the local
    optimizer: Adam's moments, a sign or Muon's matrices are those of the corrected gradient.
    """

    def finish(self, state: PathVariates, end: End) -> tuple[Variate, Variate]:
        """The change of the variate travels."""
        mean = end.share(state.mean)
        return Variate(mean - state.c_i), self._keep(mean, end)

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """Move the global variate by the mean change over all clients."""
        return delta, self._move(view.state.c + up.c / view.population, view)


@dataclass(frozen=True)
class FollowedVariates(_Inside):
    """client:  g <- g - c_i + c;   at the end c_i <- mean_k g_k, before the correction, clipped and filtered as g is
    server:  c <- c + gamma (mean_i c_i - c), over the cohort

    Args:
        gamma: how far the server's variate follows the cohort's; 1 forgets all rounds before.
    """

    gamma: PositiveShare = 0.2

    def finish(self, state: PathVariates, end: End) -> tuple[Variate, Variate]:
        """The variate itself travels."""
        mean = end.share(state.mean)
        return Variate(mean), self._keep(mean, end)

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        """A moving average over the rounds."""
        return delta, self._move(view.state.c.lerp(up.c / view.cohort, self.gamma), view)
