"""FedEx-LoRA and FLoRA: what the averaged factors lack goes into the weight under the adapter."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import torch
from torch import Generator, Tensor

from undrift.blocks.personalization.factors import check_scale, overlaps, remembers_directions
from undrift.blocks.personalization.ranks import FIXED_ALPHA, Ranked, cut, scale_gradient
from undrift.blocks.release.cross_products import CrossProducts
from undrift.core import Average, Layout, Needs, Personalization, ServerView, Start, Step, Summing, Vector
from undrift.core.model.pairs import Pair, find_pairs, mask_of, write_pairs
from undrift.util.naming.ranges import Positive


@lru_cache(maxsize=64)
def _mask_trained(layout: Layout) -> Tensor:
    """A boolean vector: false on the weights under adapters, all of which must travel."""
    missing = [pair.layer for pair in find_pairs(layout) if pair.base is None]
    if missing:
        raise ValueError(
            f"Folded: the weight under {missing[0]} does not travel; call undrift.models.open_base(model) where the "
            "model is made"
        )
    return ~mask_of(layout, "base")


@dataclass(frozen=True)
class Folded(Personalization[None, None, None, None, Ranked | None]):
    """client:  the base W does not move
    server:  W <- W + s E,  E = sum_i p_i dB_i dA_i - dB dA, where dB and dA are the means of the displacements
             restart:   W <- W + s sum_i p_i B_i A_i instead, then A random and B zero

    With `restart` a client of rank r_i, as `Local.rank` gives it, trains the first r_i rows of A and columns of B, and
    the others are zero in its product. The weight under every adapter is part of the model, so that its versions are
    kept, sent and resumed with it.

    Args:
        scale: s, alpha / r of every adapter; a client whose model has another one stops with an error.
        restart: fold the whole product and begin with new factors in every round.
        fixed_alpha: every client's adapter has the scale alpha / r_i instead of s, which is that of the model's rank.
    """

    reports = ("product_error",)

    scale: Positive = 1.0
    restart: bool = False
    fixed_alpha: bool = False

    def __post_init__(self) -> None:
        if self.fixed_alpha and not self.restart:
            raise ValueError("Folded: fixed_alpha is for clients of several ranks, which need restart=True")

    @property
    def needs(self) -> Needs:
        """A model with adapters whose base travels."""
        scaled = FIXED_ALPHA if self.fixed_alpha else ""
        return Needs(model="foldable", reads=("personalization",), plain_sgd=scaled)

    @property
    def reads_rank(self) -> bool:
        """With new factors in every round."""
        return self.restart

    def refuses(self, others: Mapping[str, object]) -> str:
        """Uploads without the products, and what remembers directions of factors that are thrown away."""
        if not isinstance(others["release"], CrossProducts):
            return f"needs release=CrossProducts(), found {others['release']!r}; use fedex-lora or flora"
        if getattr(type(others["aggregation"]), "mean", None) is not Summing.mean:
            return f"needs a weighted mean, found aggregation={others['aggregation']!r}; use uniform or by-examples"
        if not self.restart:
            return overlaps(others, "adds up products of displacements")
        why = "begins with new factors in every round"
        if others["server_optimizer"] != Average():
            return f"{why}, and server_optimizer={others['server_optimizer']!r} moves them; leave it out"
        return remembers_directions(others, why)

    def begin(self, sent: None, kept: None, start: Start) -> Ranked | None:
        """Compare the scale with the model's, and cut the model to the client's rank."""
        check_scale(self.scale, start, find_pairs(start.layout))
        return cut(start) if self.restart and "rank" in start.attributes else None

    def active(self, step: Step) -> Tensor:
        """All but the base, and of the factors the client's part."""
        state = step.peer("personalization", Ranked)
        trained = _mask_trained(step.layout)
        return trained if state is None else trained.to(state.mask.device) & state.mask

    def adjust(self, grad: Vector, state: Ranked | None, step: Step) -> Vector:
        """Scale the gradient of the factor that has the scale."""
        if self.fixed_alpha and state is not None:
            scale_gradient(grad, step.layout, state.ranks)
        return grad

    def receive(self, delta: Vector, up: None, view: ServerView[None]) -> tuple[Vector, None]:
        """Fold into the base; the rest moves as the blocks before have it."""
        layout, errors, values = view.layout, list[float](), dict[int, Tensor]()
        starts, means, olds = (layout.split(v) for v in (view.w0, view.mean, view.params))
        draw = view.random("new factors")
        for pair in find_pairs(layout):
            assert pair.base is not None  # held by `active`
            (b, a), (db, da) = ([x.double() for x in pair.factors(v)] for v in (starts, means))
            missing = pair.stored(means[pair.base].flatten(1)).double() - db @ da
            whole = (b + db) @ (a + da) + missing
            errors.append(float(torch.linalg.matrix_norm(missing) / torch.linalg.matrix_norm(whole).clamp(min=1e-30)))
            folded = self.scale * pair.stored(whole if self.restart else missing)
            values[pair.base] = folded.reshape(layout.shapes[pair.base])
            if self.restart:
                old = olds[pair.other]
                values |= {pair.zero: -olds[pair.zero], pair.other: _fresh(pair, old, draw) - old}
        view.report("product_error", errors)
        return write_pairs(layout, delta, values), None


def _fresh(pair: Pair, like: Tensor, draw: Generator) -> Tensor:
    """New values of a random factor, by peft's rule: uniform, of an embedding normal."""
    new = torch.empty(like.shape, dtype=torch.float64)
    if pair.zero == pair.a:
        return new.normal_(generator=draw)
    limit = 1 / sqrt(like[0].numel())
    return new.uniform_(-limit, limit, generator=draw)
