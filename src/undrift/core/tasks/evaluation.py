"""Metrics on held-out data: functions of outputs and targets, objects that are updated batch by batch, or names.

A function gets all outputs and targets of the data at once, so that any metric is exact. `BatchMean` and objects with
`update`, `compute` and `reset`, such as those of torchmetrics, see one batch at a time and keep nothing else.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import signature
from math import exp, inf
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor, nn

from undrift.core.model.samples import examples_of, weighted_sum
from undrift.core.records.place import home, placed_with
from undrift.core.tasks.metrics import METRICS, perplexity
from undrift.util.naming.binding import check_literals
from undrift.util.naming.calls import Call, read_call
from undrift.util.naming.names import suggest
from undrift.util.naming.references import Reference

Direction: TypeAlias = Literal["max", "min"]

Goal: TypeAlias = str | tuple[str, Direction] | None
"""By which column runs are judged, with "max" or "min" if its name does not tell."""

LOSS = "test_loss"
"""The column of the mean loss on held-out data."""

_NAME = re.compile(r"[A-Za-z][\w/-]{0,63}")
_TAKEN = {
    *("round", "clients", "rejected", "lr", "train_loss", "drift", "client_distance", "client_norm", "mean_norm"),
    *("bytes_down", "bytes_up", "gradients", "seconds", "evaluate_seconds", "lens_seconds", "rounds", "target"),
    *("best", "best_round", "judged_by", "direction", "traffic", "parameters", LOSS),
}
_LOWER = ("loss", "mse", "mae", "rmse", "error", "perplexity", "nll", "wer", "cer", "distance", "deviation", "regret")


@runtime_checkable
class Updated(Protocol):
    """A metric that is updated batch by batch, such as those of torchmetrics."""

    def update(self, outputs: Any, targets: Any) -> Any:
        """Take in a batch."""

    def compute(self) -> Any:
        """The value over all batches since the last reset: a number, or a mapping of numbers."""

    def reset(self) -> Any:
        """Forget all batches."""


Metric: TypeAlias = Callable[[Any, Any], Any] | Updated
Metrics: TypeAlias = Mapping[str, Metric | str] | Sequence[Metric | str] | None


class Judged(NamedTuple):
    """What one pass over a batch gives: the mean loss, and what metrics compare."""

    loss: Tensor
    outputs: Any = None
    targets: Any = None


class BatchMean:
    """The mean of a function over batches, weighted by their examples: for outputs too large to collect.

    It equals the function of all data only if that is a mean over examples.

    Args:
        function: of the outputs and targets of a batch.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function, self.__name__ = function, getattr(function, "__name__", type(function).__name__)
        self.reset()

    def update(self, outputs: Any, targets: Any) -> None:
        """Add a batch."""
        count = examples_of((targets, outputs))
        self.total += count * float(self.function(outputs, targets))
        self.examples += count

    def compute(self) -> float:
        """The mean so far; nan without examples."""
        return self.total / self.examples if self.examples else float("nan")

    def reset(self) -> None:
        """Start again."""
        self.total, self.examples = 0.0, 0


def named_metrics(metrics: Metrics) -> dict[str, Metric]:
    """Metrics by the names of their columns.

    Args:
        metrics: a mapping, or a list of functions, objects, names of `METRICS` and references such as "mypackage:f1",
            with arguments in brackets if they have some.

    Example:
        >>> list(named_metrics(["mae", "f1(label=1)"]))
        ['mae', 'f1']
    """
    if metrics is None:
        return {}
    if isinstance(metrics, str) or not isinstance(metrics, Mapping | Sequence):
        raise TypeError(f'metrics: give a mapping or a list, such as {{"mae": f}} or ["mae"], got {metrics!r}')
    given = metrics.items() if isinstance(metrics, Mapping) else [("", metric) for metric in metrics]
    found: dict[str, Metric] = {}
    for own, metric in given:
        resolved = find_metric(metric) if isinstance(metric, str) else metric
        plain = resolved.func if isinstance(resolved, partial) else resolved
        name = own or str(getattr(plain, "__name__", type(plain).__name__)).lower()
        if not isinstance(resolved, Updated) and not callable(resolved):
            raise TypeError(f"metrics: {name} must be a function of (outputs, targets) or have update, compute, reset")
        check_metric(name)
        if name in found:
            raise ValueError(f'metrics: {name} is given twice; give a mapping with two names, {{"{name}_2": f}}')
        found[name] = resolved() if isinstance(resolved, type) else resolved
    return found


def find_metric(text: str) -> Metric:
    """The metric of a name or a reference, with its arguments if it has some.

    Args:
        text: "f1", "f1(label=1)", "package.module:name" or "package.module:name(beta=2)"; a class is made with them.
    """
    call = read_metric(text)
    reference = Reference.parse(call.name)
    if reference is not None:
        found: Any = reference.resolve()
    elif (found := METRICS.get(call.name.replace("-", "_"))) is None:
        advice = suggest(text, METRICS)
        raise ValueError(f'metrics: no metric is named {text!r}; {advice}; your own is written "package.module:name"')
    if not call.named:
        metric: Metric = found
        return metric
    try:
        return found(**call.named) if isinstance(found, type) else _bound(found, call.named)
    except TypeError as error:
        raise ValueError(f"metrics: {text}: {error}") from None


