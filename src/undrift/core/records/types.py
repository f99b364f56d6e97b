"""The records of a round: what the server keeps, sends and receives, and what a client keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, get_type_hints

import torch
from torch import Tensor
from typing_extensions import TypeVar

from undrift.core.local.settings import Local as Local
from undrift.core.model.flat_model import Vector

Array: TypeAlias = Tensor
"""A tensor in a tree that is not as long as the model: a sketch, a few indices, the private part of a model."""

Tree: TypeAlias = tuple[Any, ...] | None
"""What a block keeps or sends: None, or a NamedTuple whose fields are Vector, Array, float or int."""

Declared: TypeAlias = type[Any] | None
"""The NamedTuple class of a tree, as a block declares it."""

Parts: TypeAlias = Mapping[str, Tree]
"""One tree per slot, for the slots that declare one."""

ServerT = TypeVar("ServerT", bound=Tree, default=None)
"""What a block keeps on the server."""

ClientT = TypeVar("ClientT", bound=Tree, default=None)
"""What a block keeps on a client between its rounds."""

SentT = TypeVar("SentT", bound=Tree, default=None)
"""What the server sends for a block."""

UpT = TypeVar("UpT", bound=Tree, default=None)
"""What a client uploads for a block."""

StateT = TypeVar("StateT", default=ClientT)
"""What a block holds while a client trains: what `begin` returns."""


def kinds(declared: Declared) -> Mapping[str, str]:
    """The fields of a declared tree: name -> "vector" (as long as the model), "array", "float" or "int"."""
    if declared is None:
        return {}
    if declared not in _KINDS:
        _KINDS[declared] = _kinds(declared)
    return _KINDS[declared]


_KINDS: dict[type[Any], Mapping[str, str]] = {}  # reading type hints costs more than an exact sum


def _kinds(declared: type[Any]) -> dict[str, str]:
    """The fields of a declared tree, read from its type hints."""
    named: dict[Any, str] = {Vector: "vector", Array: "array", float: "float", int: "int"}
    hints = get_type_hints(declared, include_extras=True)
    unknown = [name for name, hint in hints.items() if hint not in named]
    if unknown:
        raise TypeError(
            f"{declared.__name__}.{unknown[0]}: a tree contains Vector, Array, float or int, not {hints[unknown[0]]}"
        )
    return {name: named[hint] for name, hint in hints.items()}


TASK_NUMBERS = 6
"""How many whole numbers a row of a task in flight has."""


@dataclass(frozen=True, eq=False)
class Flight:
    """What is under way between two steps of the server, in virtual time.

    Args:
        time: nanoseconds since the start of the run.
        started: how many tasks clients have begun so far.
        rows: whole numbers for each task in flight: see `undrift.engine.round.scheduler.TaskInFlight`.
        sent: what was sent in each round from which a task in flight started.
    """

    time: int
    started: int
    rows: tuple[tuple[int, ...], ...]
    sent: Mapping[int, "Broadcast"]

    @cached_property
    def tasks(self) -> Tensor:
        """The rows as a tensor, for a checkpoint."""
        return torch.tensor(self.rows, dtype=torch.int64).reshape(len(self.rows), TASK_NUMBERS)


@dataclass(frozen=True, eq=False)
class ServerState:
    """All that a server needs to resume.

    Args:
        round: the round that comes next.
        params: the global model.
        buffers: its running statistics; `counts` are the integer ones.
        parts: what the blocks keep on the server.
        accepted: for every client with state, the last round in which its upload was accepted; under a schedule that
            takes a client several times in a round, the number of its last accepted visit.
        flight: what is under way after the last round, in a run with virtual time; None in one without.
    """

    round: int
    params: Vector
    buffers: Tensor
    counts: Tensor
    parts: Parts
    accepted: Mapping[int, int] = field(default_factory=dict)
    flight: Flight | None = None

    def __repr__(self) -> str:
        kept = f", {', '.join(self.parts)}" if self.parts else ""
        return f"ServerState({self.round} rounds done, {len(self.params):,} parameters{kept})"


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What every client of a round receives."""

    round: int
    params: Vector
    buffers: Tensor
    counts: Tensor
    parts: Parts


@dataclass(frozen=True, eq=False)
class ClientState:
    """What stays with a client between its rounds.

    `buffers` and `counts`, the running statistics and their integer counters, are None if clients share them.
    """

    parts: Parts
    buffers: Tensor | None = None
    counts: Tensor | None = None

    def statistics(self, buffers: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """The client's own running statistics and counters, or those given if it has none."""
        own = self.buffers, self.counts
        return buffers if own[0] is None else own[0], counts if own[1] is None else own[1]


@dataclass(frozen=True, eq=False)
class Upload:
    """What a client sends back: its displacement, a descent direction in parameter units, and the blocks' parts.

    `round` is the version of the model that it started from. `loss` is the mean training loss over its steps, measured
    before each step. `gradients` is how many gradients were evaluated, by the steps and by blocks besides.
    """

    client: int
    round: int
    delta: Vector
    examples: int
    steps: int
    loss: float
    buffers: Tensor
    counts: Tensor
    parts: Parts
    gradients: int = 0


def slope(paced: Vector, delta: Vector, w0: Vector, tail: Vector, weight_decay: float, count: int = 1) -> Vector:
    """The mean direction a client descended, in gradient units and uphill, without weight decay.

    It is -delta / (steps * lr) less the decay: wd times the mean of w over the steps, the path taken as the straight
    line from w0 to w0 + delta, so w0 + (delta - delta / steps) / 2; for one step it is exact. Where the steps have
    rates lr_k of their own, all means are weighted by them: -delta / sum lr_k, and delta sum lr_k^2 / (sum lr_k)^2 in
    place of delta / steps. It is linear, so the sum over clients follows from sums of displacements: control variates
    and momenta cost no upload of their own.

    Args:
        paced: delta / (steps * lr), or its sum over clients.
        delta: the displacement, or its sum over clients.
        w0: where the clients started, zero on a private part.
        tail: delta / steps, or its sum over clients.
        weight_decay: the L2 coefficient of the local steps.
        count: how many clients the sums hold.
    """
    if weight_decay == 0.0:
        return -paced
    return -paced - weight_decay * (count * w0 + (delta - tail) / 2)
