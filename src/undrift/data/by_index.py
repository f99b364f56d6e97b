"""Examples by index and a loss for each: how several clients of a data set are trained together."""

from abc import ABC, abstractmethod

import torch
from torch import Generator, Tensor, nn

from undrift.core.task import why_not_per_example
from undrift.data.augment import Augment
from undrift.data.dataset import Dataset
from undrift.data.losses import Criterion, each_loss


class ByIndex(ABC):
    """What `PerExample` needs from a task on a data set."""

    dataset: Dataset
    augment: str

    @property
    @abstractmethod
    def _criterion(self) -> Criterion:
        """The loss."""

    @abstractmethod
    def training(self, client: int) -> Tensor:
        """The indices of a client's training examples."""

    @abstractmethod
    def prepare(self, inputs: Tensor) -> Tensor:
        """Stored inputs as a model takes them."""

    @property
    def one_by_one(self) -> str:
        """Why clients can only be trained one after the other: augmentation, a criterion or batches of one's own."""
        if Augment.parse(self.augment):
            return f"its batches are augmented ({self.augment})"
        if each_loss(self._criterion) is None:
            return "its criterion has no known loss per example"
        return why_not_per_example(self, next(x for x in type(self).__mro__ if ByIndex in x.__bases__))

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
