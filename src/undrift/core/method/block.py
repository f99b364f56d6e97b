"""The hooks: what a block may do in a round, in the order of a round, and the kinds of block that fill the slots.

A block is immutable. Its type parameters are what it keeps on the server, what it keeps on a client, what the server
sends, what the client uploads (NamedTuples, or None) and what it holds while a client trains:

    class Scaffold(Correction[Variate, Variate, Variate, None, Variates]): ...

The wire format, checkpoints and the table of costs follow from them.

A block may change two things in place: its own `state`, which `begin` returned, and the gradient passed to `adjust` or
the displacement passed to `release`, which it must not keep. Everything else is read-only: what was sent and kept, the
views, the vectors of other blocks. So `begin` clones what its state will change.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, cast, get_args, get_origin

import torch
from torch import Tensor
from typing_extensions import TypeVar

from undrift.core.method.view import End, ServerView, Start, Step, Sums
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.report import check_names
from undrift.core.records.types import ClientT, Declared, SentT, ServerT, StateT, Tree, UpT, kinds
from undrift.util.naming.binding import check_subclass_fields


@dataclass(frozen=True)
class Needs:
    """What a block cannot do without; `Block.refuses` has what it needs of other blocks.

    Args:
        model: the kind of model, as `undrift.models.KINDS` names it; "" takes any.
        arguments: arguments with which such a model fits this block.
        labels: the clients' examples have class labels.
        proxy: the server has proxy data.
        reads: slots whose state it reads through `View.peer`, if they contain what it needs.
        plain_sgd: why it needs clients that take plain SGD steps; "" accepts any local optimizer.
    """

    model: str = ""
    arguments: Mapping[str, int] = field(default_factory=dict)
    labels: bool = False
    proxy: bool = False
    reads: tuple[str, ...] = ()
    plain_sgd: str = ""


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


def _zeros(declared: Declared, w: Vector) -> Tree:
    """A tree of zeros; None if none is declared or an Array is in it."""
    named = {} if declared is None else kinds(declared)
    if declared is None or "array" in named.values():
        return None
    tree: Tree = declared(
        *(torch.zeros_like(w) if kind == "vector" else {"float": 0.0, "int": 0}[kind] for kind in named.values())
    )
    return tree


_RENAMED = dict.fromkeys(("mix", "filter_gradient", "correct", "add", "direction"), "adjust")
_REPLACED = {
    "report": "report through the view in begin or finish: end.report(name, value)",
    "report_server": "report in receive: view.report(name, value)",
    "settle": "return the displacement from receive(delta, up, view)",
    "train_own": "train in adjust(grad, state, step) and return grad",
    "enter": "call start.begin_at(point) in begin",
    "scope": "return the part from active(step) if step.tuning",
    "combine": "write gather(uploads, ups, view), which returns the displacement and view.state",
    "hint": "write it into what refuses(others) returns",
    "weights": 'return all weights from weigh(upload, up, age), the first under ""',
    "check_size": "let the property candidates return how many clients download the model",
}
"""Hooks of version 0.2, and what has taken their place."""


def _adopt_old_hooks(cls: type[Any]) -> None:
    """Take a hook under its old name for one version, with a warning; refuse one whose arguments have changed."""
    for old, new in _RENAMED.items():
        if old in vars(cls) and issubclass(cls, Adjusting) and new not in vars(cls):
            warnings.warn(
                f"{cls.__name__}.{old} is now {new}; {old} goes with version 0.4", DeprecationWarning, stacklevel=4
            )
            setattr(cls, new, vars(cls)[old])
    for old, remedy in _REPLACED.items():
        if old in vars(cls):
            raise TypeError(f"{cls.__name__}.{old} is no longer a hook: {remedy}")


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
    uses: ClassVar[Sums] = Sums.NONE
    """The sums over clients that `receive` reads besides the weighted mean."""
    keeps_buffers: ClassVar[bool] = False
    """Whether running statistics stay with each client, whatever the value of `Local.buffers`."""
    personalizes: ClassVar[bool] = False
    """Whether clients are evaluated with models of their own because of this block."""
    vectorises: ClassVar[bool] = False
    """Whether its hooks of a step work under `torch.func.vmap`, on many clients at once: `core.client.vectorised`."""
    reports: ClassVar[tuple[str, ...]] = ()
    """Names of the scalars that it reports through its views; "layer/*" declares a family."""

    def __init_subclass__(cls) -> None:
        """Read the declared trees from the type parameters."""
        super().__init_subclass__()
        check_names(cls.__name__, cls.reports)
        check_subclass_fields(cls)
        _adopt_old_hooks(cls)
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
        """What it needs of the model, the data and other slots; an attribute unless its settings decide."""
        return Needs()

    def refuses(self, others: Mapping[str, object]) -> str:
        """Why it computes something else than its mathematics beside the blocks of the other slots; "" if it fits."""
        return ""

    @property
    def gradients(self) -> int:
        """How many gradients a step needs besides the one it descends along."""
        return 0

    @property
    def reads_rank(self) -> bool:
        """Whether it gives every client its own rank, `attributes["rank"]`; without such a block it is refused."""
        return False

    def sizes(self) -> Mapping[str, int]:
        """The length of every Array field of the upload, by name; the gate rejects another.

        One that is not here has the length of the Array of the same name that the server sent.
        """
        return {}

    def init_server(self, w: Vector) -> ServerT:
        """What the server keeps before round 0: zeros, unless a field is an Array, whose length only a block knows."""
        return cast(ServerT, _zeros(self.Server, w))

    def init_client(self, w: Vector) -> ClientT:
        """What a client keeps before its first round, in which it received `w`: zeros, as on the server."""
        return cast(ClientT, _zeros(self.Client, w))

    def send(self, view: ServerView[ServerT]) -> SentT:
        """What travels to the clients, before a round: what the server keeps, if it is of the declared kind."""
        return cast(SentT, view.state if self.Sent is self.Server else None)

    def begin(self, sent: SentT, kept: ClientT, start: Start) -> StateT:
        """Prepare the local training; the result is passed to the other client hooks as `state`."""
        return cast(StateT, kept)

    def finish(self, state: StateT, end: End) -> tuple[UpT, ClientT]:
        """After the last step: what is uploaded and what is kept."""
        return cast(UpT, None), cast(ClientT, None)

    def receive(self, delta: Vector, up: UpT, view: ServerView[ServerT]) -> tuple[Vector, ServerT]:
        """The server's half of a round: the displacement that goes to the next slot, and the block's new state.

        Blocks receive in the order of the slots; the model then moves by what the last one returned.

        Args:
            delta: the displacement: the rule's mean, as the blocks before have changed it.
            up: the unweighted sum of this block's uploads.
            view: the round, with the sums that the block declares in `uses`.
        """
        return delta, view.state

    def personal(self, params: Vector, kept: ClientT, layout: Layout) -> Vector | None:
        """The model a client is evaluated with, from the global one and what it keeps; None leaves it to others."""
        return None


@dataclass(frozen=True)
class Adjusting(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """A block that changes the direction of a step, at the position of its slot in the loop."""

    def adjust(self, grad: Vector, state: StateT, step: Step) -> Vector:
        """The direction that goes to the next slot; `grad` may be overwritten and is not kept."""
        return grad


AnyBlock = Block[Any, Any, Any, Any, Any]
"""A block, whatever its trees."""


@dataclass(frozen=True)
class Perturbation(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """Where the gradient is taken; `adjust` makes the data gradient of the step from that at the perturbed point."""

    home = "perturbation"

    def perturb(self, state: StateT, step: Step) -> Vector | None:
        """The offset from `step.w`, an ascent direction, or None for none."""
        return None


@dataclass(frozen=True)
class Spectral(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """Filters of the offset and, with `adjust`, of the data gradient. This base filters nothing."""

    home = "spectral"

    def filter_offset(self, offset: Vector, state: StateT, step: Step) -> Vector:
        """The filtered offset; `offset` itself is left alone."""
        return offset


@dataclass(frozen=True)
class Correction(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """A change of the direction against drift, or a momentum. This base changes nothing."""

    home = "drift"


@dataclass(frozen=True)
class Objective(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """A term added to every client's loss; `adjust` adds its gradient at `step.w`. This base adds nothing."""

    home = "objective"

    def penalty(self, state: StateT, step: Step) -> Tensor | None:
        """A term of the batch's loss that needs the model, or None; called after every forward pass of training.

        It is part of the loss wherever a gradient of training is taken, a perturbation's included, and it may read
        other points through `step.loss_at` and layers through `step.seen`.
        """
        return None


