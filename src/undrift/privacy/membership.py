"""Membership inference: does the loss of an example tell whether the model was trained on it?

The attack takes an example for a member if its loss is below a threshold. Under (epsilon, delta) differential privacy
the share of members that it finds is at most e^epsilon times the share of others that it takes for members, plus delta,
where both have the same distribution.

Sources: S. Yeom et al., "Privacy risk in machine learning: analyzing the connection to overfitting", 2018 (the attack);
N. Carlini et al., "Membership inference attacks from first principles", 2022 (why at few false positives); E. R. DeLong
et al., 1988 (the interval of the area); C. J. Clopper and E. S. Pearson, 1934 (that of a share).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, inf, sqrt
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

CONFIDENCE = 0.95
"""The probability with which an interval has the true value."""

FALSE_POSITIVES = 0.01
"""The share of other examples that may be taken for members."""


@dataclass(frozen=True)
class Membership:
    """How well losses tell members from others; pairs of numbers are intervals.

    Args:
        members: how many training examples were judged.
        others: how many held-out examples.
        auc: the probability that a member has a smaller loss than another example; 0.5 is a guess.
        auc_interval: its interval.
        tpr: the share of members with a loss below the threshold.
        tpr_interval: its interval.
        fpr: the share of others below it, at most `FALSE_POSITIVES`.
        fpr_most: the upper end of the interval of that share.
        epsilon: the stated one; infinity if there is no guarantee.
        delta: the stated delta.
    """

    members: int
    others: int
    auc: float
    auc_interval: tuple[float, float]
    tpr: float
    tpr_interval: tuple[float, float]
    fpr: float
    fpr_most: float
    epsilon: float = inf
    delta: float = 0.0

    @property
    def allowed(self) -> float:
        """The largest share of members that epsilon allows to be found."""
        return 1.0 if self.epsilon > 700 else min(1.0, exp(self.epsilon) * self.fpr_most + self.delta)

    @property
    def holds(self) -> bool:
        """Whether no more members are found than epsilon allows."""
        return self.tpr_interval[0] <= self.allowed

    def row(self) -> dict[str, Any]:
        """Everything as a record for JSON."""
        epsilon = None if self.epsilon == inf else self.epsilon
        return {**asdict(self), "epsilon": epsilon, "allowed": self.allowed, "holds": self.holds}

    def __str__(self) -> str:
        """One line for people."""
        stated = "no epsilon is stated"
        if self.epsilon < inf:
            within = "consistent" if self.holds else "MORE THAN ALLOWED"
            stated = f"epsilon {self.epsilon:.3g} allows {self.allowed:.3g}: {within}"
        return (
            f"AUC {self.auc:.3f} {span(self.auc_interval)}, {self.tpr:.3f} {span(self.tpr_interval)} of members found "
            f"at {self.fpr:.2%} false positives ({self.members} members, {self.others} others); {stated}"
        )


def compare_losses(members: Tensor, others: Tensor, epsilon: float = inf, delta: float = 0.0) -> Membership:
    """What the losses of members and others tell.

    The threshold is an order statistic of the others' losses, so that the interval of its false positives is exact.

    Args:
        members: the loss of every training example.
        others: the loss of every held-out example.
        epsilon: the stated one.
        delta: the stated delta.

    Example:
        >>> found = compare_losses(torch.arange(100.0), torch.arange(200.0))
        >>> found.auc, found.tpr, found.fpr
        (0.75, 0.02, 0.01)
    """
    from scipy.special import betaincinv  # imported here so that runs start without SciPy

    if len(members) < 2 or len(others) < 2:
        raise ValueError(f"two members and two others are needed, got {len(members)} and {len(others)}")
    if not (bool(members.isfinite().all()) and bool(others.isfinite().all())):
        raise ValueError("some losses are not finite: the training has diverged; choose another run")
    tail, low, high = (1 - CONFIDENCE) / 2, members.double(), others.double()
    above, below = _share_above(low, high), 1 - _share_above(high, low)
    auc = float(above.mean())
    spread = NormalDist().inv_cdf(1 - tail) * sqrt(float(above.var()) / len(low) + float(below.var()) / len(high))
    place = int(FALSE_POSITIVES * len(high)) + 1
    threshold = high.sort().values[place - 1]
    hits, count = int((low < threshold).sum()), len(low)
    return Membership(
        members=count,
        others=len(high),
        auc=auc,
        auc_interval=(max(0.0, auc - spread), min(1.0, auc + spread)),
        tpr=hits / count,
        tpr_interval=(
            float(betaincinv(hits, count - hits + 1, tail)) if hits else 0.0,
            float(betaincinv(hits + 1, count - hits, 1 - tail)) if hits < count else 1.0,
        ),
        fpr=float((high < threshold).double().mean()),
        fpr_most=float(betaincinv(place, len(high) - place + 1, 1 - tail)),
        epsilon=epsilon,
        delta=delta,
    )


def _share_above(each: Tensor, others: Tensor) -> Tensor:
    """For every value the share of others above it; equal ones count half."""
    ordered = others.sort().values
    below = torch.searchsorted(ordered, each) + torch.searchsorted(ordered, each, right=True)
    share: Tensor = 1 - below.double() / (2 * len(others))
    return share


def span(interval: Sequence[float]) -> str:
    """An interval as a text.

    Args:
        interval: its ends.

    Example:
        >>> span((0.4, 0.6))
        '[0.400, 0.600]'
    """
    return f"[{interval[0]:.3f}, {interval[1]:.3f}]"
