"""Losses of single examples: what a padded batch needs, in which some examples do not count."""

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)

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


_FUNCTIONS = (mse_loss, l1_loss, smooth_l1_loss, huber_loss)
_MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)


def criterion_loss(criterion: Criterion, outputs: Any, targets: Any) -> Tensor:
    """The criterion of outputs and targets, one number; raises if it would compare every output with every target.

    torch's losses of numbers broadcast outputs of shape (n, 1) and targets of shape (n,) to n x n differences.

    Args:
        criterion: any; one of your own may take any shapes.
        outputs: of the model.
        targets: of the same examples.
    """
    known = criterion in _FUNCTIONS if isfunction(criterion) else isinstance(criterion, _MODULES)
    tensors = isinstance(outputs, Tensor) and isinstance(targets, Tensor)
    if known and tensors and outputs.shape != targets.shape and outputs.numel() == targets.numel():
        raise ValueError(
            f"criterion: outputs have the shape {list(outputs.shape)} and targets {list(targets.shape)}, so that every "
            "output would be compared with every target; reshape the targets, as targets.reshape(-1, 1) does, or "
            "squeeze the outputs in the model"
        )
    loss = criterion(outputs, targets)
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise ValueError(
            f"criterion: it returned a tensor of shape {list(loss.shape)}, not one number; take the mean, "
            'as reduction="mean" does'
        )
    return loss
