"""FSA: a larger radius for the layers that local training changes most."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan, prod
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.perturbation.sam import SAM, _First
from undrift.core import Array, End, Layout, Perturbation, Start, Step, Vector
from undrift.core.model.flat_model import double
from undrift.util.naming.ranges import NonNegative, Share, Whole

CHOICES = ("largest", "smallest", "random")
MEASURES = ("normalized", "raw", "sum")


class Top(NamedTuple):
    """The tensors a client perturbs more, by their place in the layout; none before its first round ends."""

    tensors: Array


class _Radii(NamedTuple):
    """The radius of every coordinate in a round, and what SAM keeps within a step."""

    rho: Vector
    first: _First


@dataclass(frozen=True)
class FSA(Perturbation[None, Top, None, None, _Radii]):
    """client:  offset_k = rho_k g1_k / ||g1||, ||g1|| over the whole model; rho_k = larger on the tensors k in Top_i
             at the end Top_i <- the count tensors with the largest s_k
             s_k = mean_j (mm(w_k) - mm(w0_k))_j^2, mm(u) = (u - min u)/(max u - min u)
             raw: s_k = mean_j (w_k - w0_k)_j^2;   sum: s_k = ||w_k - w0_k||^2

    In a composition it replaces the SAM of a host and takes over its rho and blend, unless the term gives its own: only
    the radius of the tensors in Top_i changes. Chosen are weights of convolutions and linear maps, none of a shortcut.

    Args:
        rho: the radius of most tensors.
        larger: the radius of the tensors in Top_i; rho gives SAM.
        count: how many tensors Top_i holds, at most all that may be chosen; 0 gives SAM.
        choice: "largest" changes, or "smallest" (zeros left out) or "random" tensors, the paper's ablations.
        measure: "normalized", the mean of the released code; "sum", the paper's equations 8 to 11, which prefers large
            tensors; or "raw", the mean that does not.
        blend: share of the gradient at the perturbed point; 1 is SAM.
    """

    extends = (SAM,)
    reports = ("chosen_share", "chosen/*")

    rho: NonNegative = 0.1
    larger: NonNegative = 0.2
    count: Whole = 2
    choice: str = "largest"
    measure: str = "normalized"
    blend: Share = 1.0

    def __post_init__(self) -> None:
        for name, known in (("choice", CHOICES), ("measure", MEASURES)):
            if getattr(self, name) not in known:
                raise ValueError(f"FSA: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")

    @property
    def gradients(self) -> int:
        """One more, unless all radii are zero."""
        return int(self.rho > 0 or (self.larger > 0 and self.count > 0))

    @property
    def _along(self) -> SAM:
        """The direction, of length one."""
        return SAM(1.0, self.blend)

    def init_client(self, w: Vector) -> Top:
        """None: the first round has one radius."""
        return Top(torch.empty(0, dtype=torch.int64))

    def begin(self, sent: None, kept: Top, start: Start) -> _Radii:
        """The radii of the round."""
        rho = torch.full_like(start.w0, self.rho)
        tensors = start.layout.split(rho)
        for k in kept.tensors.tolist():
            tensors[k].fill_(self.larger)
        return _Radii(rho, self._along.begin(None, None, start))

    def perturb(self, state: _Radii, step: Step) -> Vector | None:
        """The gradient at `w`, each tensor scaled to its radius."""
        if not self.gradients:
            return None
        offset = self._along.perturb(state.first, step)
        assert offset is not None
        return offset.mul_(state.rho)

    def adjust(self, grad: Vector, state: _Radii, step: Step) -> Vector:
        """The gradient at the perturbed point, or its mixture with the one at `w`."""
        return self._along.adjust(grad, state.first, step) if self.gradients else grad

    def finish(self, state: _Radii, end: End) -> tuple[None, Top]:
        """Choose the tensors of the client's next round."""
        places = eligible(end.layout)
        if self.choice == "random":
            scores = torch.rand(len(places), generator=end.random("fsa")).tolist()
        else:
            pairs = zip(end.layout.split(end.w0), end.layout.split(end.w), strict=True)
            changes = [pair for i, pair in enumerate(pairs) if i in places]
            scores = [sensitivity(before, after, self.measure) for before, after in changes]
        chosen = [places[i] for i in rank_scores(scores, smallest=self.choice == "smallest")[: self.count]]
        end.report("chosen_share", sum(prod(end.layout.shapes[k]) for k in chosen) / end.layout.size)
        for k in places:
            end.report(f"chosen/{end.layout.names[k]}", float(k in chosen))
        return None, Top(torch.tensor(chosen, dtype=torch.int64))


def sensitivity(before: Tensor, after: Tensor, measure: str = "normalized") -> float:
    """How much a tensor has changed, a number for each measure of `FSA`.

    A tensor whose values are all alike cannot be scaled; its change is not a number.
    """
    old, new = (_scale(double(x)) if measure == "normalized" else double(x) for x in (before, after))
    squares = (new - old).square()
    return float(squares.sum() if measure == "sum" else squares.mean())


def _scale(x: Tensor) -> Tensor:
    """The values of a tensor, from zero for the smallest to one for the largest."""
    return (x - x.min()) / (x.max() - x.min())


def rank_scores(scores: Sequence[float], *, smallest: bool = False) -> list[int]:
    """The places of the scores, largest first or smallest first without zeros; ties in order, NaN last."""
    places = [i for i, score in enumerate(scores) if not (smallest and score == 0)]
    sign = 1 if smallest else -1
    return sorted(places, key=lambda i: float("inf") if isnan(scores[i]) else sign * scores[i])


@lru_cache(maxsize=64)
def eligible(layout: Layout) -> tuple[int, ...]:
    """The tensors that may be chosen: weights of two axes or more, none of a norm, an embedding or a shortcut."""
    owners = layout.owners or ("",) * len(layout.names)
    tensors = enumerate(zip(layout.names, layout.shapes, owners, strict=True))
    return tuple(
        i
        for i, (name, shape, owner) in tensors
        if "weight" in name.rpartition(".")[2]
        and len(shape) >= 2
        and not any(word in owner for word in ("Norm", "Embedding"))
        and not any(word in name for word in ("downsample", "shortcut"))
    )
