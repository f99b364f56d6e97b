"""Tasks on a `Dataset` or `DataLoader` per client: whatever a plain PyTorch loop trains on.

A `DataLoader` is read for its data set, `collate_fn`, batch size and whether it shuffles. Its own sampler and worker
processes are not used: the order depends on the run's seed, round and client only, so that every engine and a resumed
run see the same batches. Random transforms draw from streams of their own (`Streams`), which depend on the same.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from undrift.core.tasks.as_tensors import one_each
from undrift.core.tasks.compact import compact
from undrift.core.tasks.evaluation import Goal, Judged, Metrics, evaluate, named_metrics, read_goal
from undrift.core.tasks.example_losses import criterion_loss
from undrift.core.tasks.model_factory import check_make, initial_model
from undrift.core.tasks.tensor_task import BATCH, call_model, logits
from undrift.data.tasks.batching import Collate, Source, as_source, check_one_each, common_size, read_batches


class LoaderTask:
    """A task with a torch `Dataset`, a Hugging Face data set or a `DataLoader` for each client.

    Args:
        make: builds the model; it is called under a fixed seed, so that every node starts alike.
        clients: each client's data. A loader keeps its order if it does not shuffle, and its batch size is the run's.
        loss: the mean loss of (model, batch). None takes the criterion of a pair (inputs, targets), and for a batch
            with names `model(**batch).loss`, as models of transformers have it.
        criterion: loss of (outputs, targets) for pairs; None is the cross entropy.
        seed: seed of the initial weights.
        collate_fn: makes a batch of a list of examples, where a loader has none of its own.
        test: held-out data.
        client_tests: each client's own held-out data; None where a client has none.
        metrics: what is measured on held-out data besides the loss: see `named_metrics`.
        predict: (outputs, targets) of (model, batch) for the metrics. None takes those of a pair, and for a batch with
            names the model's logits and `batch["labels"]`.
        goal: the metric by which runs are judged, "f1" or ("f1", "max"); None takes accuracy or the first metric.
        name: what runs call it; empty takes the name of the class.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> data = [TensorDataset(torch.randn(n, 3), torch.randn(n, 1)) for n in (4, 6)]
        >>> task = LoaderTask(lambda: nn.Linear(3, 1), data, criterion=nn.MSELoss())
        >>> task.population, task.examples(1)
        (2, 6)
    """

    def __init__(
        self,
        make: Callable[[], nn.Module],
        clients: Sequence[Any],
        loss: Callable[[nn.Module, Any], Tensor] | None = None,
        *,
        criterion: Callable[[Any, Any], Tensor] | None = None,
        seed: int = 0,
        collate_fn: Collate | None = None,
        test: Any = None,
        client_tests: Sequence[Any] | None = None,
        metrics: Metrics = None,
        predict: Callable[[nn.Module, Any], tuple[Any, Any]] | None = None,
        goal: Goal = None,
        name: str = "",
    ) -> None:
        check_make("LoaderTask", make)
        check_one_each(clients)
        if loss is not None and criterion is not None:
            raise ValueError("LoaderTask: give loss, of (model, batch), or criterion, of (outputs, targets), not both")
        self.make, self.seed, self.goal, self.name = make, seed, goal, name
        self._loss, self._criterion, self._predict = loss, criterion or cross_entropy, predict
        self.metrics = named_metrics(metrics)
        read_goal(goal, self.metrics)
        given = one_each(clients, "clients")
        self.sources = tuple(as_source(data, collate_fn, f"clients[{i}]", True) for i, data in enumerate(given))
        self.batch_size = common_size(self.sources)
        self.test = None if test is None else as_source(test, collate_fn, "test", False)
        self.tests: tuple[Source | None, ...] = (None,) * len(self.sources)
        if client_tests is not None:
            own = enumerate(one_each(client_tests, "client_tests", len(self.sources)))
            self.tests = tuple(
                None if data is None else as_source(data, collate_fn, f"client_tests[{i}]", False) for i, data in own
            )

    def __repr__(self) -> str:
        examples = sum(len(own.dataset) for own in self.sources)
        return f"LoaderTask({self.population} clients, {examples} examples)"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: of a tensor that is a part of a larger one only the part is sent to workers."""
        seen = dict[int, Any]()

        def sent(own: Source | None) -> Source | None:
            return None if own is None else own._replace(dataset=compact(own.dataset, seen))

        held = {
            "sources": tuple(map(sent, self.sources)),
            "test": sent(self.test),
            "tests": tuple(map(sent, self.tests)),
        }
        return vars(self) | held

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.sources)

    def model(self) -> nn.Module:
        """A new model with the initial weights."""
        return initial_model(self.make, self.seed)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean loss on a batch."""
        return self._loss(model, batch) if self._loss is not None else self._default(model, batch).loss

    def examples(self, client: int) -> int:
        """How many training examples a client has."""
        return len(self.sources[client].dataset)

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        """One epoch of a client's data, in an order of the generator's; the last short batch is kept."""
        own = self.sources[client]
        if own.size not in (None, size):
            raise ValueError(
                f"clients[{client}]: its DataLoader has batch_size {own.size}, but the run {size}; set the run's, "
                f"Local(batch_size={own.size}), or give the loader's dataset"
            )
        count = len(own.dataset)
        order = torch.randperm(count, generator=generator) if own.shuffle else torch.arange(count)
        seed = int(torch.randint(2**62, (), generator=generator))
        return read_batches(own, order, size, seed)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Loss and metrics on the held-out data; empty without any."""
        return self._evaluate_on(model, self.test)

    def evaluate_client(self, model: nn.Module, client: int) -> dict[str, float]:
        """Loss and metrics on a client's own test; empty without one."""
        return self._evaluate_on(model, self.tests[client])

    def _evaluate_on(self, model: nn.Module, data: Source | None) -> dict[str, float]:
        if data is None or len(data.dataset) == 0:
            return {}
        batches = read_batches(data, torch.arange(len(data.dataset)), data.size or BATCH, 0)
        return evaluate(model, batches, self._judge, self.metrics)

    def _judge(self, model: nn.Module, batch: Any) -> Judged:
        """Loss and, if there are metrics, what they compare, in one pass over the batch where that is possible."""
        if self._loss is None and (self._predict is None or not self.metrics):
            return self._default(model, batch)
        loss = self.loss(model, batch)
        if not self.metrics:
            return Judged(loss)
        if self._predict is not None:
            return Judged(loss, *self._predict(model, batch))
        if isinstance(batch, Mapping):
            return Judged(loss, _outputs(model, batch, "predict"), batch.get("labels"))
        inputs, targets = _pair(batch, "predict")
        return Judged(loss, _outputs(model, inputs, "predict"), targets)

    def _default(self, model: nn.Module, batch: Any) -> Judged:
        """Loss, outputs and targets if no `loss` was given."""
        if isinstance(batch, Mapping):
            outputs = model(**batch)
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
            if not isinstance(loss, Tensor):
                raise ValueError(
                    f"LoaderTask: called with {', '.join(map(str, batch))}, {type(model).__name__} returned no loss; "
                    "give labels in the batch, or loss= a function of (model, batch)"
                )
            return Judged(loss, logits(outputs), batch.get("labels"))
        inputs, targets = _pair(batch, "loss")
        outputs = _outputs(model, inputs, "loss")
        return Judged(criterion_loss(self._criterion, outputs, targets), outputs, targets)


