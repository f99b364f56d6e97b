"""A method as a frozen record of slots, and what follows from it: its state, its traffic, its capabilities."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property, reduce
from operator import or_
from typing import Any

import torch

from undrift.core.method.aggregation import Aggregation, Gathering
from undrift.core.method.block import (
    AnyBlock,
    Correction,
    LocalOptimizer,
    Needs,
    Objective,
    Personalization,
    Perturbation,
    Release,
    ServerOptimizer,
    Spectral,
    join_needs,
)
from undrift.core.method.defaults import Average, ByExamples
from undrift.core.method.part_vector import mean_share
from undrift.core.method.schedule import Synchronous
from undrift.core.method.selection import Selection
from undrift.core.method.view import Sums
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.types import ClientState, Declared, Local, Parts, kinds
from undrift.util.display.html import html_table

SLOTS: Mapping[str, type[AnyBlock]] = {
    "perturbation": Perturbation,
    "spectral": Spectral,
    "drift": Correction,
    "momentum": Correction,
    "objective": Objective,
    "local_optimizer": LocalOptimizer,
    "release": Release,
    "aggregation": Aggregation,
    "server_optimizer": ServerOptimizer,
    "personalization": Personalization,
    "selection": Selection,
    "schedule": Synchronous,
}
"""The slots and the kind of block each holds, in the order of a round; selection and schedule are of the next one."""


@dataclass(frozen=True, repr=False)
class Algorithm:
    """A federated method: one block in each slot. Left empty it is FedAvg.

    Vary a part with `dataclasses.replace`; the `repr` is the configuration.

    Args:
        perturbation: where the gradient is taken.
        spectral: filters on the perturbation and on the data gradient.
        drift: a correction against client drift.
        momentum: a momentum, applied after the correction.
        objective: a term added to the clients' loss.
        local_optimizer: how clients move along the result; plain SGD, or with moments.
        release: what happens to a displacement before it leaves the client, and to the sum of all.
        aggregation: how uploads are weighed.
        server_optimizer: what the server does with the result.
        personalization: which part of the model is shared.
        selection: which clients take part.
        schedule: when the server steps, and when clients begin.
    """

    perturbation: Perturbation[Any, Any, Any, Any, Any] = Perturbation()
    spectral: Spectral[Any, Any, Any, Any, Any] = Spectral()
    drift: Correction[Any, Any, Any, Any, Any] = Correction()
    momentum: Correction[Any, Any, Any, Any, Any] = Correction()
    objective: Objective[Any, Any, Any, Any, Any] = Objective()
    local_optimizer: LocalOptimizer[Any, Any, Any, Any, Any] = LocalOptimizer()
    release: Release[Any, Any, Any, Any, Any] = Release()
    aggregation: Aggregation[Any, Any, Any, Any, Any] = ByExamples()
    server_optimizer: ServerOptimizer[Any, Any, Any, Any, Any] = Average()
    personalization: Personalization[Any, Any, Any, Any, Any] = Personalization()
    selection: Selection[Any, Any, Any, Any, Any] = Selection()
    schedule: Synchronous[Any, Any, Any, Any, Any] = Synchronous()

    def __post_init__(self) -> None:
        for slot, block in self.slots():
            _fits(slot, block)
            _declares_sizes(slot, block)
        for slot, block in self.slots():
            if block.needs.plain_sgd and not self.local_optimizer.plain:
                raise TypeError(
                    f"{slot}={type(block).__name__} needs plain SGD on the clients, found {self.local_optimizer!r}: "
                    f"{block.needs.plain_sgd}"
                )
            reason = block.refuses({name: other for name, other in self.slots() if name != slot})
            if reason:
                raise TypeError(f"{slot}={block!r} {reason}")
        self.needs  # noqa: B018  raises if no model fits all blocks
        if type(self.release).release_sum is not Release.release_sum and isinstance(self.aggregation, Gathering):
            raise TypeError(
                f"release={self.release!r} changes the sum of the uploads, and aggregation={self.aggregation!r} takes "
                "them one by one; use a rule of sums, such as uniform"
            )

    def __repr__(self) -> str:
        """The slots that differ from FedAvg."""
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if getattr(self, f.name) != f.default]
        return f"Algorithm({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """The slots that differ from FedAvg and what they cost, for notebooks."""
        spent = cost(self)
        traffic = f"traffic {spent.down:g} + {spent.up:g} models, {spent.gradients_per_step} gradients per step"
        rows = list(spent.slots.items()) or [("every slot", "as in FedAvg")]
        return html_table(("slot", "block"), rows, title="Algorithm", note=traffic)

    def slots(self) -> tuple[tuple[str, AnyBlock], ...]:
        """Every slot and its block, in the order of a round."""
        return self._slots

    @cached_property
    def _slots(self) -> tuple[tuple[str, AnyBlock], ...]:
        return tuple((f.name, getattr(self, f.name)) for f in fields(self))

    def fills(self, slot: str) -> bool:
        """Whether a slot holds more than the kind's empty base."""
        return type(getattr(self, slot)) is not SLOTS[slot]

    @cached_property
    def needs(self) -> Needs:
        """What its blocks need of the model and the data, together."""
        return join_needs({f"{slot}={type(block).__name__}": block for slot, block in self.slots()})

    @cached_property
    def uses(self) -> Sums:
        """The sums over clients that its blocks read besides the weighted mean."""
        return reduce(or_, (block.uses for _, block in self.slots()), Sums.NONE)

    @cached_property
    def unprotected(self) -> tuple[str, ...]:
        """Slots whose blocks take every upload as it is although the method guards against bad ones; empty if none.

        A rule guards the mean alone; a release with a bound also guards the sums of displacements and slopes.
        """
        bounded = self.release.guards
        if not (bounded or self.aggregation.guards):
            return ()
        tensors = {slot: {"vector", "array"} & set(kinds(block.Up).values()) for slot, block in self.slots()}
        takes = [slot for slot, block in self.slots() if tensors[slot] or (block.uses and not bounded)]
        return tuple(slot for slot in takes if slot not in ("aggregation", "release"))

    @cached_property
    def stateless(self) -> bool:
        """Whether a client keeps nothing between its rounds."""
        return all(block.Client is None for _, block in self.slots())

    @cached_property
    def personalized(self) -> bool:
        """Whether clients are evaluated with models of their own."""
        declared = any(block.personalizes for _, block in self.slots())
        return declared or self.personalization.tuning > 0 or self._keeps_buffers

    def keeps_buffers(self, local: Local) -> bool:
        """Whether running statistics stay with each client."""
        return local.buffers == "keep" or self._keeps_buffers

    @cached_property
    def _keeps_buffers(self) -> bool:
        return any(block.keeps_buffers for _, block in self.slots())

    def first(self, params: Vector) -> Parts:
        """What the blocks keep on a client before its first round, in which it received `params`."""
        return {slot: block.init_client(params) for slot, block in self.slots() if block.Client is not None}

    def personal(self, params: Vector, state: ClientState | None, layout: Layout) -> Vector:
        """The model a client is evaluated with: that of the first block which gives one.

        Args:
            params: the global model.
            state: what the client keeps; None if it never took part.
            layout: the names and shapes of its tensors.
        """
        parts = self.first(params) if state is None else state.parts
        models = (block.personal(params, parts.get(slot), layout) for slot, block in self.slots())
        return next(model for model in models if model is not None)