@dataclass(frozen=True)
class LocalOptimizer(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """How a client moves along the gradient of a step: w <- w - lr adjust(gradient). This base is plain SGD.

    The gradient comes clipped and corrected, with weight decay in it unless it is `decoupled`. What `adjust` returns
    may be a vector of the state, which the loop only reads.
    """

    home = "local_optimizer"
    decoupled: ClassVar[bool] = False
    """Whether weight decay is added to the direction instead of the gradient."""

    @property
    def plain(self) -> bool:
        """Whether every direction is the gradient itself, bit for bit: what methods that read slopes need."""
        return type(self) is LocalOptimizer


@dataclass(frozen=True)
class Release(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """What happens to a displacement between the client and the sum, and to the sum before the mean.

    Clipping, compression, quantisation, noise and masking belong here: they combine with every rule, and nothing needs
    the uploads one by one. This base releases displacements as they are.
    """

    home = "release"
    guards: ClassVar[bool] = False
    """Whether it limits what one bad upload does: `bound` then gives the limit that the gate holds."""
    private: ClassVar[bool] = False
    """Whether what `release_sum` returns is differentially private. The server's hooks then see no other sum, and the
    expected cohort, which is public, in place of the accepted one; a round without uploads is closed like any other."""
    separation = 1
    """How many rounds lie at least between two of a client: the cohorts are drawn so. 1 allows every round."""
    least = 0
    """How many clients a sum must have, since each adds a part of its noise: it needs secure sums of so many."""

    @property
    def traffic(self) -> int | float:
        """The bytes of a displacement on the wire, as a share of the model's; below 1 it travels in a short form.

        That form is without loss: see `undrift.core.records.short_vector`.
        """
        return 1

    def release(self, delta: Vector, state: StateT, end: End) -> Vector:
        """What leaves the client in place of its displacement, which may be overwritten.

        It comes before `finish`: what blocks derive from `End.delta` is derived from what the server receives.
        """
        return delta

    def bound(self, sent: SentT) -> float | None:
        """The largest norm of what `release` returns; the gate rejects a longer one. None if there is no bound."""
        return None

    def release_sum(self, total: Tensor, view: ServerView[ServerT]) -> Tensor:
        """The weighted sum of the displacements, in double precision, before the rule makes a mean of it."""
        return total


@dataclass(frozen=True)
class ServerOptimizer(Block[ServerT, ClientT, SentT, UpT, StateT]):
    """What the server does with the displacement: w <- w + what `receive` returns. This base adds it."""

    home = "server_optimizer"

    def shift(self, view: ServerView[ServerT]) -> Vector:
        """The model that is broadcast, where it differs from the one that is kept."""
        return view.params


@dataclass(frozen=True)
class Personalization(Adjusting[ServerT, ClientT, SentT, UpT, StateT]):
    """Which part of the model is shared. This base shares all of it.

    `adjust` gets the data gradient before filters and clipping; a block that trains a second model beside the shared
    one returns it as it is.
    """

    home = "personalization"

    def shared(self, layout: Layout) -> Tensor | None:
        """A boolean vector, true where the model is shared; None if all of it is."""
        return None

    def start(self, params: Vector, kept: ClientT, layout: Layout) -> Vector:
        """The model a client starts from, from which its displacement is measured; `params` is not changed."""
        return params

    def active(self, step: Step) -> Tensor | None:
        """A boolean vector, true where the model moves at this step of training or tuning; None if all of it does."""
        return None

    def travels(self, layout: Layout, round: int, *, up: bool) -> Tensor | None:
        """Where a client receives or uploads the model in a round, a boolean vector; None if all of it travels.

        Args:
            layout: the names and shapes of its tensors.
            round: the round.
            up: uploads; otherwise what is received.
        """
        return self.shared(layout)

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


def join_needs(blocks: Mapping[str, AnyBlock]) -> Needs:
    """What several blocks need together; raises if no model fits all of them.

    Args:
        blocks: the blocks by their names in errors.
    """
    needs = [block.needs for block in blocks.values()]
    models = {block.needs.model: name for name, block in blocks.items() if block.needs.model}
    if len(models) > 1:
        kinds = " and ".join(f"{name} a model of the kind {kind!r}" for kind, name in models.items())
        raise TypeError(f"no model fits all blocks: {kinds} is needed; leave one of them out")
    return Needs(
        model=next(iter(models), ""),
        arguments=next((x.arguments for x in needs if x.model), {}),
        labels=any(x.labels for x in needs),
        proxy=any(x.proxy for x in needs),
        reads=tuple(dict.fromkeys(slot for x in needs for slot in x.reads)),
        plain_sgd=next((x.plain_sgd for x in needs if x.plain_sgd), ""),
    )
