"""The hooks: what a block may do in a round, in the order of a round, and the kinds of block that fill the slots.

A block is immutable. Its type parameters are what it keeps on the server, what it keeps on a client, what the server
sends, what the client uploads (NamedTuples, or None) and what it holds while a client trains:

    class Scaffold(Correction[Variate, Variate, Variate, None, Variates]): ...

The wire format, checkpoints and the table of costs follow from them. Every argument of a hook is read-only, except a
gradient or an offset passed to a hook that returns one: that is the block's to change, and not to keep.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, cast, get_args, get_origin

import torch
from torch import Tensor
from typing_extensions import TypeVar

from undrift.core.method.view import End, Start, Step
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.report import Scalars, check_names
from undrift.core.records.types import ClientT, Cohort, Declared, SentT, ServerT, StateT, Summed, UpT
from undrift.util.naming.kinds import check_own_kinds


@dataclass(frozen=True)
class Needs:
    """What a block cannot do without.

    Args:
        model: the kind of model, as `undrift.models.KINDS` names it; "" takes any.
        arguments: arguments with which such a model fits this block.
        labels: the clients' examples have class labels.
        proxy: the server has proxy data.
        slots: slot -> the class of block that must fill it.
        filled: slots that must hold some block.
        reads: further slots whose state it reads through `View.peer`, if they contain what it needs.
        plain_sgd: why it needs clients that take plain SGD steps; "" accepts any local optimizer.
        coupled_decay: why it needs weight decay in the gradient, not decoupled from it; "" accepts both.
        own_moments: why moments of a local optimizer must not be averaged by the server; "" accepts it.
        momentum: the local momentum that is allowed with `plain_sgd`.
    """

    model: str = ""
    arguments: Mapping[str, int] = field(default_factory=dict)
    labels: bool = False
    proxy: bool = False
    slots: "Mapping[str, type[AnyBlock]]" = field(default_factory=dict)
    filled: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    plain_sgd: str = ""
    coupled_decay: str = ""
    own_moments: str = ""
    momentum: float = 0.0


_VARIABLES = (ServerT, ClientT, SentT, UpT, StateT)


def _parameters(cls: type) -> tuple[Any, ...]:
    """What a class puts in place of a block's five type parameters, through all its bases."""
    for base in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(base)
        if isinstance(origin, type) and issubclass(origin, Block):
            given = dict(zip(getattr(origin, "__parameters__", ()), get_args(base), strict=False))
            inner = _VARIABLES if origin is Block else _parameters(origin)
            return tuple(given.get(x, x) if isinstance(x, TypeVar) else x for x in inner)
    base = next((base for base in cls.__bases__ if issubclass(base, Block)), Block)
    return _VARIABLES if base is Block else _parameters(base)


def _tree(parameter: Any) -> Declared:
    """A declared tree; a parameter that was left open, or None, declares none."""
    return parameter if isinstance(parameter, type) and parameter is not type(None) else None


@dataclass(frozen=True)
class Block(Generic[ServerT, ClientT, SentT, UpT, StateT]):
    """A part of a method. Every hook has a default, so that a block writes only the ones it needs."""

    home: ClassVar[str] = ""
    """The slot it fills unless another is named."""
    extends: "ClassVar[tuple[type[AnyBlock], ...]]" = ()
    """Blocks of a host that it replaces in a composition, taking over their settings of the same name."""
    Server: ClassVar[Declared] = None
    Client: ClassVar[Declared] = None
    Sent: ClassVar[Declared] = None
    Up: ClassVar[Declared] = None
    uses: ClassVar[frozenset[str]] = frozenset()
    """Which sums of displacements `receive` reads besides the weighted mean: "sum", "slope"."""
    keeps_buffers: ClassVar[bool] = False
    """Whether running statistics stay with each client, whatever the value of `Local.buffers`."""
    personalizes: ClassVar[bool] = False
    """Whether clients are evaluated with models of their own because of this block."""
    vectorises: ClassVar[bool] = False
    """Whether its hooks of a step work under `torch.func.vmap`, on many clients at once, see `core.together`."""
    reports: ClassVar[tuple[str, ...]] = ()
    """Names of the scalars that `report` and `report_server` return; "layer/*" declares a family."""

    def __init_subclass__(cls) -> None:
        """Read the declared trees from the type parameters."""
        super().__init_subclass__()
        check_names(cls.__name__, cls.reports)
        check_own_kinds(cls)
        for name, parameter in zip(("Server", "Client", "Sent", "Up"), _parameters(cls), strict=False):
            tree = _tree(parameter)
            if vars(cls).get(name, tree) is not tree:
                raise TypeError(f"{cls.__name__}: {name} is a type parameter: Kind[Server, Client, Sent, Up, State]")
            setattr(cls, name, tree)

    def _leave_out(self, *trees: str) -> None:
        """For `__post_init__`: this instance, with its settings, uses fewer trees than its class declares."""
        for name in trees:
            object.__setattr__(self, name, None)

    @property
    def needs(self) -> Needs:
        """What it needs of the model, the data and other slots."""
        return Needs()

    def hint(self) -> str:
        """The advice in the error if a slot that it needs is not filled."""
        return ""

    def refuses(self, others: Mapping[str, object]) -> str:
        """Why it computes something else than its mathematics beside the blocks of the other slots; "" if it fits."""
        return ""

    @property
    def gradients(self) -> int:
        """How many gradients a step needs besides the one it descends along."""
        return 0

    def sizes(self) -> Mapping[str, int]:
        """The length of every Array field of the upload, by name; the gate rejects another."""
        return {}

    def init_server(self, w: Vector) -> ServerT:
        """What the server keeps before round 0."""
        return cast(ServerT, None)

    def init_client(self, w: Vector) -> ClientT:
        """What a client keeps before its first round, in which it received `w`."""
        return cast(ClientT, None)

    def send(self, server: ServerT) -> SentT:
        """What travels to the clients."""
        return cast(SentT, None)

    def begin(self, sent: SentT, kept: ClientT, start: Start) -> StateT:
        """Prepare the local training; the result is passed to the other client hooks as `state`."""
        return cast(StateT, kept)

    def finish(self, state: StateT, end: End) -> tuple[UpT, ClientT]:
        """After the last step: what is uploaded and what is kept."""
        return cast(UpT, None), cast(ClientT, None)

    def report(self, state: StateT, up: UpT, kept: ClientT, end: End) -> Scalars:
        """Scalars of this visit, to be recorded; `up` and `kept` are what `finish` returned."""
        return {}

    def receive(self, server: ServerT, total: Summed, up: UpT, cohort: Cohort) -> ServerT:
        """The server's new state from the sums of a round; `up` is the unweighted sum of this block's uploads."""
        return server

    def report_server(self, server: ServerT, cohort: Cohort) -> Scalars:
        """Scalars of the server's state after the round, to be recorded."""
        return {}

    def personal(self, params: Vector, kept: ClientT, layout: Layout) -> Vector | None:
        """The model a client is evaluated with, from the global one and what it keeps; None leaves it to others."""
        return None


