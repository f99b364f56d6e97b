"""Evaluation of a model in one pass over examples, with a result for each; and the examples that clients test on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.core.model.random import derive
from undrift.core.model.samples import weighted_sum
from undrift.core.records.place import placed_with
from undrift.core.tasks.evaluation import evaluating
from undrift.data.arrays.dataset import Dataset, Split

BATCH = 200


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Args:
        accuracy: the share of correctly classified examples; nan without examples.
        loss: the mean loss.
        examples: how many examples there were.
    """

    accuracy: float
    loss: float
    examples: int

    @classmethod
    def of(cls, right: Tensor, loss: float) -> "Evaluation":
        """From what was classified correctly, and the mean loss."""
        return cls(float(right.double().mean()), loss, len(right))


def answers(
    module: nn.Module, split: Split, prepare: Callable[[Tensor], Tensor], chosen: Tensor | None = None
) -> tuple[Tensor, float]:
    """Whether each example is classified correctly, and the mean loss; the modes of the module's parts are restored.

    Args:
        module: returns the logits of a batch.
        split: the examples.
        prepare: converts stored inputs to the module's input.
        chosen: the indices of the examples to use; None takes all.
    """
    chosen = torch.arange(len(split)) if chosen is None else chosen
    right, losses = list[Tensor](), list[Tensor]()
    parts = torch.split(chosen, BATCH) if len(chosen) else ()
    batches = ((prepare(split.inputs[part]), split.targets[part]) for part in parts)
    with evaluating(module), torch.inference_mode():
        for inputs, targets in placed_with(module).ahead(batches):
            logits = module(inputs)
            right.append(logits.argmax(1) == targets)
            losses.append(cross_entropy(logits, targets, reduction="sum"))
    if not right:
        return torch.empty(0, dtype=torch.bool), float("nan")
    return torch.cat(right).cpu(), weighted_sum(losses, [1] * len(losses)) / len(chosen)


def apportion(counts: Tensor, seats: int) -> Tensor:
    """Integers in proportion to the counts that sum to `seats`, by the largest remainder.

    Among equal remainders the first wins.

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


def check_indices(chosen: Any, size: int, whose: str) -> Tensor:
    """Indices as a tensor, validated against the size of the data."""
    own = np.require(chosen, requirements="W") if isinstance(chosen, np.ndarray) else chosen  # torch warns otherwise
    found = torch.as_tensor(own, dtype=torch.int64)
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < size:
        span = f"{int(found.min())} to {int(found.max())}"
        raise ValueError(f"DataTask: {whose} must contain indices in [0, {size}), got {span}")
    return found


def group_by_label(labels: Tensor, count: int) -> list[Tensor]:
    """The positions of each label from 0 to count - 1, in order."""
    order = torch.argsort(labels, stable=True)
    return list(torch.split(order, torch.bincount(labels, minlength=count).tolist()))


def owner_tests(dataset: Dataset, clients: Sequence[Tensor]) -> list[Tensor] | None:
    """The positions of the test examples of each client's owner; a client without examples has none.

    Args:
        dataset: the data.
        clients: the indices of each client's training examples.

    Returns:
        None if the data have no owners, a client has examples of several, or no client would have a test.
    """
    train, test = dataset.train.owners, dataset.test.owners
    if train is None or test is None:
        return None
    owners = [torch.unique(train[own]) for own in clients]
    if any(len(owner) > 1 for owner in owners):
        return None
    grouped = group_by_label(test, int(torch.cat([train, test]).max()) + 1)
    own = [grouped[int(owner)] if len(owner) else test[:0] for owner in owners]
    return own if any(map(len, own)) else None


def shared_test(clients: Sequence[Tensor], share: float, size: int, seed: int) -> Tensor | None:
    """Which examples are held out from training by every client that has them; None if no two clients share any.

    At least one example of each client stays for training.

    Args:
        clients: the indices of each client's examples.
        share: how much of all their examples to hold out.
        size: how many examples the data have.
        seed: fixes which.

    Example:
        >>> held = shared_test([torch.arange(6), torch.arange(4, 10)], 0.5, 10, seed=0)
        >>> len(held), int(held.sum())
        (10, 5)
    """
    joined = torch.cat([*clients, torch.empty(0, dtype=torch.int64)])
    every = torch.unique(joined)
    if len(every) == len(joined):
        return None
    order = torch.randperm(len(every), generator=Generator().manual_seed(derive(seed, "shared holdout")))
    held = torch.zeros(size, dtype=torch.bool)
    held[every[order[: int(share * len(every) + 0.5)]]] = True
    for own in clients:
        if len(own) and held[own].all():
            held[own[0]] = False
    return held


def held_count(count: int, share: float) -> int:
    """How many of a client's examples are held out; at least one stays for training.

    Args:
        count: how many it has.
        share: how much of them to hold out.

    Example:
        >>> held_count(20, 0.3), held_count(1, 0.9), held_count(0, 0.3)
        (6, 0, 0)
    """
    return max(0, min(count - 1, int(share * count + 0.5)))


def split_own(own: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """A client's examples for training and those held out, each in the given order.

    Args:
        own: the indices of its examples.
        share: how much of them to hold out.
        seed: fixes which.
    """
    held = held_count(len(own), share)
    if not held:
        return own, own[:0]
    order = torch.randperm(len(own), generator=Generator().manual_seed(seed))
    return own[order[held:].sort().values], own[order[:held].sort().values]
