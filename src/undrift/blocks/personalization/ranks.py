"""Adapters of several ranks: a client trains the leading rows and columns of the factors, as many as its rank."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from undrift.blocks.personalization.factors import remembers_directions
from undrift.core import Array, End, Layout, Needs, Personalization, Start, Step, Vector
from undrift.core.model.pairs import Pair, find_pairs
from undrift.util.naming.ranges import NonNegative, Range

_LEAST = 1e-30

Ranks = tuple[int, ...]
"""A rank for each adapter."""


class OwnRanks(NamedTuple):
    """A client's ranks, one for each adapter; empty before its first round."""

    ranks: Array


class Ranked(NamedTuple):
    """What a visit holds: the ranks, where the model moves, and the last parts of the products at the start."""

    ranks: Ranks
    mask: Tensor
    tails: tuple[float, ...]


@lru_cache(maxsize=64)
def _mask_leading(layout: Layout, ranks: Ranks) -> Tensor:
    """A boolean vector: false on the rows of A and the columns of B from each adapter's rank on."""
    out = layout.mask(lambda *_: True)
    tensors = layout.split(out)
    for pair, rank in zip(find_pairs(layout), ranks, strict=True):
        b, a = pair.factors(tensors)
        a[rank:], b[:, rank:] = False, False
    return out


def _full(layout: Layout) -> Ranks:
    """The ranks of the model's adapters."""
    return tuple(layout.shapes[pair.a][0] for pair in find_pairs(layout))


def cut(start: Start, most: Ranks | None = None) -> Ranked:
    """Cut the model of a visit to the client's ranks: `Local.rank`, at most those of the model.

    Args:
        start: the visit that begins; its first step is taken at the cut model.
        most: smaller ranks that the client may have kept.
    """
    given = start.attributes.get("rank")
    if given is not None and (given < 1 or given != int(given)):
        raise ValueError(f"Local.rank must give every client a whole number of 1 or more, got {given:g}")
    ranks = tuple(rank if given is None else min(rank, int(given)) for rank in _full(start.layout))
    if most:
        ranks = tuple(map(min, ranks, most))
    mask = _mask_leading(start.layout, ranks).to(start.w0.device)
    if not mask.all():
        start.begin_at(torch.where(mask, start.w0, start.w0.new_zeros(())))
    return Ranked(ranks, mask, ())


def scale_gradient(grad: Vector, layout: Layout, ranks: Ranks) -> None:
    """Give every adapter the scale alpha / r_i in place of alpha / r: change the gradient of the factor that has it.

    Args:
        grad: the gradient, which is changed.
        layout: the names and shapes of its tensors.
        ranks: the client's.
    """
    tensors = layout.split(grad)
    for pair, rank in zip(find_pairs(layout), ranks, strict=True):
        tensors[pair.zero].mul_((len(tensors[pair.a]) / rank) ** 2)


FIXED_ALPHA = "with fixed_alpha a rank changes the rate of a factor, which only plain steps take as it is"


@dataclass(frozen=True)
class LeadingRanks(Personalization[None, OwnRanks, None, None, Ranked]):
    """client:  r_i = its rank;   begin with the first r_i rows of A and columns of B, the others are zero and stay so
             lam:  loss + lam |B_i[:, k:]| |A_i[k:]|, k = floor(gamma r_i);   if |B_i[:, k:]| |A_i[k:]| shrank, r_i <- k
    server:  receives zeros in place of the rows and columns that a client lacks

    A client's rank is `Local.rank`, at most that of the model; without it all clients have the model's.

    Args:
        lam: strength of the term that shrinks the last ranks; with 0 ranks stay as they are.
        gamma: the share of a client's ranks that is left alone.
        fixed_alpha: every client's adapter has the scale alpha / r_i instead of the model's alpha / r. The scale is
            taken into the factor that starts at zero, so that its gradient is multiplied by (r / r_i)^2.
    """

    reads_rank = True
    keeps_products = True

    lam: NonNegative = 0.0
    gamma: Annotated[float, Range("in (0, 1)", lambda x: 0 < x < 1)] = 0.99
    fixed_alpha: bool = False

    def __post_init__(self) -> None:
        if self.lam and self.fixed_alpha:
            raise ValueError(
                "LeadingRanks: a rank that shrinks would change the scale: set lam or fixed_alpha, not both"
            )
        if not self.lam:
            self._leave_out("Client")

    @property
    def needs(self) -> Needs:
        """A model with adapters."""
        return Needs(model="adapted", reads=("personalization",), plain_sgd=FIXED_ALPHA if self.fixed_alpha else "")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Directions remembered in rows that are cut off."""
        return remembers_directions(others, "cuts the factors to each client's rank")

    def init_client(self, w: Vector) -> OwnRanks:
        """Nothing: the ranks follow from the settings."""
        return OwnRanks(torch.empty(0, dtype=torch.int64))

    def begin(self, sent: None, kept: OwnRanks | None, start: Start) -> Ranked:
        """Cut the model to the client's ranks."""
        state = cut(start, None if kept is None else tuple(kept.ranks.tolist()))
        tails = self._tails(start.layout, start.w0, state.ranks) if self.lam else ()  # cut off behind them
        return state._replace(tails=tails)

    def active(self, step: Step) -> Tensor | None:
        """The leading rows and columns; all of the model if a client tunes it."""
        state = step.peer("personalization", Ranked)
        return None if step.tuning or state is None else state.mask

    def adjust(self, grad: Vector, state: Ranked, step: Step) -> Vector:
        """Add the gradient of the term, or scale that of the factor with the scale."""
        if self.fixed_alpha:
            scale_gradient(grad, step.layout, state.ranks)
        if not self.lam:
            return grad
        gradients, tensors = step.layout.split(grad), step.layout.split(step.w)
        for pair, rank in zip(find_pairs(step.layout), state.ranks, strict=True):
            (b, a), (gb, ga) = self._last(pair, tensors, rank), self._last(pair, gradients, rank)
            nb, na = torch.linalg.vector_norm(b), torch.linalg.vector_norm(a)
            gb.add_(b * (self.lam * na / nb.clamp(min=_LEAST)))  # zero where a norm is, without waiting for it
            ga.add_(a * (self.lam * nb / na.clamp(min=_LEAST)))
        return grad

    def finish(self, state: Ranked, end: End) -> tuple[None, OwnRanks]:
        """Drop the last ranks whose product has shrunk."""
        if not self.lam:
            return None, OwnRanks(torch.tensor(state.ranks))  # which is not kept
        after = self._tails(end.layout, end.w, state.ranks)
        changes = zip(state.ranks, state.tails, after, strict=True)
        ranks = [max(1, self._kept(rank)) if new < old else rank for rank, old, new in changes]
        return None, OwnRanks(torch.tensor(ranks, dtype=torch.int64))

    def _kept(self, rank: int) -> int:
        """How many ranks are left alone."""
        return int(self.gamma * rank)

    def _last(self, pair: Pair, tensors: list[Tensor], rank: int) -> tuple[Tensor, Tensor]:
        """The columns of B and the rows of A that may be dropped; views."""
        (b, a), k = pair.factors(tensors), self._kept(rank)
        return b[:, k:rank], a[k:rank]

    def _tails(self, layout: Layout, w: Vector, ranks: Ranks) -> tuple[float, ...]:
        """The product of the norms of these parts of every adapter."""
        tensors = layout.split(w)
        parts = [self._last(pair, tensors, rank) for pair, rank in zip(find_pairs(layout), ranks, strict=True)]
        return tuple(float(torch.linalg.vector_norm(b) * torch.linalg.vector_norm(a)) for b, a in parts)
