"""Losses by name, and what a data set is trained and evaluated with by default."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss

from undrift.core.tasks.example_losses import example_losses
from undrift.data.arrays.dataset import Dataset
from undrift.util.naming.names import suggest
from undrift.util.naming.references import Reference

Criterion = Callable[[Any, Any], Tensor]


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean squared error; targets take the shape of the outputs, so that (n,) fits (n, 1)."""
    return mse_loss(outputs, targets.view_as(outputs))


def absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean absolute error; targets take the shape of the outputs."""
    return l1_loss(outputs, targets.view_as(outputs))


def label_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The binary cross entropy of logits, a mean over labels and examples."""
    return binary_cross_entropy_with_logits(outputs, targets.view_as(outputs))


LOSSES: Mapping[str, Criterion] = {
    "cross-entropy": cross_entropy,
    "mse": squared_error,
    "l1": absolute_error,
    "bce": label_entropy,
}
"""The losses that have names."""


def each_loss(criterion: Criterion) -> Criterion | None:
    """The function that gives one loss per example, whose mean a criterion is; None if there is none.

    Args:
        criterion: a value of `LOSSES`, or one that `example_losses` knows.
    """
    own: dict[Criterion, Criterion] = {
        squared_error: mse_loss,
        absolute_error: l1_loss,
        label_entropy: binary_cross_entropy_with_logits,
    }
    return example_losses(own.get(criterion, criterion))


def check_loss(text: str | None) -> str | None:
    """Validate the name of a loss; a reference is resolved when the run is prepared."""
    if text is not None and text not in LOSSES and Reference.parse(text) is None:
        raise ValueError(f'loss: no loss is named {text!r}; {suggest(text, LOSSES)}; your own is "package.module:name"')
    return text


def find_loss(text: str) -> Criterion:
    """The loss of a name or a reference: a function of (outputs, targets), a mean over the batch."""
    check_loss(text)
    reference = Reference.parse(text)
    if reference is None:
        return LOSSES[text]
    found = reference.resolve()
    loss: Criterion = found() if isinstance(found, type) else found
    return loss


def default_loss(dataset: Dataset) -> tuple[str, tuple[str, ...]]:
    """The loss of a data set and its metrics, by its targets: classes, zeros and ones of several labels, or numbers.

    Args:
        dataset: the data.
    """
    if dataset.classes:
        return "cross-entropy", ("accuracy",)
    targets = dataset.train.targets
    if targets.dim() > 1 and bool(((targets == 0) | (targets == 1)).all()):
        return "bce", ("label-accuracy", "exact-match")
    return "mse", ("mse", "mae")
