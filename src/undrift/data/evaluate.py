"""How good a model is: one pass over examples, answers kept apart."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.data.dataset import Split

BATCH = 200


@dataclass(frozen=True)
class Evaluation:
    """What a model reached.

    Args:
        accuracy: the share of right answers; nan without examples.
        loss: the mean loss.
        examples: how many there were.
    """

    accuracy: float
    loss: float
    examples: int

    @classmethod
    def of(cls, right: Tensor, loss: float) -> "Evaluation":
        """From the answers and the mean loss."""
        return cls(float(right.double().mean()), loss, len(right))


def answers(
    module: nn.Module, split: Split, prepare: Callable[[Tensor], Tensor], chosen: Tensor | None = None
) -> tuple[Tensor, float]:
    """Whether each example is answered rightly, and the mean loss; the module is left in the mode it was in.

    Args:
        module: gives the logits of a batch.
        split: the examples.
        prepare: turns stored inputs into what the module takes.
        chosen: the examples that count, by number; None takes all.
    """
    chosen = torch.arange(len(split)) if chosen is None else chosen
    right = torch.empty(len(chosen), dtype=torch.bool)
    loss = torch.zeros((), dtype=torch.float64)
    training = module.training
    module.eval()
    try:
        with torch.inference_mode():
            for start in range(0, len(chosen), BATCH):
                part = chosen[start : start + BATCH]
                targets = split.targets[part]
                logits = module(prepare(split.inputs[part]))
                right[start : start + BATCH] = logits.argmax(1) == targets
                loss += cross_entropy(logits, targets, reduction="sum").double()
    finally:
        module.train(training)
    return right, float(loss / len(chosen)) if len(chosen) else float("nan")


def apportion(counts: Tensor, seats: int) -> Tensor:
    """Whole numbers in proportion to the counts that add up to the seats, by the largest remainder.

    Of equal remainders the earlier wins.

    Example:
        >>> apportion(torch.tensor([50, 30, 21]), 10)
        tensor([5, 3, 2])
    """
    total = int(counts.sum())
    if total == 0:
        return torch.zeros_like(counts)
    shares = counts * seats
    given = shares // total
    order = torch.argsort(shares - given * total, descending=True, stable=True)
    given[order[: seats - int(given.sum())]] += 1
    return given
