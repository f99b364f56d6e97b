"""Weights that fall with a client's training loss in its last epoch."""

from dataclasses import dataclass

import torch

from undrift.blocks.aggregation.loss import ByLoss, Loss, LossComplement
from undrift.core.method.view import End


def last_loss(end: End) -> float:
    """The mean loss over all examples of the last pass, each measured before its step; short batches count less.

    These are the last steps, as many as a pass has; of a visit shorter than one pass, all steps.
    """
    last = min(end.epoch_steps, end.steps)
    losses, sizes = torch.stack(end.losses[-last:]).cpu().double(), end.batch_sizes[-last:]
    return float(losses @ torch.tensor(sizes, dtype=torch.float64)) / sum(sizes)


@dataclass(frozen=True)
class ByLastLoss(ByLoss):
    """server:  delta = sum_i a_i delta_i / sum_i a_i,  a_i = 1 / (L_i + 1e-8) or exp(-L_i / temperature)

    L_i is the mean training loss over the examples of the last epoch; with one epoch it is ByLoss.

    Args:
        rule: "inverse" or "softmax".
        temperature: of the softmax; a large one gives equal weights.
    """

    def finish(self, state: None, end: End) -> tuple[Loss, None]:
        """The loss of the last epoch."""
        return Loss(last_loss(end)), None


@dataclass(frozen=True)
class LastLossComplement(LossComplement):
    """server:  delta = sum_i (S - L_i) delta_i / ((m - 1) S),  S = sum_i L_i;   uniform if S = 0 or m = 1

    L_i is the mean training loss over the examples of the last epoch; with one epoch it is LossComplement.
    """

    def finish(self, state: None, end: End) -> tuple[Loss, None]:
        """The loss of the last epoch."""
        return Loss(last_loss(end)), None