def _fits(slot: str, block: object) -> None:
    """Reject a block in a slot of another kind, and name the slot that takes it."""
    kind = SLOTS[slot]
    if isinstance(block, kind):
        return
    name = type(block).__name__
    homes = [other for other, cls in SLOTS.items() if isinstance(block, cls)]
    hint = (
        f"{name} goes into {' or '.join(homes)}"
        if homes
        else f"{name} is not a block: derive it from undrift.core.{kind.__name__}"
    )
    raise TypeError(f"{slot} takes a {kind.__name__}, got {block!r}; {hint}")


def _declares_sizes(slot: str, block: AnyBlock) -> None:
    """Reject a block that uploads an array of unknown length, by which the gate checks uploads."""
    sent = {name for name, kind in kinds(block.Sent).items() if kind == "array"}
    for name, kind in kinds(block.Up).items():
        if kind == "array" and name not in sent | set(block.sizes()):
            raise TypeError(
                f"{slot}={type(block).__name__}: {getattr(block.Up, '__name__', block.Up)}.{name} is an Array: declare "
                f"its length in sizes(), for example return {{{name!r}: 10}}, or send an Array of this name and length"
            )


@dataclass(frozen=True)
class Cost:
    """What a method costs, in multiples of the model, and what it can do; derived from its blocks' declarations.

    Traffic is counted without what a method for adapters leaves out: `cost`.

    Args:
        slots: the blocks that differ from FedAvg, by slot.
        down: what a client receives in a round.
        up: what a client uploads in a round, where it is sent alone; a sum of several uploads is not compressed.
        client_state: what a client keeps between its rounds.
        server_state: what the server keeps, the model included.
        gradients_per_step: gradient evaluations per local step.
        stateless: clients keep nothing.
        plain_sum: the server needs only sums of what clients compute by themselves, as secure aggregation gives.
        gathers: the server holds every upload of a round at once.
        candidates: how many clients download the model before the cohort is chosen from them; 0 if none does.
    """

    slots: dict[str, str]
    down: int | float
    up: int | float
    client_state: int
    server_state: int
    gradients_per_step: int
    stateless: bool
    plain_sum: bool
    gathers: bool
    candidates: int = 0

    @property
    def kept(self) -> str:
        """What a client keeps, as text: "<1" is a part of the model."""
        return str(self.client_state) if self.client_state or self.stateless else "<1"

    def row(self, name: str) -> dict[str, Any]:
        """The cost as a flat record with the name of the algorithm."""
        return {"name": name, **asdict(self)}


