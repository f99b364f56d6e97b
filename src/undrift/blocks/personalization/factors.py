"""Which factors of adapters train, travel and stay: FFA-LoRA, RoLoRA, FedSVD and FedSA-LoRA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isclose

import torch
from torch import Tensor

from undrift.blocks.personalization.private import Kept
from undrift.core import Block, End, Layout, Needs, Personalization, ServerView, Start, Step, Sums, Synchronous, Vector
from undrift.core.method.algorithm import vectors
from undrift.core.model.pairs import Pair, find_pairs, mask_of, truncate, write_pairs
from undrift.util.naming.ranges import Whole


def remembers_directions(others: Mapping[str, object], why: str) -> str:
    """Why a block cannot stand beside those that remember a direction over rounds; "" if none does.

    Args:
        others: the blocks of the other slots.
        why: what happens to the coordinates in which a direction was remembered.
    """
    for slot, block in others.items():
        if isinstance(block, Block) and (
            Sums.SLOPES in block.uses or any(vectors(tree) for tree in (block.Server, block.Client, block.Sent))
        ):
            return f"{why}, and {slot}={type(block).__name__} remembers a direction; leave one out, or use ffa-lora"
    return overlaps(others, why)


def reads_steps(others: Mapping[str, object], why: str) -> str:
    """Why a block cannot stand beside those that read the displacement as gradient steps; "" if none does.

    Args:
        others: the blocks of the other slots.
        why: what happens to the displacement.
    """
    for slot, block in others.items():
        if isinstance(block, Block) and (Sums.SLOPES in block.uses or vectors(block.Client)):
            name = type(block).__name__
            return (
                f"{why}, and {slot}={name} reads their displacement as gradient steps; leave one out, or use ffa-lora"
            )
    return ""


def overlaps(others: Mapping[str, object], why: str) -> str:
    """Why a block cannot stand beside a schedule in which uploads start from several models; "" if it can."""
    schedule = others["schedule"]
    if isinstance(schedule, Synchronous) and schedule.overlaps:
        return f"{why}, and with schedule={schedule!r} uploads start from several models; use synchronous rounds"
    return ""


def needs_both_factors(others: Mapping[str, object]) -> str:
    """Why a block that computes with both factors of an adapter cannot have its personalization; "" if it can."""
    own = others["personalization"]
    if isinstance(own, Personalization) and own.needs.model and not getattr(own, "keeps_products", False):
        return f"computes with both factors of every client, and personalization={own!r} treats them apart; drop one"
    return ""


def check_shared(end: End) -> None:
    """Raise an error if a client keeps a factor private, so that the server does not know the product."""
    shared = end.share(torch.ones_like(end.w)).bool().cpu()
    if not shared[mask_of(end.layout, "a") | mask_of(end.layout, "b")].all():
        raise ValueError("a factor of an adapter is private, and the method needs both: share it, or use fedsa-lora")


def check_scale(scale: float, start: Start, pairs: Sequence[Pair]) -> None:
    """Raise an error if an adapter of the model has another scale than a method.

    Args:
        scale: the method's.
        start: the visit that begins.
        pairs: the adapters.
    """
    modules = dict(start.module.named_modules())
    for pair in pairs:
        own = getattr(modules.get(pair.layer), "scaling", scale)
        for found in own.values() if isinstance(own, Mapping) else [own]:
            if not isclose(found, scale, rel_tol=1e-6):
                raise ValueError(f"{pair.layer} has alpha / r = {found:g}: give the method scale={found:g}")


@lru_cache(maxsize=64)
def _moving(layout: Layout, role: str) -> Tensor:
    """A boolean vector: true on all but the factors of a role."""
    return ~mask_of(layout, role)


@dataclass(frozen=True)
class OneFactor(Personalization):
    """client:  one factor of every adapter moves, the other stays as received; heads move
    server:  the other factor is bit for bit what it was;   every `refactor` rounds B A = U S V^T, B <- U S, A <- V^T

    The factor that moves is the one that starts at zero: B, but A of an embedding.

    Args:
        alternate: the factors take turns, beginning with the one that starts at zero.
        refactor: how many rounds lie between two decompositions of the product; 0 never does one.
    """

    needs = Needs(model="adapted")

    alternate: bool = False
    refactor: Whole = 0

    def __post_init__(self) -> None:
        if self.alternate and self.refactor:
            raise ValueError("OneFactor: set alternate or refactor, not both: a decomposition is for a frozen factor")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Directions remembered in coordinates that stand still or change."""
        if self.alternate:
            return remembers_directions(others, "freezes a factor in every other round")
        return remembers_directions(others, "changes the coordinates of the factors") if self.refactor else ""

    def moving(self, layout: Layout, round: int) -> Tensor:
        """A boolean vector: true where the model moves in a round."""
        return _moving(layout, "zero" if self.alternate and round % 2 else "other")

    def active(self, step: Step) -> Tensor:
        """The factor of the round, and all that is no factor."""
        return self.moving(step.layout, step.round)

    def travels(self, layout: Layout, round: int, *, up: bool) -> Tensor | None:
        """Uploads have the factor of the round, a client receives that of the round before, or both if both change."""
        if up:
            return self.moving(layout, round)
        return None if self.refactor else self.moving(layout, round - 1 if round else round)

    def receive(self, delta: Vector, up: None, view: ServerView[None]) -> tuple[Vector, None]:
        """Nothing moves the frozen factor, then perhaps a decomposition."""
        delta = torch.where(self.moving(view.layout, view.round).to(delta.device), delta, 0.0)
        due = self.refactor and (view.round + 1) % self.refactor == 0
        return _refactor(view.layout, view.params, delta) if due else delta, None


def _refactor(layout: Layout, params: Vector, delta: Vector) -> Vector:
    """The displacement that also makes the random factor of every product orthonormal; not of a product of zero."""
    new, values = params + delta, dict[int, Tensor]()
    tensors = layout.split(new)
    for pair in find_pairs(layout):
        b, a = pair.factors(tensors)
        if not tensors[pair.zero].any():
            continue
        u, s, v = truncate(b, a, len(a))
        values |= {pair.b: u * s, pair.a: v} if pair.zero == pair.b else {pair.b: u, pair.a: s[:, None] * v}
    return write_pairs(layout, new, values) - params


@dataclass(frozen=True)
class PrivateFactor(Kept):
    """client:  the factor of every adapter that starts at zero stays with the client; the other is shared

    Args:
        head: whether all that is no factor, such as a classifier, stays with the client, too.
    """

    needs = Needs(model="adapted")
    personalizes = True

    head: bool = True

    def own(self, layout: Layout) -> Tensor:
        """The factors that start at zero, and the head."""
        return ~mask_of(layout, "other") if self.head else mask_of(layout, "zero")
