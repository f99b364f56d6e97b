"""The metrics that have names: functions of all outputs and targets of some data."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

IGNORED = -100
"""The target that torch's cross entropy leaves out by default."""


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of targets whose class has the largest output; classes are on the second axis.

    Targets of -100, which torch's cross entropy ignores by default, as padding, do not count.
    """
    right = outputs.argmax(1) == targets
    return float(right[targets != IGNORED].double().mean())


def mse(outputs: Tensor, targets: Tensor) -> float:
    """The mean squared error."""
    return float((outputs - targets.view_as(outputs)).double().square().mean())


def rmse(outputs: Tensor, targets: Tensor) -> float:
    """The root of the mean squared error."""
    return float(mse(outputs, targets) ** 0.5)


def mae(outputs: Tensor, targets: Tensor) -> float:
    """The mean absolute error."""
    return float((outputs - targets.view_as(outputs)).double().abs().mean())


def label_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of labels that are right: a label is predicted if its logit is above 0."""
    return float(_right(outputs, targets).double().mean())


def exact_match(outputs: Tensor, targets: Tensor) -> float:
    """The share of examples of which every label is right."""
    return float(_right(outputs, targets).reshape(len(outputs), -1).all(1).double().mean())


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    """Where a label is right; targets take the shape of the outputs, so that (n,) fits (n, 1)."""
    return (outputs > 0) == (targets.view_as(outputs) > 0.5)


def perplexity(_outputs: Any, _targets: Any) -> float:
    """A marker: the exponential of the mean loss on the data, which `evaluate` computes without outputs."""
    raise TypeError("perplexity is computed from the loss; name it as a metric of a task, or take exp of test_loss")


METRICS: Mapping[str, Callable[[Any, Any], float]] = {
    "accuracy": accuracy,
    "mse": mse,
    "rmse": rmse,
    "mae": mae,
    "label_accuracy": label_accuracy,
    "exact_match": exact_match,
    "perplexity": perplexity,
}
"""The metrics that have names."""
