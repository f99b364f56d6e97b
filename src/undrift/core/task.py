"""What is learned: a model, its loss and the clients' data."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy


class Task(Protocol):
    """A model, its loss and the data of each client; everything an engine needs besides the algorithm.

    What a task can do besides are protocols of their own: `CountsLabels`, `HasProxy`, `ReadsOnce`.
    """

    @property
    def population(self) -> int:
        """How many clients there are; they are numbered from 0."""

    def model(self) -> nn.Module:
        """A new model with the initial weights, the same at every call and on every node."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The mean loss over a batch."""

    def examples(self, client: int) -> int:
        """How many training examples a client has."""

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Any]:
        """One epoch of a client's data: ceil(examples / size) batches, shuffled by the generator."""


@runtime_checkable
class CountsLabels(Protocol):
    """A task that knows its clients' class labels; without it labels are counted from the batches."""

    def label_counts(self, client: int) -> Tensor | None:
        """How many training examples of each class a client has; None if they have no class."""


@runtime_checkable
class HasProxy(Protocol):
    """A task with data on the server, for rules that judge models there."""

    def proxy(self) -> Iterator[Any]:
        """The batches on which the server judges models, the same at every call: never a client's data."""


@runtime_checkable
class ReadsOnce(Protocol):
    """A task whose batches were given for one round and can be read only once, as a loader's are."""

    reads_once: bool


@dataclass(frozen=True)
class TensorTask:
    """A task whose data lie in two tensors, with one index list per client.

    Args:
        make: builds the model; it is called under a fixed seed, so that every node starts alike.
        inputs: all inputs, first axis the example.
        targets: all targets.
        clients: for each client the indices of its examples.
        criterion: loss of (outputs, targets), a mean over the batch.
        seed: seed of the initial weights.
    """

    make: Callable[[], nn.Module]
    inputs: Tensor
    targets: Tensor
    clients: Sequence[Tensor]
    criterion: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    seed: int = 0

    def __repr__(self) -> str:
        make = getattr(self.make, "__name__", type(self.make).__name__)
        shape = tuple(self.inputs.shape[1:])
        return f"TensorTask({make}, {len(self.inputs):,} examples of shape {shape}, {self.population} clients)"

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.clients)

    def model(self) -> nn.Module:
        """A new model with the initial weights."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            return self.make()

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The criterion on one batch."""
        inputs, targets = batch
        return self.criterion(model(inputs), targets)

    def examples(self, client: int) -> int:
        """How many training examples a client has."""
        return len(self.clients[client])

    def label_counts(self, client: int) -> Tensor | None:
        """How many training examples of each class a client has; None if the targets are not whole numbers."""
        if self.targets.dtype != torch.int64 or self.targets.dim() != 1:
            return None
        return torch.bincount(self.targets[self.clients[client]], minlength=int(self.targets.max()) + 1)

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of a client's data, shuffled; the last short batch is kept."""
        own = self.clients[client]
        order = own[torch.randperm(len(own), generator=generator)]
        for chosen in torch.split(order, size):
            yield self.inputs[chosen], self.targets[chosen]
