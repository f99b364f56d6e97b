"""FedSCAM's score of a client: how steep its loss is where it starts, and how well it follows the last global step."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import TypeVar

from undrift.blocks.drift.feddyn import FedDyn
from undrift.blocks.server_optimizer.server_sam import ServerSAM
from undrift.core import Array, Average, Block, ServerOptimizer, ServerView, Start, Vector, unit
from undrift.core.method.view import View
from undrift.core.records.types import UpT
from undrift.util.naming.ranges import Count, NonNegative

HeldT = TypeVar("HeldT", default=None)


class Compass(NamedTuple):
    """A sketch of the last global step, downhill; zero before the first."""

    u: Array


class Score(NamedTuple):
    """The mean norm of a client's gradients at the received model, and its cosine with the last global step."""

    h: float
    c: float


@dataclass(frozen=True, eq=False)
class Scored:
    """What a block holds that has scored the client."""

    score: Score


@dataclass(frozen=True)
class Scoring(Block[Compass, None, Compass, UpT, HeldT]):
    """client:  h_i = mean of ||g(w0)|| over the first batches;   v_i = -g(w0 + rho/2/(1 + alpha h_i) U(g(w0)))
             c_i = cos(Proj(v_i), u), 0 if u = 0;   steepness_i = h_i max(0, 1 - kappa c_i)
    server:  u <- Proj(U(delta))

    Args:
        kappa: how much agreement lowers the steepness; 0 leaves it out.
        batches: how many batches the score is computed on, the first ones of training, one epoch at most.
        length: how many numbers a sketch has; the cosine is off by about 1/sqrt(length).
    """

    kappa: NonNegative = field(default=0.5, kw_only=True)
    batches: Count = field(default=3, kw_only=True)
    length: Count = field(default=256, kw_only=True)

    @property
    def follows(self) -> bool:
        """Whether the agreement with the last global step counts."""
        return self.kappa > 0

    def refuses(self, others: Mapping[str, object]) -> str:
        """Blocks after which the global step is another than the mean displacement, whose direction u has."""
        for slot, other in others.items():
            turns = isinstance(other, FedDyn) or (
                isinstance(other, ServerOptimizer) and type(other) not in (ServerOptimizer, Average, ServerSAM)
            )
            if self.follows and turns:
                return (
                    f"compares clients with the mean displacement of the last round, but {slot}={type(other).__name__} "
                    "takes the global step in another direction; leave it out, or agreement: beta=0 and kappa=0"
                )
        return ""

    def init_server(self, w: Vector) -> Compass:
        """Zero: in round 0 all clients agree alike."""
        return Compass(torch.zeros(self.length, dtype=w.dtype))

    def receive(self, delta: Vector, up: UpT, view: ServerView[Compass]) -> tuple[Vector, Compass]:
        """The sketch of this round's step."""
        return delta, Compass(sketch(unit(view.mean), self.length).to(view.mean.dtype))

    def look(self, sent: Compass, start: Start, rho: float = 0.0, alpha: float = 0.0) -> Score:
        """Score the client at the model it received."""
        looked = list(islice(start.data("batches"), self.batches))
        first = start.gradient_at(start.w0, looked[0]).clone()
        others = [torch.linalg.vector_norm(start.gradient_at(start.w0, batch)) for batch in looked[1:]]
        norm, *norms = torch.stack([torch.linalg.vector_norm(first), *others]).tolist()
        h = (norm + sum(norms)) / len(looked)
        if rho > 0:
            first = start.gradient_at(start.w0 + unit(first) * (0.5 * rho / (1 + alpha * h)), looked[0])
        # The step u goes downhill, and so must the client's own.
        c = -float(unit(sketch(first, self.length)) @ unit(sent.u.cpu().double()))
        return Score(h, c)

    def steepness(self, score: Score) -> float:
        """The steepness of a score; whatever a client claims, it is not negative."""
        return max(0.0, score.h) * max(0.0, 1 - self.kappa * min(max(score.c, -1.0), 1.0))

    def report_score(self, score: Score, view: View) -> None:
        """Report a score."""
        view.report("steepness", self.steepness(score))
        view.report("agreement", score.c)


def sketch(v: Vector, length: int) -> Tensor:
    """A count sketch in double precision: Proj(v)_k is the sum of sign(j) v_j over all j with bucket(j) = k.

    It is linear and the same on every node and in every round; inner products keep their value on average.
    """
    buckets, signs = _hash_coordinates(len(v), length)
    return torch.zeros(length, dtype=torch.float64).index_add_(0, buckets, v.detach().cpu().double() * signs)


@lru_cache(maxsize=8)
def _hash_coordinates(size: int, length: int) -> tuple[Tensor, Tensor]:
    """The bucket and the sign of every coordinate, from a hash of its number (splitmix64): no generator to agree on."""
    x = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    signs = (x & np.uint64(1)).astype(np.int8) * 2 - 1
    return torch.from_numpy(((x >> np.uint64(1)) % np.uint64(length)).astype(np.int32)), torch.from_numpy(signs)
