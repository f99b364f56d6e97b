"""The metrics that have names: functions of all outputs and targets of some data."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

IGNORED = -100
"""The target that torch's cross entropy leaves out by default."""


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The share of targets whose class has the largest output; classes are on the second axis.

    Targets of -100, which torch's cross entropy ignores by default, as padding, do not count.
    """
    right = outputs.argmax(1) == targets
    return float(right[targets != IGNORED].double().mean())


def balanced_accuracy(outputs: Tensor, targets: Tensor) -> float:
    """The mean over classes of the share of their examples that are right; classes without examples do not count."""
    found, targets = _read_classes(outputs, targets)
    hits, counts = (
        torch.bincount(x, minlength=outputs.shape[1]).double() for x in (targets[found == targets], targets)
    )
    return float((hits[counts > 0] / counts[counts > 0]).mean())


def f1(outputs: Tensor, targets: Tensor, label: int | None = None) -> float:
    """The harmonic mean of precision and recall: 2 hits / (examples of the class + predictions of it).

    Args:
        outputs: one for each class, on the second axis.
        targets: the classes.
        label: the class; None is the mean over all classes that are in the targets or the predictions.
    """
    found, targets = _read_classes(outputs, targets)
    width = outputs.shape[1]
    hits, there, claimed = (
        torch.bincount(x, minlength=width).double() for x in (targets[found == targets], targets, found)
    )
    known = there + claimed > 0
    scores = 2 * hits / (there + claimed).clamp(min=1)
    return float(scores[known].mean() if label is None else scores[label])


def auroc(outputs: Tensor, targets: Tensor) -> float:
    """The area under the curve of hits against false alarms: how often an example of a class outranks one of another.

    Equal scores count half. Of more than two classes it is the mean over the classes, each against all others, without
    those that have no examples or all of them.
    """
    _, kept = _read_classes(outputs, targets)
    scores = torch.softmax(outputs[targets != IGNORED].double(), 1)
    chosen = (1,) if outputs.shape[1] == 2 else range(outputs.shape[1])
    areas = [_area(scores[:, label], kept == label) for label in chosen]
    known = [area for area in areas if area == area]
    return sum(known) / len(known) if known else float("nan")


def _area(scores: Tensor, own: Tensor) -> float:
    """The share of pairs in which an example of the class has the larger score; nan without pairs."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    rank = (counts.cumsum(0) - (counts - 1) / 2)[place]  # the mean rank of equal scores
    ones = int(own.sum())
    pairs = ones * (len(own) - ones)
    return float(rank[own].sum() - ones * (ones + 1) / 2) / pairs if pairs else float("nan")


def _read_classes(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The predicted and the true classes, without ignored ones."""
    kept = targets != IGNORED
    return outputs.argmax(1)[kept], targets[kept]


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
    "balanced_accuracy": balanced_accuracy,
    "f1": f1,
    "auroc": auroc,
    "mse": mse,
    "rmse": rmse,
    "mae": mae,
    "label_accuracy": label_accuracy,
    "exact_match": exact_match,
    "perplexity": perplexity,
}
"""The metrics that have names."""
