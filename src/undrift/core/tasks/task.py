"""What is learned: a model, its loss and the clients' data."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Generator, Tensor, nn

from undrift.core.records.place import Place


class Task(Protocol):
    """A model, its loss and the data of each client; everything an engine needs besides the algorithm.

    What a task can do besides are protocols of their own: `Evaluates`, `EvaluatesClients`,
    `CountsLabels`, `HasProxy`, `Placed`, `ReadsOnce`. Batches may be on the host: a worker moves them to its device.
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
class Evaluates(Protocol):
    """A task with held-out data.

    Its attribute `goal`, if it has one, names the column by which its runs are judged: "mae" or ("mae", "min").
    Without it this is the accuracy if there is one, else the first metric, else the loss.
    """

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """The columns of a round: "test_loss" and metrics, each a number; none if there are no held-out data."""


@runtime_checkable
class EvaluatesClients(Protocol):
    """A task with held-out data of each client."""

    def evaluate_client(self, model: nn.Module, client: int) -> Mapping[str, float]:
        """The same columns as `evaluate`, on one client's own test; none if the client has no test."""


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
class Placed(Protocol):
    """A task that can keep its training data on a worker's device."""

    def placed(self, place: Place) -> Task:
        """The same task with its training data at a place, or itself if they do not fit there: see `Place.fits`."""


@runtime_checkable
class PerExample(Protocol):
    """A task whose clients can be trained together, see `Local.together`: examples by index, and a loss for each."""

    @property
    def one_by_one(self) -> str:
        """Why clients can only be trained one after the other; "" if they can be trained together."""

    def order(self, client: int, generator: Generator) -> Tensor:
        """The indices of a client's examples in the order of one epoch, as `batches` takes them."""

    def gather(self, chosen: Tensor) -> Any:
        """The batch of the examples with these indices."""

    def losses(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of every example of a batch; their mean is `loss`."""


@runtime_checkable
class ReadsOnce(Protocol):
    """A task whose batches were given for one round and can be read only once, as a loader's are."""

    reads_once: bool


def why_not_per_example(task: object, base: type) -> str:
    """Why `PerExample`'s methods do not stand for a derived task's own ones; "" if they do.

    Args:
        task: the task.
        base: the class whose `order`, `gather` and `losses` give what its `batches` and `loss` give.
    """
    own = type(task)
    for name, others in {"batches": ("order", "gather"), "loss": ("losses",)}.items():
        changed = getattr(own, name) is not getattr(base, name)
        if changed and all(getattr(own, other) is getattr(base, other) for other in others):
            return f"{own.__name__} has its own {name}, but not its own {' or '.join(others)}"
    return ""