def lightning_loss(model: Any, batch: Any) -> Tensor:
    """The loss of a Lightning module, from its `training_step`: pass it as `LoaderTask(..., loss=lightning_loss)`.

    Args:
        model: a module with `training_step(batch, batch_idx)`, which returns the loss or a mapping with "loss".
        batch: of the data.
    """
    step = getattr(model, "training_step", None)
    if step is None:
        raise TypeError(f"lightning_loss: {type(model).__name__} has no training_step; give a loss of (model, batch)")
    result = step(batch, 0) if len(inspect.signature(step).parameters) > 1 else step(batch)
    loss = result["loss"] if isinstance(result, Mapping) else result
    if not isinstance(loss, Tensor):
        raise TypeError(f"lightning_loss: training_step must return the loss as a tensor, got {type(loss).__name__}")
    return loss


def _outputs(model: nn.Module, inputs: Any, argument: str) -> Any:
    """The model's outputs; several inputs that it does not take so are answered with what does work."""
    try:
        return call_model(model, inputs)
    except TypeError as error:
        if not isinstance(inputs, Mapping | tuple | list):
            raise
        given = f"the names {', '.join(map(str, inputs))}" if isinstance(inputs, Mapping) else "one list of inputs"
        raise TypeError(
            f"LoaderTask: {type(model).__name__} was called with {given}: {error}; give {argument}= a function of "
            f"(model, batch){' that returns outputs and targets' if argument == 'predict' else ''}"
        ) from error


def _pair(batch: Any, argument: str) -> tuple[Any, Any]:
    """Inputs and targets of a batch."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        count = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
        raise ValueError(
            f"LoaderTask: a batch is a {type(batch).__name__}{count}, neither a pair (inputs, targets) nor a mapping; "
            f"give {argument}= a function of (model, batch)"
        )
    return batch[0], batch[1]
