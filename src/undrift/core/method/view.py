"""What a block may touch: frozen views of a client's visit and of a round on the server.

The loop owns what changes. A block gets values and a view for the phase it is in: `Start` in `begin`, `Step` in the
hooks of a step, `End` in `release` and `finish`, `ServerView` on the server. Tensors of a view are read-only; clone
what you keep.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from itertools import islice
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from undrift.core.model.flat_model import Layout, Vector, pieces
from undrift.core.model.random import SERVER, generator
from undrift.core.model.samples import Samples
from undrift.core.records.report import Reported
from undrift.core.records.types import Local, ServerT, Tree, slope

T = TypeVar("T")


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Samples):
    """One client's visit in a round: what all phases share.

    Args:
        w0: the model the client started from.
        layout: the names and shapes of its tensors.
        round: the round.
        lr: the learning rate of this round; in a step, of this step.
        steps: how many local steps there are.
        examples: how many examples the client has.
        local: the settings all clients share.
        attributes: what is public of the client, such as its "rank": see `Local.attributes`.
    """

    w0: Vector
    layout: Layout
    round: int
    lr: float
    steps: int
    examples: int
    local: Local
    _states: Mapping[str, object]
    _label_counts: Callable[[], Tensor | None] | None = None
    _reported: dict[str, float | Tensor] | None = None
    attributes: Mapping[str, float] = field(default_factory=dict)

    def report(self, name: str, value: float | Tensor) -> None:
        """Record a scalar of the visit; it changes nothing.

        Args:
            name: one that the block declares in `reports`.
            value: a number or a tensor of one element.
        """
        if self._reported is not None:
            self._reported[name] = value

    @property
    def epoch_steps(self) -> int:
        """How many steps one pass over the client's data takes; a visit may be shorter."""
        return self.local.epoch_steps(self.examples)

    @property
    def batch_sizes(self) -> list[int]:
        """The number of examples in the batch of every step of the visit."""
        return self.local.batch_sizes(self.examples, self.steps)

    def peer(self, slot: str, kind: type[T]) -> T | None:
        """What the block of another slot holds, if it is of this kind and has begun; declare it in `needs.reads`."""
        state = self._states.get(slot)
        return state if isinstance(state, kind) else None

    def data(self, purpose: str) -> Iterator[Any]:
        """One more epoch of the client's batches, without a short last one if `Local.drop_last` leaves it out.

        Args:
            purpose: each has an order of its own, the same at every call; "batches" gives training's first epoch again.
        """
        batches = super().data(purpose)
        return islice(batches, self.epoch_steps) if self.local.drop_last else batches

    @property
    def knows_classes(self) -> bool:
        """Whether the task itself counts labels, and so knows how many classes there are."""
        return self._label_counts is not None

    @property
    def seen(self) -> Mapping[str, Any]:
        """What the layers named by `Start.tap` gave in the last forward pass, of training or beside it."""
        return self._oracle.seen

    def label_counts(self) -> Tensor | None:
        """How many examples of each class the client has; declare it in `needs.labels`.

        It is the task's own count, or that of the batches' second elements, which ends at the largest label present.
        Negative labels, as those that cross entropy ignores, do not count. None if there are no labels, whole numbers
        of one axis.
        """
        if self._label_counts is not None:
            return self._label_counts()
        pairs = [batch if isinstance(batch, tuple | list) else () for batch in super().data("labels")]
        second = [pair[1] if len(pair) > 1 else None for pair in pairs]
        labels = [x for x in second if isinstance(x, Tensor) and x.dim() == 1 and x.dtype == torch.int64]
        if not labels or len(labels) < len(second):
            return None
        found = torch.cat(labels).cpu()
        return torch.bincount(found[found >= 0])


