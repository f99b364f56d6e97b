"""Losses by name, and what a data set is trained and evaluated with by default."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss

from undrift.core.tasks.example_losses import example_losses
from undrift.data.arrays.dataset import Dataset
from undrift.util.naming.binding import check_literals
from undrift.util.naming.calls import read_call
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


class WeightedEntropy:
    """The cross entropy with a weight for each class: a mean over the batch of the examples' weighted losses.

    Unlike torch's weighted mean it does not divide by the weights in the batch, so that an example counts the same in
    any batch, and a client's loss is a mean over its examples.

    Args:
        weights: of each class.

    Example:
        >>> import torch
        >>> loss = WeightedEntropy((0.5, 2.0))
        >>> loss.each(torch.zeros(2, 2), torch.tensor([0, 1])).tolist()
        [0.3465735912322998, 1.3862943649291992]
    """

    def __init__(self, weights: tuple[float, ...]) -> None:
        if not weights or any(not 0 <= weight < float("inf") for weight in weights) or not sum(weights):
            raise ValueError(f"loss: weights must be 0 or more, and not all 0, got {weights}")
        self.weights = tuple(map(float, weights))

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over a batch."""
        return self.each(outputs, targets).mean()

    def each(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of every example."""
        return cross_entropy(outputs, targets, reduction="none") * outputs.new_tensor(self.weights)[targets]


def balanced_weights(counts: Sequence[int]) -> tuple[float, ...]:
    """Weights with which every class counts the same: all examples / (classes * examples of the class).

    Args:
        counts: examples of each class, a sum over clients.

    Example:
        >>> balanced_weights([90, 10])
        (0.5555555555555556, 5.0)
    """
    return tuple(sum(counts) / (len(counts) * max(int(count), 1)) for count in counts)


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
    if isinstance(criterion, WeightedEntropy):
        return criterion.each
    own: dict[Criterion, Criterion] = {
        squared_error: mse_loss,
        absolute_error: l1_loss,
        label_entropy: binary_cross_entropy_with_logits,
    }
    return example_losses(own.get(criterion, criterion))


def check_loss(text: str | None) -> str | None:
    """Validate the name of a loss; a reference is resolved when the run is prepared."""
    if text is None:
        return None
    call = read_call(text, "for example cross-entropy(weights='balanced')")
    check_literals(call)
    if call.name not in LOSSES and Reference.parse(call.name) is None:
        raise ValueError(f'loss: no loss is named {text!r}; {suggest(text, LOSSES)}; your own is "package.module:name"')
    weights = call.named.get("weights")
    own = call.name == "cross-entropy" and set(call.named) == {"weights"}
    if (
        call.name in LOSSES
        and (call.named or call.positional)
        and not (own and (weights == "balanced" or isinstance(weights, tuple)))
    ):
        raise ValueError(f"loss: {text}: arguments are weights='balanced' or weights=(1, 5), of cross-entropy only")
    return str(call)


def find_loss(text: str, counts: Sequence[int] = ()) -> Criterion:
    """The loss of a name or a reference: a function of (outputs, targets), a mean over the batch.

    Args:
        text: the name or the reference, with arguments in brackets if it has some.
        counts: how many training examples each class has, for weights='balanced'.
    """
    check_loss(text)
    call = read_call(text)
    reference = Reference.parse(call.name)
    if reference is None and call.named:
        weights: Any = call.named["weights"]
        if len(counts) != (len(counts) if weights == "balanced" else len(weights)) or not counts:
            raise ValueError(f"loss: {text}: the data have {len(counts)} classes; give a weight for each")
        return WeightedEntropy(balanced_weights(counts) if weights == "balanced" else weights)
    if reference is None:
        return LOSSES[call.name]
    found = reference.resolve()
    if call.named:
        loss: Criterion = found(**call.named) if isinstance(found, type) else partial(found, **call.named)
    else:
        loss = found() if isinstance(found, type) else found
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
