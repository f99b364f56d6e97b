"""Weights that fall with a client's training loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

import torch

from undrift.core.block import Aggregation
from undrift.core.types import Cohort, Run, Upload, Weighted
from undrift.core.vector import Vector


class Loss(NamedTuple):
    """A client's mean training loss of the round."""

    loss: float


def training_loss(run: Run) -> float:
    """The mean loss over all examples of all epochs, each measured before its step; short batches count less."""
    batches = run.steps // run.local.epochs
    sizes = torch.full((batches,), run.local.batch_size, dtype=torch.float64)
    sizes[-1] = run.examples - (batches - 1) * run.local.batch_size
    losses = torch.stack(run.losses).double().cpu().view(-1, batches)
    return float((losses * sizes).sum()) / (run.examples * run.local.epochs)


def _told(upload: Upload) -> float:
    """The loss in an upload."""
    told = upload.parts["aggregation"]
    assert isinstance(told, Loss)
    return told.loss


@dataclass(frozen=True)
class ByLoss(Aggregation):
    """server:  delta = sum_i a_i delta_i / sum_i a_i,  a_i = 1 / (L_i + 1e-8) or exp(-L_i / temperature)

    L_i is the mean training loss of the round over all examples and epochs.

    Args:
        rule: "inverse" or "softmax".
        temperature: of the softmax; a large one gives equal weights.
    """

    Up = Loss

    rule: str = "inverse"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.rule not in ("inverse", "softmax"):
            raise ValueError(
                f'ByLoss: rule must be "inverse" or "softmax", got {self.rule!r}; the complement is LossComplement()'
            )
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"ByLoss: temperature must be positive and finite, got {self.temperature}")

    def finish(self, local: None, run: Run) -> tuple[Loss, None]:
        """The loss of the round."""
        return Loss(training_loss(run)), None

    def weigh(self, upload: Upload) -> float:
        """A lower loss, a larger weight."""
        loss = _told(upload)
        return 1 / (loss + 1e-8) if self.rule == "inverse" else exp(-loss / self.temperature)


@dataclass(frozen=True)
class LossComplement(Aggregation):
    """server:  delta = sum_i (S - L_i) delta_i / ((m - 1) S),  S = sum_i L_i;   uniform if S = 0 or m = 1

    From two sums over one upload: S sum_i delta_i - sum_i L_i delta_i.
    """

    Up = Loss
    plain = True
    extra = ("loss",)

    def finish(self, local: None, run: Run) -> tuple[Loss, None]:
        """The loss of the round."""
        return Loss(training_loss(run)), None

    def weights(self, upload: Upload) -> Mapping[str, float]:
        """The loss, in the second sum."""
        loss = _told(upload)
        if loss < 0:
            raise ValueError(f"LossComplement: a loss must be 0 or more, got {loss}; use Uniform()")
        return {"loss": loss}

    def mean(self, sums: Weighted, cohort: Cohort) -> Vector:
        """Both sums together."""
        whole, others = sums.weights["loss"], cohort.size - 1
        if whole == 0 or others == 0:
            return sums.delta / sums.weight
        return (whole * sums.delta - sums.extra["loss"]) / (others * whole)
