"""FedSCAM's weights: less for steep clients, more for those that follow the last global step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from undrift.blocks.score import Compass, Score, Scored, Scoring, sketch
from undrift.core import End, Gathering, Needs, ServerView, Start, Summing, Upload, Vector, unit
from undrift.util.naming.ranges import NonNegative, Range, Share


@dataclass(frozen=True)
class _Scored(Scoring[Score, Score]):
    """Weights from scores, however the displacements are then combined.

    A score that the perturbation has taken is used as it is.
    """

    needs = Needs(reads=("perturbation",))  # a perturbation may have taken the score
    reports = ("weight", "steepness", "agreement")

    gamma: NonNegative = 1.0
    beta: NonNegative = 0.8

    @property
    def follows(self) -> bool:
        """In the weight itself, or through the steepness."""
        return self.beta > 0 or (self.gamma > 0 and self.kappa > 0)

    def begin(self, sent: Compass, kept: None, start: Start) -> Score:
        """The score the perturbation has taken and reported, or one of its own."""
        known = start.peer("perturbation", Scored)
        if known is not None:
            return known.score
        score = self.look(sent, start)
        self.report_score(score, start)
        return score

    def finish(self, state: Score, end: End) -> tuple[Score, None]:
        """The score."""
        return state, None

    def dampened(self, examples: int, score: Score) -> float:
        """The weight; a claimed score can make it 1 + beta times the number of examples at most."""
        follows = max(0.0, 1 + self.beta * min(max(score.c, -1.0), 1.0))
        return examples * follows / (1 + self.gamma * self.steepness(score))


@dataclass(frozen=True)
class ByScore(_Scored, Summing[Compass, None, Compass, Score, Score]):
    """server:  delta = sum_i S_i delta_i / sum_i S_i;   S_i = n_i / (1 + gamma steepness_i) max(0, 1 + beta c_i)
             if all S_i are zero, the number of examples n_i weighs.   Steepness and c_i: see Scoring.

    A score that the perturbation has taken is used as it is.

    Args:
        gamma: how much steepness lowers the weight; 0 leaves it out.
        beta: how much agreement with the last global step raises it; 0 leaves it out.
        kappa: how much agreement lowers the steepness; 0 leaves it out.
        batches: how many batches the score is computed on, the first ones of training, one epoch at most.
        length: how many numbers a sketch has.
    """

    extra = ("examples",)

    def weigh(self, upload: Upload, up: Score, age: int) -> Mapping[str, float]:
        """The weight of the score; the number of examples, in case all weights are zero."""
        return {"": self.dampened(upload.examples, up), "examples": float(upload.examples)}

    def check(self, up: Score, examples: int, weights: Mapping[str, float]) -> None:
        """The further weight is the number of examples."""
        if weights["examples"] != examples:
            raise ValueError(f"ByScore: {weights['examples']:.6g} examples in the sum, {examples} stated")

    def mean(self, up: Score, view: ServerView[Compass]) -> Vector:
        """The mean by score, or by examples if no client has a weight."""
        if view.weight == 0:
            return view.weighted_by("examples") / view.scalar("examples")
        return view.weighted / view.weight


@dataclass(frozen=True)
class Dampened(_Scored, Gathering[Compass, None, Compass, Score, Score]):
    """server:  delta = sum_i S_i m_i delta_i / sum_i S_i, S_i as ByScore;   m_i = damp or 1
             z_i = U(Proj(delta_i)) is put into clusters by k-means; of every pair in a cluster with <z_i, z_j> < 0
             the shorter delta_i has m_i = damp, once (a tie: the larger client number); nothing is renormalised

    Args:
        gamma: how much steepness lowers the weight; 0 leaves it out.
        beta: how much agreement with the last global step raises it; 0 leaves it out.
        clusters: how many clusters there are, at most as many as uploads.
        damp: the factor on a dampened displacement; 1 gives ByScore.
        kappa: how much agreement lowers the steepness; 0 leaves it out.
        batches: how many batches the score is computed on, the first ones of training, one epoch at most.
        length: how many numbers a sketch has.
    """

    clusters: Annotated[int, Range("a whole number of 1 or more", lambda x: x >= 1, "; ByScore dampens nothing")] = 2
    damp: Share = 0.5

    def weigh(self, upload: Upload, up: Score, age: int) -> float:
        """The weight of the score."""
        return self.dampened(upload.examples, up)

    def gather(
        self, uploads: Sequence[Upload], ups: Sequence[Score], view: ServerView[Compass]
    ) -> tuple[Vector, Compass]:
        """The mean by score of the displacements, those in conflict dampened."""
        weights = [self.weigh(upload, up, 0) for upload, up in zip(uploads, ups, strict=True)]
        if sum(weights) == 0:
            weights = [float(upload.examples) for upload in uploads]
        view.report("weight", [weight / sum(weights) for weight in weights])
        directions = torch.stack([unit(sketch(upload.delta, self.length)) for upload in uploads])
        norms = [float(torch.linalg.vector_norm(upload.delta)) for upload in uploads]
        total = torch.zeros_like(view.w0, dtype=torch.float64)
        for upload, weight, lost in zip(uploads, weights, losers(directions, norms, self.clusters), strict=True):
            total.add_(upload.delta, alpha=weight / sum(weights) * (self.damp if lost else 1.0))
        return total, view.state


def losers(directions: Tensor, norms: Sequence[float], clusters: int) -> list[bool]:
    """Who is the shorter one, or at a tie the later one, of a pair in one cluster that points apart.

    Args:
        directions: one unit vector per row.
        norms: how long each displacement is.
        clusters: how many clusters there are.
    """
    labels, cosines = cluster(directions, clusters), directions @ directions.T
    together = labels.unsqueeze(0) == labels.unsqueeze(1)
    apart = together & (cosines < 0)
    order = {i: rank for rank, i in enumerate(sorted(range(len(norms)), key=lambda i: (-norms[i], i)))}
    return [any(bool(apart[i, j]) and order[j] < order[i] for j in range(len(norms))) for i in range(len(norms))]


def cluster(points: Tensor, count: int) -> Tensor:
    """The number of each point's cluster by k-means, from centres chosen with a fixed seed; an empty one stays."""
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))
    centres = points[order[:count]].clone()
    labels = torch.full((len(points),), -1)
    for _ in range(100):
        nearest = torch.cdist(points, centres).argmin(dim=1)
        if torch.equal(nearest, labels):
            break
        labels = nearest
        for k in range(len(centres)):
            if bool((labels == k).any()):
                centres[k] = points[labels == k].mean(dim=0)
    return labels
