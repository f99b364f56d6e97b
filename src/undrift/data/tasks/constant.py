"""What a constant answer reaches: the most frequent class, or the mean. A model that learned something is better."""

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undrift.core.tasks.metrics import METRICS, perplexity
from undrift.data.arrays.preprocess import unscale

if TYPE_CHECKING:
    from undrift.data.tasks.data_task import DataTask


def constant_scores(task: "DataTask") -> dict[str, Any]:
    """The metrics of a constant answer on the official test set, and what it answers, as "answer".

    The answer is the most frequent class of the clients' training examples, or the mean of their numbers to predict.
    Only metrics that have names are there: those of one's own may need more than outputs.

    Args:
        task: the task.
    """
    data, test = task.dataset, task.dataset.test
    counts = torch.bincount(torch.cat([task.training(client) for client in range(task.population)]))
    times = torch.zeros(len(data.train), dtype=torch.float64)
    times[: len(counts)] = counts.double()
    if not len(test) or not times.sum():
        return {}
    if data.classes:
        top = int(torch.bincount(data.train.targets, weights=times, minlength=data.classes).argmax())
        outputs = torch.nn.functional.one_hot(torch.full((len(test),), top), data.classes).float()
        answer: Any = data.preprocess.labels[top]
    else:
        train = data.train.targets.double()
        mean = torch.tensordot(times, train, dims=1) / times.sum()
        labels = bool(((train == 0) | (train == 1)).all())
        outputs = (mean - 0.5 if labels else mean).float().expand_as(test.targets)  # a label is one above 0
        answer = "the mean" if not labels else "the more frequent value of each label"
    own = [unscale(x, data.target_mean, data.target_std) for x in (outputs, test.targets)]
    return {
        "answer": answer,
        **{name: _score(metric, *own) for name, metric in task.all_metrics.items() if _has_name(metric)},
    }


def _has_name(metric: Any) -> bool:
    """Whether a metric is a function that has a name here."""
    function = metric.func if isinstance(metric, partial) else metric
    return function in METRICS.values() and function is not perplexity


def _score(metric: Any, outputs: Tensor, targets: Tensor) -> float:
    return float(metric(outputs, targets))
