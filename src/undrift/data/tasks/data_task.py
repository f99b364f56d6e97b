"""The task on a data set: batches for training, the official test set, and each client's own test set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from undrift.core.model.random import derive
from undrift.core.records.place import Place
from undrift.core.tasks.evaluation import Judged, Metric, evaluate, named_metrics
from undrift.core.tasks.model_factory import check_make, initial_model
from undrift.core.tasks.task import why_not_per_example
from undrift.data.arrays.dataset import Dataset, Split
from undrift.data.arrays.preprocess import prepare_images, unscale
from undrift.data.tasks.augment import Augment
from undrift.data.tasks.corruption import CorruptTests
from undrift.data.tasks.evaluate import (
    BATCH,
    Evaluation,
    answers,
    apportion,
    check_indices,
    group_by_label,
    held_count,
    owner_tests,
    shared_test,
    split_own,
)
from undrift.data.tasks.losses import LOSSES, Criterion, default_loss, each_loss

Indices: TypeAlias = Tensor | NDArray[np.int64]

OWN = 100
"""The most examples in a client's own test set if it is drawn from the official test set."""


@dataclass(frozen=True, eq=False)
class DataTask:
    """A model, a data set and which training examples each client has.

    A client's own test set is the first of these that applies: the examples held out; those of `local_tests`; the test
    examples of its owner, if no client has data of two owners and some of the owners have any; official test examples
    drawn with the label shares of its training data. With `corruptions`, official test examples are under one of the
    client's types. Data whose targets are numbers have no test drawn by labels.

    Args:
        dataset: the data.
        clients: the indices of each client's training examples.
        make: builds the model; a module-level function or a `partial` of one, so that it can be sent to workers.
        augment: "none", "flip", "crop" or "flip+crop", for training images; see `Augment` for the arguments.
        holdout: the share of each client's examples held out from training for its own test; 0 holds out none. If
            clients share examples it is the share of all, so that no client trains on another's test.
        seed: fixes the initial weights, the examples held out and the tests drawn.
        local_tests: the indices of each client's own examples in the official test set.
        reserved: the indices of the training examples that are the server's proxy data; no client should have them.
        corruptions: the official test set under corruption, on which models are then tested.
        criterion: loss of (outputs, targets), a mean over the batch; None takes what fits the targets: cross entropy of
            classes, binary cross entropy of several labels, the squared error of numbers.
        metrics: what is measured on the test set besides what fits the targets.
    """

    dataset: Dataset
    clients: Sequence[Indices]
    make: Callable[[], nn.Module]
    augment: str = "none"
    holdout: float = 0.0
    seed: int = 0
    local_tests: Sequence[Indices] | None = None
    reserved: Indices | None = None
    corruptions: CorruptTests | None = None
    criterion: Criterion | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_make("DataTask", self.make)
        if Augment.parse(self.augment) and self.dataset.kind != "image":
            raise ValueError(f'DataTask: augment must be "none" for {self.dataset.kind}, got {self.augment!r}')
        if not 0 <= self.holdout < 1:
            raise ValueError(f"DataTask: holdout must be a fraction in [0, 1), got {self.holdout}")
        if self.corruptions is not None and self.corruptions.clean is not self.dataset.test:
            raise ValueError("DataTask: corruptions must be those of the data's test set: CorruptTests(dataset.test)")
        if self.corruptions is not None and not self.classifies:
            raise ValueError("DataTask: with corruptions only the cross entropy is possible; leave out criterion")
        if self.local_tests is not None and self.holdout:
            raise ValueError(f"DataTask: give holdout or local_tests, not both, got holdout={self.holdout}")
        if self.local_tests is not None and (own := len(self.local_tests)) != (count := len(self.clients)):
            raise ValueError(f"DataTask: local_tests must have one list for each of {count} clients, got {own}")

    def __repr__(self) -> str:
        return f"DataTask({self.dataset.name}, {len(self.dataset.train):,} examples, {self.population} clients)"

    @property
    def population(self) -> int:
        """How many clients there are."""
        return len(self.clients)

    def placed(self, place: Place) -> "DataTask":
        """The same task with the training set at a place, if it fits there."""
        return replace(self, dataset=self.dataset.placed(place))

    def model(self) -> nn.Module:
        """A new model with the initial weights."""
        return initial_model(self.make, self.seed)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The criterion on one batch."""
        inputs, targets = batch
        return self._criterion(model(inputs), targets)

    def examples(self, client: int) -> int:
        """How many training examples a client has, without those held out."""
        count = len(self.clients[client])
        return count - held_count(count, self.holdout) if self._shared is None else len(self.training(client))

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch of a client's data, shuffled and augmented; the last short batch is kept.

        The order depends only on the generator; augmentation does not change it.
        """
        order, augment = self.order(client, generator), Augment.parse(self.augment)
        draws = augment.derive_generator(generator)
        for chosen in torch.split(order, size) if len(order) else ():
            inputs = augment(self.dataset.train.inputs[chosen], draws, self.dataset.mean)
            yield self.prepare(inputs), self.dataset.train.targets[chosen]

    @property
    def one_by_one(self) -> str:
        """Why clients can only be trained one after the other: augmentation, a criterion or batches of a subclass."""
        if Augment.parse(self.augment):
            return f"its batches are augmented ({self.augment})"
        if each_loss(self._criterion) is None:
            return "its criterion has no known loss per example"
        return why_not_per_example(self, DataTask)

    def order(self, client: int, generator: Generator) -> Tensor:
        """The indices of a client's training examples, shuffled."""
        own = self.training(client)
        return own[torch.randperm(len(own), generator=generator)].to(self.dataset.train.targets.device)

    def gather(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The prepared inputs and the targets with these indices."""
        return self.prepare(self.dataset.train.inputs[chosen]), self.dataset.train.targets[chosen]

    def losses(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The criterion on every example."""
        each = each_loss(self._criterion)
        if each is None:
            raise TypeError(f"DataTask: {self.one_by_one}; set together to 1")
        return each(model(batch[0]), batch[1])

    def proxy(self) -> list[tuple[Tensor, Tensor]]:
        """The server's proxy data, in batches."""
        if self.reserved is None or len(self.reserved) == 0:
            raise ValueError("DataTask: no examples are reserved for the server; give reserved=, or set proxy in a run")
        chosen = check_indices(self.reserved, len(self.dataset.train), "reserved")
        return [self.gather(part) for part in torch.split(chosen, BATCH)]

    def prepare(self, inputs: Tensor) -> Tensor:
        """Stored inputs as a model takes them: normalised images in channels-last memory, tokens as int64, or rows.

        Images are resized here, batch by batch, if the data set has `resize`: bilinear with antialiasing, after
        normalisation and augmentation. The result of one image does not depend on the others of its batch.
        """
        if self.dataset.kind != "image":
            return inputs.long() if self.dataset.kind == "text" else inputs
        _, height, width = self.dataset.shape
        return prepare_images(inputs, *self.dataset.scaling(inputs.device), (height, width))

    def training(self, client: int) -> Tensor:
        """The indices of a client's training examples, without those held out."""
        return self._parts(client)[0]

    def label_counts(self, client: int) -> Tensor | None:
        """How many training examples of each class a client has; None if targets are numbers."""
        if self.dataset.classes:
            return torch.bincount(self.dataset.train.targets[self.training(client)], minlength=self.dataset.classes)
        return None

    def own(self, client: int) -> Tensor:
        """The indices of a client's own test examples in `own_split`."""
        if self.holdout:
            return self._parts(client)[1]
        if self.local_tests is not None:
            return check_indices(self.local_tests[client], len(self.dataset.test), f"local_tests of client {client}")
        if self._by_owner is not None:
            return self._by_owner[client]
        return self._draw_test(client)

    @property
    def own_split(self) -> Split:
        """The split with the clients' own test examples: the training set if they were held out, else the test set."""
        return self.dataset.train if self.holdout else self.dataset.test

    def correct(self, module: nn.Module, split: str = "test") -> tuple[Tensor, float]:
        """Whether each example of "train" or of the clean "test" is classified correctly, and the mean loss."""
        if split not in ("train", "test"):
            raise ValueError(f'DataTask.correct: split must be "train" or "test", got {split!r}')
        return answers(module, getattr(self.dataset, split), self.prepare)

    def test(self, module: nn.Module) -> Evaluation:
        """Evaluate a model on the official test set; with `corruptions`, on that of every type, together."""
        if self.corruptions is None:
            return Evaluation.of(*self.correct(module))
        right, losses = self.under_types(module)
        return Evaluation.of(right.flatten(), float(losses.mean()))

    def under_types(self, module: nn.Module) -> tuple[Tensor, Tensor]:
        """Whether each test example (column) is classified correctly under each type (row), and each type's loss."""
        if self.corruptions is None:
            raise ValueError('DataTask: the test set is not corrupted; give corruptions=, or partition = "corrupt"')
        tests = [self.corruptions.under(kind) for kind in self.corruptions.kinds]
        pairs = [answers(module, test, self.prepare) for test in tests]
        losses = torch.tensor([loss for _, loss in pairs], dtype=torch.float64)
        return torch.stack([right for right, _ in pairs]), losses

    def own_score(self, module: nn.Module, client: int) -> Evaluation:
        """Evaluate a client's model on the client's own test set."""
        return Evaluation.of(*self._answers(module, self._own_places(client)))

    def per_client(self, module: nn.Module, right: Tensor | None = None) -> Tensor:
        """The accuracy of one model on every client's own test set; nan if that is empty.

        Each example is evaluated once, even if several clients test on it.

        Args:
            module: the model.
            right: whether it classifies each example of `own_split` correctly, or with `corruptions` each under each
                type, as `under_types` returns it, if that is known already.
        """
        needed, position, counts = self._tests
        right = self._answers(module, needed)[0] if right is None else right.flatten()[needed]
        clients = torch.repeat_interleave(torch.arange(self.population), counts)
        hits = torch.zeros(self.population, dtype=torch.float64).index_add_(0, clients, right[position].double())
        return hits / counts

    @property
    def classifies(self) -> bool:
        """Whether it is trained with the cross entropy of classes, and so judged by accuracy."""
        return self.dataset.classes > 0 and self.criterion is None

    def evaluate(self, module: nn.Module) -> dict[str, float]:
        """Loss and metrics of a model on the clean official test set."""
        return self._evaluate_on(module, self.dataset.test, torch.arange(len(self.dataset.test)))

    def evaluate_client(self, module: nn.Module, client: int) -> dict[str, float]:
        """Loss and metrics of a model on a client's own test set; empty if that is."""
        return self._evaluate_on(module, self.own_split, self.own(client))

    def _evaluate_on(self, module: nn.Module, split: Split, chosen: Tensor) -> dict[str, float]:
        parts = torch.split(chosen, BATCH) if len(chosen) else ()
        batches = ((self.prepare(split.inputs[part]), split.targets[part]) for part in parts)
        return evaluate(module, batches, self._judge, self.all_metrics)

    def _judge(self, module: nn.Module, batch: tuple[Tensor, Tensor]) -> Judged:
        """The loss, and outputs and targets in their own units: errors are those of the numbers in the file."""
        outputs, (mean, std) = module(batch[0]), (self.dataset.target_mean, self.dataset.target_std)
        own = (unscale(x, mean, std) if mean and isinstance(x, Tensor) else x for x in (outputs, batch[1]))
        return Judged(self._criterion(outputs, batch[1]), *own)

    @cached_property
    def _criterion(self) -> Criterion:
        """The loss, or that which fits the targets."""
        return self.criterion or LOSSES[default_loss(self.dataset)[0]]

    @cached_property
    def all_metrics(self) -> dict[str, Metric]:
        """The metrics that fit the targets, and those given."""
        return {**named_metrics(default_loss(self.dataset)[1]), **self.metrics}

    @cached_property
    def _tests(self) -> tuple[Tensor, Tensor, Tensor]:
        """The examples that any client tests on, the positions of each client's among them, and how many it has."""
        own = [self._own_places(client) for client in range(self.population)]
        needed, position = torch.unique(torch.cat(own), return_inverse=True)
        return needed, position, torch.tensor([len(chosen) for chosen in own])

    @cached_property
    def _by_owner(self) -> list[Tensor] | None:
        """Each client's test examples by its owner, see `owner_tests`."""
        return owner_tests(self.dataset, [self.training(client) for client in range(self.population)])

    @cached_property
    def _by_class(self) -> list[Tensor]:
        """The indices of the official test examples of each class."""
        return group_by_label(self.dataset.test.targets, self.dataset.classes)

    def _draw_test(self, client: int) -> Tensor:
        """Test examples with the label shares of a client's training data, each at most once."""
        counts = self.label_counts(client)
        if counts is None:
            return torch.empty(0, dtype=torch.int64)
        draw = Generator().manual_seed(derive(self.seed, client, "own test"))
        quotas = apportion(counts, min(self.examples(client), OWN)).tolist()
        pairs = [(group, quota) for group, quota in zip(self._by_class, quotas, strict=True) if quota]
        chosen = [group[torch.randperm(len(group), generator=draw)[:quota]] for group, quota in pairs]
        return torch.cat(chosen).sort().values if chosen else torch.empty(0, dtype=torch.int64)

    def _own_places(self, client: int) -> Tensor:
        """A client's own test examples in `own_split` or, if that is corrupted, their places in `corruptions`."""
        own = self.own(client)
        return own if self.holdout or self.corruptions is None else self.corruptions.places(client, own)

    def _answers(self, module: nn.Module, places: Tensor) -> tuple[Tensor, float]:
        """Whether the test examples at these places are classified correctly, and the mean loss."""
        if self.holdout or self.corruptions is None:
            return answers(module, self.own_split, self.prepare, places)
        return answers(module, self.corruptions.take(places), self.prepare)

    @cached_property
    def _shared(self) -> Tensor | None:
        """Which examples are held out if clients share some; None if they share none, or nothing is held out."""
        size = len(self.dataset.train)
        lists = [check_indices(own, size, f"client {i}") for i, own in enumerate(self.clients)] if self.holdout else []
        return shared_test(lists, self.holdout, size, self.seed)

    def _parts(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's examples for training and those held out, each in the given order."""
        own = check_indices(self.clients[client], len(self.dataset.train), f"client {client}")
        if self._shared is not None:
            return own[~self._shared[own]], own[self._shared[own]]
        return split_own(own, self.holdout, derive(self.seed, client, "holdout"))