def read_metric(text: str) -> Call:
    """The name of a metric and its arguments; raises if one has no name."""
    call = read_call(text, "for example f1(label=1)")
    check_literals(call)
    if call.positional:
        raise ValueError(f"metrics: {text!r}: name its arguments, for example f1(label=1)")
    return call


def _bound(function: Any, named: Mapping[str, Any]) -> Metric:
    """A function with arguments; raises a TypeError if it does not take them."""
    signature(function).bind(None, None, **named)
    return partial(function, **named)


def check_metric(name: str) -> None:
    """Raise if a metric cannot have this name, because a row has another number of that name."""
    if not _NAME.fullmatch(name):
        raise ValueError(f'metrics: a name has letters, digits, _, -, /, at most 64; write {{"name": f}}, got {name!r}')
    if name in _TAKEN or name.startswith(("client_", "personal_")):
        raise ValueError(f"metrics: {name!r} is already a column of the rows; give the metric another name")


def direction_of(column: str) -> Direction:
    """Whether more or less of a metric is better, by its name: less of losses, errors and perplexities.

    Example:
        >>> direction_of("accuracy"), direction_of("f1"), direction_of("val_mae"), direction_of("test_loss")
        ('max', 'max', 'min', 'min')
    """
    words = re.split(r"[^a-z0-9]+", column.lower())
    return "min" if any(word in _LOWER or word.endswith(("loss", "error")) for word in words) else "max"


def read_goal(goal: Goal, metrics: Mapping[str, Any]) -> tuple[str, Direction] | None:
    """The column of a goal and its direction; None without a goal. Raises if no metric has this name.

    Args:
        goal: "mae" or ("mae", "min").
        metrics: the metrics there are; those that give several numbers have columns "name/key".

    Example:
        >>> read_goal("mae", {"mae": abs}), read_goal(("bleu", "max"), {"bleu": abs})
        (('mae', 'min'), ('bleu', 'max'))
    """
    if goal is None:
        return None
    name, direction = (goal, direction_of(goal)) if isinstance(goal, str) else goal
    if direction not in ("max", "min"):
        raise ValueError(f'goal: the direction of {name} must be "max" or "min", got {direction!r}')
    if name != LOSS and name not in metrics and name.partition("/")[0] not in metrics:
        raise ValueError(f"goal: no metric is named {name!r}; {suggest(name, [*metrics, LOSS])}")
    return name, direction


def evaluate(
    model: nn.Module,
    batches: Iterable[Any],
    judge: Callable[[nn.Module, Any], Judged],
    metrics: Mapping[str, Metric] | None = None,
) -> dict[str, float]:
    """The mean loss over batches, weighted by examples, as "test_loss", and every metric; the model's mode is restored.

    Args:
        model: the model; it is evaluated in evaluation mode.
        batches: the data.
        judge: gives loss, outputs and targets of a batch.
        metrics: by name.

    Returns:
        The columns, without any if there are no batches.
    """
    metrics = metrics or {}
    updated = {name: metric for name, metric in metrics.items() if isinstance(metric, Updated)}
    whole = {name: f for name, f in metrics.items() if name not in updated and f is not perplexity}
    outputs, targets = list[Any](), list[Any]()
    losses, counts = list[Tensor](), list[int]()
    for metric in updated.values():
        metric.reset()
    with evaluating(model), torch.inference_mode():
        for batch in placed_with(model).ahead(batches):
            judged = judge(model, batch)
            losses.append(judged.loss.detach().reshape(()))
            counts.append(examples_of(batch))
            for metric in updated.values():
                metric.update(*home((judged.outputs, judged.targets)))
            if whole:
                outputs.append(judged.outputs)
                targets.append(judged.targets)
        if not sum(counts):
            return {}
        joined = home((_join(outputs), _join(targets))) if whole else (None, None)
        row = {LOSS: weighted_sum(losses, counts) / sum(counts)}
        for name, any_metric in metrics.items():
            row.update(_value(name, any_metric, joined, row[LOSS]))
    return row


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients for a while; the modes of all parts come back."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _value(name: str, metric: Metric, joined: tuple[Any, Any], loss: float) -> dict[str, float]:
    """The columns of a metric: one, or one for each number if it gives several."""
    if metric is perplexity:
        return {name: exp(loss) if loss < 700 else inf}
    value = metric.compute() if isinstance(metric, Updated) else metric(*joined)
    if isinstance(value, Mapping):
        return {f"{name}/{key}": float(x) for key, x in value.items()}
    try:
        return {name: float(value)}
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"metrics: {name} must give a number, got {type(value).__name__}") from None


def _join(parts: Sequence[Any]) -> Any:
    """What the batches gave, one after the other."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([x.reshape(1) if x.dim() == 0 else x for x in parts])
    if isinstance(first, Mapping):
        return {key: _join([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(_join(list(column)) for column in zip(*parts, strict=True))
    return [x for part in parts for x in part] if isinstance(first, list) else list(parts)
