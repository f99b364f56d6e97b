"""Adapters whose factors stay and whose cores train: Fed-SB and Ravan."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from undrift.blocks.personalization.factors import check_scale, overlaps
from undrift.blocks.release.scaled_cores import ScaledCores
from undrift.core import Layout, Needs, Personalization, ServerView, Start, Step, Vector
from undrift.core.model.pairs import align_signs, find_pairs, mask_of, write_pairs
from undrift.util.naming.ranges import Positive


@lru_cache(maxsize=64)
def _all_but(layout: Layout, *roles: str) -> Tensor:
    """A boolean vector: false on the factors or weights of some roles."""
    out = torch.ones(layout.size, dtype=torch.bool)
    for role in roles:
        out &= ~mask_of(layout, role, cores=True)
    return out


@dataclass(frozen=True)
class Cores(Personalization):
    """client:  C_h and s_h of every adapter move, A_h and B_h stay; heads of the model move
    server:  the factors are bit for bit what they were, s_h = 1
    """

    needs = Needs(model="headed")

    def refuses(self, others: Mapping[str, object]) -> str:
        """Uploads without the scales."""
        if isinstance(others["release"], ScaledCores):
            return ""
        return f"needs release=ScaledCores(), found {others['release']!r}; use ravan"

    def shared(self, layout: Layout) -> Tensor:
        """All but the scales, which begin at one in every round."""
        return _all_but(layout, "scales")

    def active(self, step: Step) -> Tensor:
        """The cores and the scales, and all that is no adapter."""
        return _all_but(step.layout, "a", "b", "base")

    def travels(self, layout: Layout, round: int, *, up: bool) -> Tensor:
        """The cores, and all that is no adapter."""
        return _all_but(layout, "a", "b", "base", "scales")

    def receive(self, delta: Vector, up: None, view: ServerView[None]) -> tuple[Vector, None]:
        """Nothing moves the factors."""
        return torch.where(_all_but(view.layout, "a", "b", "base", "scales").to(delta.device), delta, 0.0), None


@dataclass(frozen=True)
class CoreOfUpdate(Personalization):
    """client:  round 0: the weight W under every adapter moves;   later: its core C alone;   heads move in all rounds
    server:  round 0: U S V^T = the mean displacement of W, largest first;   B <- U_r,  A <- V_r^T,  C <- S_r / s
             later: B and A are bit for bit what they were;   W never changes

    Args:
        scale: s, alpha / r of every adapter; a client whose model has another one stops with an error.
    """

    needs = Needs(model="cored")  # a model with a core between the factors, whose base travels

    scale: Positive = 1.0

    def refuses(self, others: Mapping[str, object]) -> str:
        """Uploads that start from several models."""
        return overlaps(others, "decomposes the update of the first round")

    def begin(self, sent: None, kept: None, start: Start) -> None:
        """Compare the scale with the model's."""
        check_scale(self.scale, start, find_pairs(start.layout, cores=True))

    def moving(self, layout: Layout, round: int) -> Tensor:
        """A boolean vector: true where the model moves in a round."""
        missing = [pair.layer for pair in find_pairs(layout, cores=True) if pair.base is None]
        if missing:
            raise ValueError(
                f"CoreOfUpdate: the weight under {missing[0]} does not travel; call undrift.models.open_base(model) "
                "where the model is made"
            )
        return _all_but(layout, "a", "b", "scales", "base" if round else "core")

    def active(self, step: Step) -> Tensor:
        """The base in the first round, then the core; all that is no adapter."""
        return self.moving(step.layout, step.round)

    def travels(self, layout: Layout, round: int, *, up: bool) -> Tensor:
        """What moved; in round 1 a client receives all that the decomposition gave."""
        if up or round != 1:
            return self.moving(layout, round if up else max(round, 1))
        return _all_but(layout, "base", "scales")

    def receive(self, delta: Vector, up: None, view: ServerView[None]) -> tuple[Vector, None]:
        """The decomposition, or nothing that moves the factors."""
        layout = view.layout
        delta = torch.where(self.moving(layout, view.round).to(delta.device), delta, 0.0)
        if view.round:
            return delta, None
        means, olds, values = layout.split(view.mean), layout.split(view.params), dict[int, Tensor]()
        for pair in find_pairs(layout, cores=True):
            assert pair.base is not None and pair.core is not None  # held by `moving`
            u, s, v = torch.linalg.svd(pair.stored(means[pair.base].flatten(1)).double(), full_matrices=False)
            u, v = align_signs(u, v)
            b, a = (x.double().clone() for x in pair.factors(olds))
            k = min(len(s), len(a))
            b[:, :k], a[:k] = u[:, :k], v[:k]
            core = torch.zeros(len(a), dtype=s.dtype, device=s.device)
            core[:k] = s[:k] / self.scale
            blocks = torch.diag_embed(core.reshape(layout.shapes[pair.core][:2]))
            values |= {pair.base: torch.zeros_like(means[pair.base]), pair.core: blocks - olds[pair.core]}
            values |= {pair.b: b - pair.factors(olds)[0], pair.a: a - pair.factors(olds)[1]}
        return write_pairs(layout, delta, values), None
