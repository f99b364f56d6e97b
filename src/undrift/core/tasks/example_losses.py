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
    poisson_nll_loss,
    smooth_l1_loss,
)

from undrift.core.tasks.metrics import IGNORED

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


def why_not_single(criterion: Callable[[Any, Any], Tensor], targets: Tensor) -> str:
    """Why a criterion is not the mean of one loss per example; "" if it is.

    Args:
        criterion: of a task.
        targets: all of its targets.
    """
    if example_losses(criterion) is None:
        return "its criterion is not one of torch's functional losses"
    if criterion is cross_entropy and not targets.is_floating_point() and bool((targets == IGNORED).any()):
        return f"cross entropy leaves out targets of {IGNORED} and is the mean over the others"
    return ""


def example_losses(criterion: Callable[[Any, Any], Tensor]) -> Criterion | None:
    """The function of (outputs, targets) that gives one loss per example, whose mean a criterion is; None if unknown.

    Args:
        criterion: cross_entropy, mse_loss, l1_loss or binary_cross_entropy_with_logits of torch.nn.functional.
    """
    try:
        return _KNOWN.get(criterion)
    except TypeError:  # a criterion that cannot be hashed is unknown
        return None


_FUNCTIONS = (mse_loss, l1_loss, smooth_l1_loss, huber_loss, poisson_nll_loss)
_MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss)


def criterion_loss(criterion: Criterion, outputs: Any, targets: Any) -> Tensor:
    """The criterion of outputs and targets, one number; raises if it would compare every output with every target.

    torch's losses of numbers broadcast outputs of shape (n, 1) and targets of shape (n,) to n x n differences.

    Args:
        criterion: any; one of your own may take any shapes.
        outputs: of the model.
        targets: of the same examples.
    """
    known = criterion in _FUNCTIONS if isfunction(criterion) else isinstance(criterion, _MODULES)
    if known and isinstance(outputs, Tensor) and isinstance(targets, Tensor):
        check_shapes(outputs, targets)
    loss = criterion(outputs, targets)
    if not isinstance(loss, Tensor) or loss.dim() == 0:
        return loss
    if loss.numel() != 1:
        raise ValueError(
            f"criterion: it returned a tensor of shape {list(loss.shape)}, not one number; take the mean, "
            'as reduction="mean" does'
        )
    return loss.reshape(())


def check_shapes(outputs: Tensor, targets: Tensor) -> None:
    """Raise if there are as many targets as outputs, but in another shape.

    Args:
        outputs: of the model.
        targets: numbers that they are compared with.
    """
    if outputs.shape != targets.shape and outputs.numel() == targets.numel():
        raise ValueError(
            f"criterion: outputs have the shape {list(outputs.shape)} and targets {list(targets.shape)}, so that every "
            "output would be compared with every target; reshape the targets, as targets.reshape(-1, 1) does, or "
            "squeeze the outputs in the model"
        )
