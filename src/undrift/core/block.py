"""The verbs: what a block may do in a round, in the order of a round, and the kinds of block that fill the slots.

A block is immutable. It declares, as NamedTuples, what it keeps on the server (`Server`) and on a client (`Client`),
what the server sends (`Sent`) and what the client uploads (`Up`); the wire format, checkpoints and the table of costs
follow from these declarations. Every argument is read-only, except a gradient or offset handed to a verb that returns
one: that is the block's to change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from undrift.core.types import Cohort, Declared, Gathered, Run, Summed, Tree, Upload, Weighted
from undrift.core.vector import Layout, Vector


@dataclass(frozen=True)
class Block:
    """A part of a method. Every verb has a default, so that a block writes only the ones it needs."""

    Server: ClassVar[Declared] = None
    Client: ClassVar[Declared] = None
    Sent: ClassVar[Declared] = None
    Up: ClassVar[Declared] = None
    requires: ClassVar[Mapping[str, str]] = {}
    """Slot -> name of the block class that must fill it."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """Which sums of displacements `receive` reads besides the weighted mean: "sum", "slope"."""
    keeps_buffers: ClassVar[bool] = False
    """Whether running statistics stay with each client, whatever `Local.buffers` says."""

    @property
    def gradients(self) -> int:
        """How many gradients a step needs besides the one it descends along."""
        return 0

    def sizes(self) -> Mapping[str, int]:
        """The length of every Array field of `Up`, by name; the gate refuses another."""
        return {}

    def init_server(self, w: Vector) -> Tree:
        """What the server keeps before round 0."""
        return None

    def init_client(self, w: Vector) -> Tree:
        """What a client keeps before its first round, in which it received `w`."""
        return None

    def send(self, server: Any) -> Tree:
        """What travels to the clients."""
        return None

    def begin(self, sent: Any, kept: Any, run: Run) -> Any:
        """Prepare the local training; the result is handed to the other client verbs as `local`."""
        return kept

    def finish(self, local: Any, run: Run) -> tuple[Tree, Tree]:
        """After the last step: what is uploaded and what is kept. `run.delta` is the displacement."""
        return None, None

    def receive(self, server: Any, total: Summed, up: Any, cohort: Cohort) -> Tree:
        """The server's new state from the sums of a round; `up` is the plain sum of this block's uploads."""
        kept: Tree = server
        return kept

    def personal(self, params: Vector, kept: Any, layout: Layout) -> Vector | None:
        """The model a client is evaluated with, from the global one and what it keeps; None leaves it to others."""
        return None


@dataclass(frozen=True)
class Perturbation(Block):
    """Where the gradient is taken. This base perturbs nothing."""

    def perturb(self, local: Any, run: Run) -> Vector | None:
        """The offset from `run.w`, an ascent direction, or None for none."""
        return None

    def mix(self, grad: Vector, local: Any, run: Run) -> Vector:
        """The data gradient of the step, from the gradient at the perturbed point."""
        return grad


@dataclass(frozen=True)
class Correction(Block):
    """A change of the direction against drift, or a momentum. This base changes nothing."""

    def correct(self, grad: Vector, local: Any, run: Run) -> Vector:
        """The corrected direction."""
        return grad

    def settle(self, delta: Vector, server: Any) -> Vector:
        """The correction's half on the server: the displacement to apply, from the mean one."""
        return delta


@dataclass(frozen=True)
class Objective(Block):
    """A term added to every client's loss. This base adds nothing."""

    def penalty(self, local: Any, run: Run) -> Tensor | None:
        """A term of the batch's loss that needs the model, or None; called after every forward pass of training.

        It is part of the loss wherever a gradient of training is taken, a perturbation's included, and it may look at
        other points through `run.loss` and at layers through `run.seen`.
        """
        return None

    def add(self, grad: Vector, local: Any, run: Run) -> Vector:
        """The direction with the gradient of the term at `run.w` added."""
        return grad


@dataclass(frozen=True)
class Aggregation(Block):
    """How uploads are weighed, or, if `gathers`, combined from every upload apart."""

    gathers: ClassVar[bool] = False
    """Whether the server needs every upload apart."""
    plain: ClassVar[bool] = False
    """Whether every weight is one, so that the weighted sum serves as the plain one."""

    judges: ClassVar[bool] = False
    """Whether `gather` judges models on proxy data at the server."""
    extra: ClassVar[tuple[str, ...]] = ()
    """Names of further weighted sums of the displacements, beside that by `weigh`."""

    def weigh(self, upload: Upload) -> float:
        """The weight of an upload: finite, not negative, known to the client itself.

        It may read all of the upload, other blocks' parts too. Weighted sums resolve 2^-60: keep weights near one.
        """
        return 1.0

    def weights(self, upload: Upload) -> Mapping[str, float]:
        """The weights of an upload in the sums named by `extra`: finite, of any sign."""
        return {}

    def mean(self, sums: Weighted, cohort: Cohort) -> Vector:
        """The displacement of the round from the sums; not called if `gathers`."""
        # Every weight may be zero (no client deserves any): the model then stays where it is.
        return sums.delta / (sums.weight or 1.0)

    def combine(self, uploads: Sequence[Upload]) -> Vector:
        """The displacement of the round from all uploads, sorted by client; called only if `gathers`."""
        raise NotImplementedError(f"{type(self).__name__} declares gathers = True and must implement combine()")

    def gather(self, uploads: Sequence[Upload], gathered: Gathered) -> tuple[Vector, Tree]:
        """The same for a rule that needs more than the uploads, and what the block then keeps on the server."""
        return self.combine(uploads), gathered.server


@dataclass(frozen=True)
class ServerOptimizer(Block):
    """What the server does with the displacement. This base adds it."""

    def shift(self, params: Vector, server: Any) -> Vector:
        """The model that is broadcast, where it differs from the one that is kept."""
        return params

    def step(self, params: Vector, delta: Vector, server: Any) -> tuple[Vector, Tree]:
        """The new model and the new state."""
        return params + delta, server


@dataclass(frozen=True)
class Personalization(Block):
    """Which part of the model is shared. This base shares all of it."""

    def shared(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where the model is shared; None if all of it is."""
        return None

    def start(self, params: Vector, kept: Any, layout: Layout) -> Vector:
        """The model a client starts from; it is not changed."""
        return params

    def active(self, run: Run) -> Tensor | None:
        """A boolean vector, true where the model moves at this step; None if all of it does."""
        return None

    def step(self, grad: Vector, local: Any, run: Run) -> None:
        """Train something beside the model, before it moves; `grad` is its unfiltered data gradient, to read only."""

    def share(self, v: Vector, layout: Layout) -> Vector:
        """What may leave of a vector: zero where the model is private."""
        mask = self.shared(layout)
        return v if mask is None else torch.where(mask.to(v.device), v, v.new_zeros(()))

    def personal(self, params: Vector, kept: Any, layout: Layout) -> Vector | None:
        """The model a client would start from."""
        return self.start(params, kept, layout)

    @property
    def tuning(self) -> int:
        """How many epochs of plain SGD a client trains its model before it is evaluated with it."""
        return 0

    def scope(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where this tuning moves the model; None if it moves all of it."""
        return None


SLOTS: Mapping[str, type[Block]] = {
    "perturbation": Perturbation,
    "drift": Correction,
    "momentum": Correction,
    "objective": Objective,
    "aggregation": Aggregation,
    "server_optimizer": ServerOptimizer,
    "personalization": Personalization,
}
"""The slots that hold blocks; `spectral`, which only holds functions, is the eighth."""