AnyBlock = Block[Any, Any, Any, Any, Any]
"""A block, whatever its trees."""


@dataclass(frozen=True)
class Perturbation(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """Where the gradient is taken. This base perturbs nothing."""

    home = "perturbation"

    def perturb(self, state: StateT, step: Step) -> Vector | None:
        """The offset from `step.w`, an ascent direction, or None for none."""
        return None

    def mix(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """The data gradient of the step, from the gradient at the perturbed point."""
        return grad


@dataclass(frozen=True)
class Spectral(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """Filters of the offset and of the data gradient. This base filters nothing."""

    home = "spectral"

    def filter_offset(self, offset: Vector, state: StateT, step: Step) -> Vector:
        """The filtered offset; `offset` itself is left alone."""
        return offset

    def filter_gradient(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """The filtered data gradient; `grad` may be overwritten."""
        return grad


@dataclass(frozen=True)
class Correction(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """A change of the direction against drift, or a momentum. This base changes nothing."""

    home = "drift"

    def correct(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """The corrected direction."""
        return grad

    def settle(self, delta: Vector, server: ServerT) -> Vector:
        """The correction's half on the server: the displacement to apply, from the mean one."""
        return delta


@dataclass(frozen=True)
class Objective(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """A term added to every client's loss. This base adds nothing."""

    home = "objective"

    def penalty(self, state: StateT, step: Step) -> Tensor | None:
        """A term of the batch's loss that needs the model, or None; called after every forward pass of training.

        It is part of the loss wherever a gradient of training is taken, a perturbation's included, and it may look at
        other points through `step.loss_at` and at layers through `step.seen`.
        """
        return None

    def add(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """The direction with the gradient of the term at `step.w` added."""
        return grad


@dataclass(frozen=True)
class ServerOptimizer(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """What the server does with the displacement. This base adds it."""

    home = "server_optimizer"

    def shift(self, params: Vector, server: ServerT) -> Vector:
        """The model that is broadcast, where it differs from the one that is kept."""
        return params

    def step(self, params: Vector, delta: Vector, server: ServerT) -> tuple[Vector, ServerT]:
        """The new model and the new state."""
        return params + delta, server


@dataclass(frozen=True)
class Personalization(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """Which part of the model is shared. This base shares all of it."""

    home = "personalization"

    def shared(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where the model is shared; None if all of it is."""
        return None

    def start(self, params: Vector, kept: ClientT, layout: Layout) -> Vector:
        """The model a client starts from, from which its displacement is measured; `params` is not changed."""
        return params

    def enter(self, state: StateT, start: Start) -> Vector | None:
        """Where the first step is taken, if not at `start.w0`; called once all blocks have begun."""
        return None

    def active(self, step: Step) -> Tensor | None:
        """A boolean vector, true where the model moves at this step; None if all of it does."""
        return None

    def train_own(self, grad: Vector, state: StateT, step: Step) -> None:
        """Train a model of the client's own before the shared one moves; `grad` is its unfiltered data gradient."""

    def share(self, v: Vector, layout: Layout) -> Vector:
        """What may leave of a vector: zero where the model is private."""
        mask = self.shared(layout)
        return v if mask is None else torch.where(mask.to(v.device), v, v.new_zeros(()))

    def personal(self, params: Vector, kept: ClientT, layout: Layout) -> Vector | None:
        """The model a client would start from."""
        return self.start(params, kept, layout)

    @property
    def tuning(self) -> int:
        """How many epochs a client trains its model, by the local optimizer alone, before it is evaluated with it."""
        return 0

    def scope(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where this tuning moves the model; None if it moves all of it."""
        return None


@dataclass(frozen=True)
class LocalOptimizer(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """How a client moves along the gradient of a step: w <- w - lr direction. This base is plain SGD.

    The gradient comes clipped and corrected, with weight decay in it unless it is `decoupled`.
    """

    home = "local_optimizer"
    decoupled: ClassVar[bool] = False
    """Whether weight decay is added to the direction instead of the gradient."""

    @property
    def plain(self) -> bool:
        """Whether every direction is the gradient itself, to the bit: what methods that read slopes need."""
        return type(self) is LocalOptimizer

    def direction(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """What `w` moves against in this step; it may be a vector of the state, which the loop only reads."""
        return grad