@dataclass(frozen=True, eq=False, kw_only=True)
class Start(View):
    """Before the first step."""

    _entry: list[Vector] = field(default_factory=list)

    def begin_at(self, point: Vector) -> None:
        """Take the first step at a point other than `w0`, from which the displacement is measured all the same."""
        self._entry[:] = [point]

    @property
    def module(self) -> nn.Module:
        """The model, to inspect its layers."""
        return self._oracle.model.module

    def tap(self, layer: str, *, inputs: bool = False) -> str:
        """Note in `seen`, until the visit ends, what a layer puts out (or takes in) in every forward pass.

        The result is the name by which `seen` has it: the layer's, or with `inputs` the layer's and ":inputs".

        Args:
            layer: its name; "" is the whole model.
            inputs: note its first input instead of its output.
        """
        return self._oracle.tap(layer, inputs=inputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(View):
    """One local step.

    Args:
        w: the local model as it is before this step.
        tuning: whether the client tunes its model before it is evaluated; otherwise it trains.
    """

    w: Vector
    tuning: bool = False

    def report(self, name: str, value: float | Tensor) -> None:
        """Refused: a block reports once per visit."""
        raise RuntimeError(f"{name!r} is reported in a step: report it once per visit, in begin or finish")

    @property
    def step(self) -> int:
        """The number of this step, from 0."""
        return self._oracle.step

    @property
    def batch(self) -> Any:
        """The batch of this step."""
        return self._oracle.batch

    def gradient(self, offset: Vector | None = None) -> Vector:
        """The gradient of this batch's data loss and penalty at `w + offset`.

        The result is the caller's to change until the next call overwrites it: clone what you keep.
        """
        return self._oracle.gradient(offset)

    def pull(self, grad: Vector, strength: float) -> Vector:
        """`grad + strength (w - w0)`, in place: the pull of a proximal term towards the start."""
        for piece, here, start in pieces(grad, self.w, self.w0):
            piece.add_(here - start, alpha=strength)
        return grad


@dataclass(frozen=True, eq=False, kw_only=True)
class End(View):
    """After the last step.

    Args:
        w: the trained model.
        delta: the displacement that will be uploaded.
    """

    w: Vector
    delta: Vector
    _share: Callable[[Vector], Vector] | None = None

    def share(self, v: Vector) -> Vector:
        """What is shared of a vector: zero where the model is private."""
        return v if self._share is None else self._share(v)

    @property
    def losses(self) -> list[Tensor]:
        """The data losses of the steps, each at the first point its step evaluated."""
        return self._oracle.losses

    def slope(self) -> Vector:
        """The mean direction that the shared part descended in this visit: see `types.slope`."""
        paced = self.delta / (self.local.factors(self.steps) * self.lr)
        even = self.local.step_schedule is None
        tail = self.lr * paced if even else self.delta * self.local.share(self.steps)
        return slope(paced, self.delta, self.share(self.w0), tail, self.local.weight_decay)


class Sums(Flag):
    """Sums over the clients of a round that a block may declare in `uses`, besides the weighted mean."""

    NONE = 0
    DISPLACEMENTS = auto()
    SLOPES = auto()


@dataclass(frozen=True)
class Setting:
    """What all rounds of a run have in common, for the server's hooks.

    Args:
        population: how many clients there are in all.
        local: the settings all clients share.
        layout: the names and shapes of the model's tensors.
        seed: fixes everything random.
        expected: how many clients a round has on average; 0 if that is not known.
    """

    population: int
    local: Local
    layout: Layout
    seed: int = 0
    expected: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerView(Generic[ServerT]):
    """A round on the server: what `send`, `shift`, `release_sum`, `mean`, `gather` and `receive` get.

    A sum that does not exist yet, or that the block does not declare, raises an error.

    Args:
        params: the model before the round.
        w0: the model that was broadcast; another one only where a server optimizer shifts it.
        setting: what all rounds have in common: population, local settings, layout and seed.
        round: the round.
        cohort: how many uploads were accepted, in private runs how many are expected; 0 before the round.
        state: what the block keeps on the server.
        lag: the mean over uploads of the difference between the model that each started from and `w0`; None if all
            started from `w0`, as in synchronous rounds.
        age: how many steps the server has made since the client of the oldest upload began; 0 in synchronous rounds.
    """

    params: Vector
    w0: Vector
    setting: Setting
    round: int
    cohort: int
    state: ServerT
    lag: Vector | None = None
    age: int = 0
    _sums: Mapping[str, Any] = field(default_factory=dict)
    _reported: Reported = field(default_factory=dict)
    _proxy: Samples | None = None
    _sent: Sequence[tuple[Tree, int]] = ()

    @property
    def layout(self) -> Layout:
        """The names and shapes of the model's tensors."""
        return self.setting.layout

    @property
    def population(self) -> int:
        """How many clients there are in all."""
        return self.setting.population

    def random(self, purpose: str) -> Generator:
        """A generator of this round on the server; each purpose has one of its own."""
        return generator(self.setting.seed, self.round, SERVER, purpose)

    def mean_sent(self, name: str) -> Vector | None:
        """The mean over uploads of a vector that was sent for this block; None if all started from the current model.

        Args:
            name: of the field.
        """
        if self.lag is None:
            return None
        vectors = torch.stack([count * getattr(tree, name) for tree, count in self._sent])
        return vectors.sum(dim=0) / sum(count for _, count in self._sent)

    @property
    def weight(self) -> float:
        """The sum of the weights of the aggregation; it may be zero."""
        return float(self._sum("weight", "uploads were added up"))

    @property
    def weighted(self) -> Tensor:
        """The sum of the displacements by these weights, in double precision, which `mean` may overwrite."""
        return self._tensor("weighted", "a rule derived from Summing is closed")

    @property
    def weighted_mean(self) -> Vector:
        """The sum of the displacements by these weights over the sum of the weights; zero if every weight is zero.

        It has the model's precision and is made a piece at a time: no vector of doubles, twice the model, is there.
        """
        found = self._sum("weighted", "a rule derived from Summing is closed")
        if isinstance(found, Tensor):
            return found.div(self.weight or 1.0).to(self.params.dtype)
        mean: Vector = found.value(self.params.dtype, self.weight or 1.0)
        return mean

    def weighted_by(self, name: str) -> Tensor:
        """The sum of displacements by the weights of a name in the rule's `extra`, in double precision."""
        return self._tensor(f"extra.{name}", f"a rule declares extra = ({name!r},)")

    def scalar(self, name: str) -> float:
        """The sum of the numbers that the rule's `weigh` gave under a name."""
        return float(self._sum(f"weights.{name}", f"a rule declares {name!r} in extra or scalars"))

    @property
    def mean(self) -> Vector:
        """The mean displacement of the round by the rule, before blocks change it."""
        return self._tensor("mean", "the rule has given it")

    @property
    def displacements(self) -> Vector:
        """The unweighted sum of the displacements; declare `uses = Sums.DISPLACEMENTS`."""
        return self._tensor("displacements", "uses = Sums.DISPLACEMENTS is declared")

    @property
    def slopes(self) -> Vector:
        """The unweighted sum of the clients' slopes, see `slope`; declare `uses = Sums.SLOPES`."""
        return self._tensor("slopes", "uses = Sums.SLOPES is declared")

    @property
    def proxy(self) -> Samples:
        """Losses and gradients on the server's proxy data, for a rule that declares them."""
        if self._proxy is None:
            raise RuntimeError("this rule needs proxy data and declares none: set needs = Needs(proxy=True)")
        return self._proxy

    def report(self, name: str, values: float | Sequence[float]) -> None:
        """Record a scalar of the round, or one for each upload or layer, of which mean and spread are recorded.

        Args:
            name: one that the block declares in `reports`.
            values: what to record; it changes nothing. An empty list records nothing.
        """
        self._reported[name] = values

    def _sum(self, name: str, when: str) -> Any:
        if name not in self._sums:
            raise AttributeError(f"the server's view has {name!r} once {when}")
        return self._sums[name]

    def _tensor(self, name: str, when: str) -> Tensor:
        found = self._sum(name, when)
        value: Tensor = found if isinstance(found, Tensor) else found.value()
        return value