def check_rank(algorithm: Algorithm, local: Local) -> None:
    """Raise if clients have ranks of their own, which no block of a method reads.

    Args:
        algorithm: the method.
        local: the settings all clients share.
    """
    if local.rank is not None and not any(block.reads_rank for _, block in algorithm.slots()):
        raise ValueError(
            f"local.rank gives every client a rank of its own, which no block of {algorithm} reads; use hetlora, flora "
            "or flexlora + leading-ranks, or leave out rank. A block of your own that reads it sets reads_rank"
        )


def vectors_sent(algorithm: Algorithm) -> tuple[int, int | float]:
    """How many vectors a client receives and uploads in a round; all of them without what does not travel."""
    blocks = [block for _, block in algorithm.slots()]
    down, up = 1 + sum(vectors(block.Sent) for block in blocks), sum(vectors(block.Up) for block in blocks)
    return down, up + round(algorithm.release.traffic, 4)


def cost(algorithm: Algorithm, layout: Layout | None = None) -> Cost:
    """The cost and the capabilities of an algorithm.

    Args:
        algorithm: the method.
        layout: of the model whose traffic is counted; None takes the adapter of a square layer, without a head, for
            methods that need adapters, and counts all of the model for others.
    """
    received, uploaded = vectors_sent(algorithm)
    down, up = (_travels(algorithm, *x, layout) for x in ((received, False), (uploaded, True)))
    blocks = [block for _, block in algorithm.slots()]
    empty = Algorithm()
    changed = {slot: repr(block) for slot, block in algorithm.slots() if block != getattr(empty, slot)}
    gathers = isinstance(algorithm.aggregation, Gathering)
    return Cost(
        slots=changed,
        down=down,
        up=up,
        client_state=sum(vectors(block.Client) for block in blocks),
        server_state=1 + sum(map(_held, blocks)),
        gradients_per_step=1 + sum(block.gradients for block in blocks),
        stateless=algorithm.stateless,
        plain_sum=not gathers,
        gathers=gathers,
        candidates=algorithm.selection.candidates,
    )


def _travels(algorithm: Algorithm, count: int | float, up: bool, layout: Layout | None) -> int | float:
    """What so many vectors take on the wire, in multiples of the model."""
    layout = layout or _EXAMPLES.get(algorithm.needs.model)
    try:
        share = 1.0 if layout is None else mean_share(algorithm.personalization, layout, up)
    except ValueError:  # its parts are tensors by names that this layout lacks
        share = 1.0
    return count if share == 1 else count * share


_HEADED: dict[str, tuple[int, ...]] = {
    "lora_A": (8, 64),
    "lora_B.0.frame": (64, 8),
    "lora_B.original0": (4, 2, 2),
    "lora_B.original1": (4,),
}
_CORED = {**_HEADED, "lora_B.original0": (1, 8, 8), "lora_B.original1": (1,), "base_layer.weight": (64, 64)}
_SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "adapted": {"lora_A": (1, 1), "lora_B": (1, 1)},
    "cored": _CORED,
    "headed": _HEADED,
}
_EXAMPLES = {kind: Layout(tuple(shapes), tuple(shapes.values())) for kind, shapes in _SHAPES.items()}
"""The adapter of a square layer, for each kind of model that methods for adapters need."""


def vectors(declared: Declared) -> int:
    """How many vectors as long as the model a declared tree holds."""
    return list(kinds(declared).values()).count("vector")


def _held(block: AnyBlock) -> int:
    """How many vectors as long as the model a block's server state holds, in arrays with a row for each too."""
    found, length = vectors(block.Server), 11
    if "array" in kinds(block.Server).values():
        state = block.init_server(torch.zeros(length))
        arrays = (x for name, x in state._asdict().items() if kinds(block.Server)[name] == "array")
        found += sum(x.numel() // length for x in arrays if x.shape[-1:] == (length,))
    return found
