"""Losses of single examples: what a padded batch needs, in which some examples do not count."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss

Criterion = Callable[[Any, Any], Tensor]


def _each(criterion: Callable[..., Tensor], outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over each example's own numbers; targets take the shape of the outputs."""
    values = criterion(outputs, targets.view_as(outputs), reduction="none")
    return values.reshape(len(values), -1).mean(1)


def _classes(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of every example."""
    if targets.dim() != 1:
        raise ValueError(
            f"together: cross entropy needs one class per example, got targets of shape {tuple(targets.shape)}; "
            "set together to 1"
        )
    return cross_entropy(outputs, targets, reduction="none")


_KNOWN: dict[Any, Criterion] = {
    cross_entropy: _classes,
    mse_loss: partial(_each, mse_loss),
    l1_loss: partial(_each, l1_loss),
    binary_cross_entropy_with_logits: partial(_each, binary_cross_entropy_with_logits),
}


def example_losses(criterion: Callable[[Any, Any], Tensor]) -> Criterion | None:
    """The function of (outputs, targets) that gives one loss per example, whose mean a criterion is; None if unknown.

    Args:
        criterion: cross_entropy, mse_loss, l1_loss or binary_cross_entropy_with_logits of torch.nn.functional.
    """
    try:
        return _KNOWN.get(criterion)
    except TypeError:  # a criterion that cannot be hashed is unknown
        return None
