"""Weights that fall with a client's training loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

import torch

from undrift.core import End, ServerView, Summing, Upload, Vector
from undrift.util.naming.ranges import Positive


class Loss(NamedTuple):
    """A client's mean training loss of the round."""

    loss: float


def training_loss(end: End) -> float:
    """The mean loss over all examples of all steps, each measured before its step; short batches count less."""
    losses, sizes = torch.stack(end.losses).cpu().double(), end.batch_sizes
    return float((losses * torch.tensor(sizes, dtype=torch.float64)).sum()) / sum(sizes)


@dataclass(frozen=True)
class ByLoss(Summing[None, None, None, Loss]):
    """server:  delta = sum_i a_i delta_i / sum_i a_i,  a_i = 1 / (L_i + 1e-8) or exp(-L_i / temperature)

    L_i is the mean training loss of the round over the examples of all its steps.

    Args:
        rule: "inverse" or "softmax".
        temperature: of the softmax; a large one gives equal weights.
    """

    reports = ("weight",)

    rule: str = "inverse"
    temperature: Positive = 1.0

    def __post_init__(self) -> None:
        if self.rule not in ("inverse", "softmax"):
            raise ValueError(
                f'ByLoss: rule must be "inverse" or "softmax", got {self.rule!r}; the complement is LossComplement()'
            )

    def finish(self, state: None, end: End) -> tuple[Loss, None]:
        """The loss of the round."""
        return Loss(training_loss(end)), None

    def weigh(self, upload: Upload, up: Loss, age: int) -> float:
        """A lower loss, a larger weight."""
        return 1 / (up.loss + 1e-8) if self.rule == "inverse" else exp(-up.loss / self.temperature)


@dataclass(frozen=True)
class LossComplement(Summing[None, None, None, Loss]):
    """server:  delta = sum_i (S - L_i) delta_i / ((m - 1) S),  S = sum_i L_i;   uniform if S = 0 or m = 1

    From two sums over one upload: S sum_i delta_i - sum_i L_i delta_i.
    """

    equal_weights = True
    extra = ("loss",)

    def finish(self, state: None, end: End) -> tuple[Loss, None]:
        """The loss of the round."""
        return Loss(training_loss(end)), None

    def weigh(self, upload: Upload, up: Loss, age: int) -> Mapping[str, float]:
        """One, and the loss in the second sum."""
        return {"": 1.0, "loss": up.loss}

    def check(self, up: Loss, examples: int, weights: Mapping[str, float]) -> None:
        """A loss is 0 or more, and the weight in the second sum."""
        if up.loss < 0 or abs(up.loss - weights["loss"]) > 1e-5 * up.loss:
            raise ValueError(f"LossComplement: a loss must be 0 or more, got {up.loss}; use Uniform()")

    def mean(self, up: Loss, view: ServerView[None]) -> Vector:
        """Both sums together."""
        whole, others = view.scalar("loss"), view.cohort - 1
        if whole == 0 or others == 0:
            return view.weighted / view.weight
        return (whole * view.weighted - view.weighted_by("loss")) / (others * whole)
