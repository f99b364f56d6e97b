"""Tasks on tensors: inputs and targets in memory, and one list of indices per client."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.core.records.place import Place
from undrift.core.tasks.as_tensors import as_indices, as_pair, one_each
from undrift.core.tasks.compact import compact
from undrift.core.tasks.evaluation import Goal, Judged, Metrics, evaluate, named_metrics, read_goal
from undrift.core.tasks.example_losses import check_shapes, criterion_loss, example_losses, why_not_single
from undrift.core.tasks.metrics import accuracy
from undrift.core.tasks.model_factory import check_make, initial_model
from undrift.core.tasks.task import why_not_per_example

BATCH = 200
"""Examples in a batch of an evaluation."""


@dataclass(frozen=True)
class TensorTask:
    """A task whose data lie in tensors, with one list of indices per client; checked when it is made.

    Arrays and lists are taken for tensors, and their float64 becomes torch's default dtype.

    Args:
        make: builds the model; it is called under a fixed seed, so that every node starts alike.
        inputs: all inputs, first axis the example; or a dict of such tensors, which the model takes by name.
        targets: all targets.
        clients: for each client the indices of its examples.
        criterion: loss of (outputs, targets), a mean over the batch.
        seed: seed of the initial weights.
        test: held-out inputs and targets: a pair, or an object that has them as `inputs` and `targets`.
        client_tests: each client's own test: such a pair, or indices of examples of `test`.
        metrics: what is measured on held-out data besides the loss: see `named_metrics`; None measures the accuracy if
            targets are classes.
        goal: the metric by which runs are judged, "mae" or ("mae", "min"); None takes accuracy or the first metric.
        name: what runs call it; empty takes the name of the class.

    Example:
        >>> task = TensorTask(lambda: nn.Linear(2, 2), [[0.0, 1.0], [1.0, 0.0]], [0, 1], [[0], [1]])
        >>> task.population, task.examples(1), task.inputs.shape
        (2, 1, torch.Size([2, 2]))
    """

    make: Callable[[], nn.Module]
    inputs: Any
    targets: Any
    clients: Sequence[Any]
    criterion: Callable[[Any, Any], Tensor] = cross_entropy
    seed: int = 0
    test: Any = None
    client_tests: Sequence[Any] | None = None
    metrics: Metrics = None
    goal: Goal = None
    name: str = ""

    def __post_init__(self) -> None:
        check_make("TensorTask", self.make)
        inputs, targets = as_pair((self.inputs, self.targets), "")
        test = None if self.test is None else as_pair(self.test, "test ")
        count, tests = len(targets), None
        clients = tuple(
            as_indices(own, count, f"clients[{i}]") for i, own in enumerate(one_each(self.clients, "clients"))
        )
        if self.client_tests is not None:
            given = one_each(self.client_tests, "client_tests", len(clients))
            tests = tuple(_client_test(own, test, f"client_tests[{i}]") for i, own in enumerate(given))
        metrics = named_metrics(self.metrics)
        if self.metrics is None and _classes(targets):
            metrics = {"accuracy": accuracy}
        read_goal(self.goal, metrics)
        for field, value in zip(
            ("inputs", "targets", "clients", "test", "client_tests", "metrics"),
            (inputs, targets, clients, test, tests, metrics),
            strict=True,
        ):
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        make = getattr(self.make, "__name__", type(self.make).__name__)
        named = self.inputs if isinstance(self.inputs, dict) else {"": self.inputs}
        shape = ", ".join(f"{name} {tuple(x.shape[1:])}".strip() for name, x in named.items())
        return f"TensorTask({make}, {len(self.targets):,} examples of shape {shape}, {self.population} clients)"

    def __getstate__(self) -> dict[str, Any]:
        """Sent to workers without memory that is not the task's."""
        state: dict[str, Any] = compact(vars(self))
        return state

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.clients)

    def placed(self, place: Place) -> "TensorTask":
        """The task with inputs and targets at a place, or itself if they do not fit there."""
        data = {"inputs": self.inputs, "targets": self.targets}
        if not place.fits(data):
            return self
        moved = copy(self)
        for name, value in data.items():
            object.__setattr__(moved, name, place.to(value))
        return moved

    def model(self) -> nn.Module:
        """A new model with the initial weights."""
        return initial_model(self.make, self.seed)

    def loss(self, model: nn.Module, batch: tuple[Any, Any]) -> Tensor:
        """The criterion on one batch."""
        inputs, targets = batch
        return criterion_loss(self.criterion, call_model(model, inputs), targets)

    def examples(self, client: int) -> int:
        """How many training examples a client has."""
        return len(self.clients[client])

    def label_counts(self, client: int) -> Tensor | None:
        """How many training examples of each class a client has; None if the targets are not classes.

        Negative targets, as those that cross entropy ignores, have no class.
        """
        if not _classes(self.targets):
            return None
        own = self.targets[self.clients[client]]
        largest = int(self.targets.max()) if len(self.targets) else -1
        return torch.bincount(own[own >= 0], minlength=largest + 1)

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[tuple[Any, Any]]:
        """One epoch of a client's data, shuffled; the last short batch is kept."""
        for chosen in torch.split(self.order(client, generator), size):
            yield self.gather(chosen)

    @property
    def one_by_one(self) -> str:
        """Why clients can only be trained one after the other: the criterion is no mean of losses per example."""
        return why_not_single(self.criterion, self.targets) or why_not_per_example(self, TensorTask)

    def order(self, client: int, generator: Generator) -> Tensor:
        """The indices of a client's examples, shuffled."""
        own = self.clients[client]
        shuffled: Tensor = own[torch.randperm(len(own), generator=generator)].to(self.targets.device)
        return shuffled

    def gather(self, chosen: Tensor) -> tuple[Any, Any]:
        """The inputs and targets with these indices."""
        return rows(self.inputs, chosen), self.targets[chosen]

    def losses(self, model: nn.Module, batch: tuple[Any, Any]) -> Tensor:
        """The criterion on every example."""
        each = example_losses(self.criterion)
        if each is None:
            raise TypeError(f"TensorTask: {self.one_by_one}; set together to 1")
        outputs = call_model(model, batch[0])
        if self.criterion is not cross_entropy:
            check_shapes(outputs, batch[1])
        return each(outputs, batch[1])

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss and metrics on the held-out data; empty without any."""
        return self._evaluated(model, self.test)

    def evaluate_client(self, model: nn.Module, client: int) -> dict[str, float]:
        """Loss and metrics on a client's own test; empty without one."""
        return self._evaluated(model, None if self.client_tests is None else self.client_tests[client])

    def _evaluated(self, model: nn.Module, test: tuple[Any, Tensor] | None) -> dict[str, float]:
        if test is None or len(test[1]) == 0:
            return {}
        chosen = torch.split(torch.arange(len(test[1])), BATCH)
        batches = ((rows(test[0], part), test[1][part]) for part in chosen)
        return evaluate(model, batches, self._judge, named_metrics(self.metrics))

    def _judge(self, model: nn.Module, batch: tuple[Any, Any]) -> Judged:
        outputs = call_model(model, batch[0])
        return Judged(criterion_loss(self.criterion, outputs, batch[1]), outputs, batch[1])


