"""Canaries: clients that upload a random direction of the largest norm, to measure what a private run reveals.

The score of a canary is the cosine between its direction and what the server released. A direction that took no part
is independent of the run, so the distribution of its score is known exactly; how often canaries that took part are
above a threshold is counted. Both together give a lower bound of epsilon. Epsilon of a correct run is above it.

Sources: G. Andrew et al., "One-shot empirical privacy estimation for federated learning", 2023 (canaries and scores);
C. J. Clopper and E. S. Pearson, 1934 (the interval of a share).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf, log, sqrt
from typing import Any

import torch
from torch import Tensor

from undrift.core.model.flat_model import Vector
from undrift.core.model.random import generator

CONFIDENCE = 0.99
"""With this probability a lower bound is below the true epsilon."""

_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # quantiles of scores that become thresholds


@dataclass(frozen=True)
class CanaryBound:
    """What canaries show about the epsilon of a run.

    Args:
        epsilon: the stated one; infinity if there is no guarantee.
        delta: the stated delta.
        bound: epsilon is at least this, with probability `CONFIDENCE`.
        canaries: how many took part.
        dimension: the number of parameters that are shared.
        score: the mean score of the canaries by the whole run, in standard deviations of one that took no part.
    """

    epsilon: float
    delta: float
    bound: float
    canaries: int
    dimension: int
    score: float

    @property
    def holds(self) -> bool:
        """Whether the stated epsilon is not below the bound."""
        return self.bound <= self.epsilon

    def row(self) -> dict[str, Any]:
        """Everything as a flat record for JSON."""
        return {**asdict(self), "epsilon": None if self.epsilon == inf else self.epsilon, "holds": self.holds}

    def __str__(self) -> str:
        """One line for people."""
        stated = "no epsilon is stated" if self.epsilon == inf else f"{self.epsilon:.3g} is stated"
        return (
            f"epsilon is at least {self.bound:.3g} at delta {self.delta:.3g} ({CONFIDENCE:.0%} confidence, "
            f"{self.canaries} canaries, mean score {self.score:.2g}); {stated}: "
            f"{'consistent' if self.holds else 'REFUTED'}"
        )


def canary_direction(seed: int, number: int, mask: Tensor) -> Vector:
    """The direction of a canary: uniform on the unit sphere of the shared parameters.

    Args:
        seed: fixes all directions.
        number: of the canary, from 0.
        mask: 1 where the model is shared, else 0.
    """
    drawn = torch.randn(mask.shape, generator=generator(seed, 0, number, "canary"), dtype=torch.float64)
    drawn *= mask
    unit: Vector = (drawn / torch.linalg.vector_norm(drawn)).to(mask.dtype)
    return unit


def bound_epsilon(
    scores: Sequence[Tensor], trials: Sequence[int], dimension: int, delta: float, confidence: float = CONFIDENCE
) -> float:
    """A lower bound of epsilon from the scores of canaries that took part.

    Quantiles of the scores of one half of the canaries are the thresholds, and the other half counts. All thresholds
    and kinds of scores share what the confidence leaves.

    Args:
        scores: for each kind of score, one cosine per canary.
        trials: for each kind, the number of releases of which a score is the largest cosine.
        dimension: of the sphere that the directions were drawn from.
        delta: the delta.
        confidence: the probability with which the bound holds.

    Example:
        >>> round(bound_epsilon([torch.full((100,), 0.1)], [1], dimension=10_000, delta=1e-5), 1)
        53.4
    """
    error, found = (1 - confidence) / (len(scores) * len(_SHARES)), 0.0
    for each, tried in zip(scores, trials, strict=True):
        choosing, counting = each[0::2].double(), each[1::2].double()
        for threshold in choosing.quantile(torch.tensor(_SHARES, dtype=torch.float64)).tolist():
            least = _least_share(int((counting >= threshold).sum()), len(counting), error)
            if least > delta:
                found = max(found, log(least - delta) - _log_null(threshold, tried, dimension))
    return found


def standardise(scores: Tensor, dimension: int) -> float:
    """The mean of cosines, in standard deviations of the cosine of a random direction."""
    return float(scores.mean()) * sqrt(dimension)


def _log_null(threshold: float, trials: int, dimension: int) -> float:
    """Log of a bound of the probability that a direction that took no part has a score above a threshold.

    The cosine of a uniform direction with a fixed one is 2 x - 1, x beta distributed. Where its tail is too small for a
    float, exp(-d t^2 / 2) bounds it.
    """
    from scipy.special import betaincc  # imported here so that runs start without SciPy

    half = (dimension - 1) / 2
    tail = float(betaincc(half, half, (1 + threshold) / 2))
    return min(0.0, log(trials) + (log(tail) if tail > 0 else -dimension * threshold**2 / 2))


def _least_share(above: int, count: int, error: float) -> float:
    """The lower end of the Clopper-Pearson interval of a share."""
    from scipy.special import betaincinv

    return float(betaincinv(above, count - above + 1, error)) if above else 0.0