def call_model(model: nn.Module, inputs: Any) -> Any:
    """The model's outputs: of a dict by name; of an object or a dict with `logits`, as transformers return, these."""
    outputs = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    found = logits(outputs)
    return outputs if found is None else found


def logits(outputs: Any) -> Any:
    """The logits among a model's outputs: an attribute, or the value of that name; None if there are none.

    Args:
        outputs: what the model returned.

    Example:
        >>> logits({"loss": 0.5, "logits": [1.0]}), logits([1.0])
        ([1.0], None)
    """
    found = outputs.get("logits") if isinstance(outputs, Mapping) else None
    return getattr(outputs, "logits", None) if found is None else found


def rows(inputs: Any, chosen: Tensor) -> Any:
    """Some examples of a tensor, or of every tensor of a dict."""
    return {key: x[chosen] for key, x in inputs.items()} if isinstance(inputs, Mapping) else inputs[chosen]


def _client_test(own: Any, test: tuple[Any, Tensor] | None, what: str) -> tuple[Any, Tensor] | None:
    """A client's own test, given as a pair or as indices of examples of the common test."""
    if own is None:
        return None
    indices = isinstance(own, tuple | list) and any(isinstance(x, Integral) or not getattr(x, "ndim", 1) for x in own)
    if (isinstance(own, tuple | list) and len(own) == 2 and not indices) or hasattr(own, "targets"):
        return as_pair(own, f"{what} ")
    if test is None:
        raise ValueError(f"{what}: indices are of examples of test, which is not given; give test=, or a pair")
    chosen = as_indices(own, len(test[1]), what)
    return rows(test[0], chosen), test[1][chosen]


def _classes(targets: Tensor) -> bool:
    """Whether targets are classes: one int64 for each example."""
    return targets.dtype == torch.int64 and targets.dim() == 1
