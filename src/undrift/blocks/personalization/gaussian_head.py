"""pFedFDA's heads: the discriminant of Gaussians, one for each class, that clients and server estimate together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from undrift.blocks.class_features import (
    count_labels,
    features_at,
    refuses_fixed,
    refuses_samples,
    rows_of,
    sums_by_class,
)
from undrift.blocks.objective.contrast import last_linear
from undrift.blocks.personalization.part import others as all_but
from undrift.blocks.personalization.private import Own, Private
from undrift.core import Array, End, Layout, Needs, Personalization, ServerView, Start, Step, Vector
from undrift.util.naming.ranges import Positive, Range

LEAST = 1e-4
"""What is added to the frequencies of classes, and the share of its mean variance that a covariance takes over."""

FEW = 2
"""A class with so many examples or fewer has the global mean."""

GRID, EQUAL = 20, 1e-9
"""beta is the smallest of the best of 0, 1/20, ..., 1, whose losses differ by so much at most."""


class ClassStatistics(NamedTuple):
    """The mean features of every class, row by row, their covariance, and of how many examples; uploads are times them.

    On the server they are empty before the first round.
    """

    means: Array
    covariance: Array
    examples: float


class Gaussians(NamedTuple):
    """The same as matrices in double precision, on the host."""

    means: Tensor
    covariance: Tensor


class _Fitting(NamedTuple):
    """The name of the features, the global Gaussians and the logarithms of the client's class frequencies."""

    layer: str
    known: Gaussians
    log_priors: Tensor


def discriminant(known: Gaussians, log_priors: Tensor) -> tuple[Tensor, Tensor]:
    """The weights and the biases of the linear head that is the posterior of the classes, up to a constant.

    The covariance S is replaced by (1 - e) S + e tr(S)/d I with e = 1e-4.

    Args:
        known: the Gaussians.
        log_priors: the logarithm of each class's probability.

    Example:
        >>> known = Gaussians(torch.tensor([[1.0, 0.0], [0.0, 2.0]]).double(), torch.eye(2).double())
        >>> [x.tolist() for x in discriminant(known, torch.zeros(2).double())]
        [[[1.0, 0.0], [0.0, 2.0]], [-0.5, -2.0]]
    """
    means, covariance = known
    spread = covariance.diagonal().mean() * torch.eye(len(covariance), dtype=covariance.dtype)
    weights = torch.linalg.solve((1 - LEAST) * covariance + LEAST * spread, means.T).T
    return weights, log_priors - (means * weights).sum(dim=1) / 2


def estimate(features: Tensor, labels: Tensor, known: Gaussians, ridge: float) -> Gaussians:
    """The Gaussians of a client's features; a class with few examples has the mean that is known.

    Args:
        features: one row per example, in double precision.
        labels: their classes.
        known: the global Gaussians.
        ridge: what is added to the diagonal of the covariance.
    """
    sums, counts = sums_by_class(features, labels, len(known.means))
    means = torch.where(counts[:, None] > FEW, sums / counts.clamp(min=1.0)[:, None], known.means)
    away = features - means[labels]
    covariance = away.T @ away / max(len(features) - 1, 1)
    return Gaussians(means, covariance + ridge * torch.eye(len(covariance), dtype=covariance.dtype))


def mix(own: Gaussians, known: Gaussians, beta: float) -> Gaussians:
    """beta of a client's Gaussians and 1 - beta of the global ones.

    Args:
        own: the client's.
        known: the global ones.
        beta: the client's share.
    """
    return Gaussians(*(beta * x + (1 - beta) * y for x, y in zip(own, known, strict=True)))


def best_share(features: Tensor, labels: Tensor, known: Gaussians, log_priors: Tensor, ridge: float) -> float:
    """The beta whose heads, from one half of a client's examples, have the least cross entropy on the other half.

    Of every class the examples go into the halves in turn; a class with one is left out. 0 if none is left.

    Args:
        features: one row per example, in double precision.
        labels: their classes.
        known: the global Gaussians.
        log_priors: the logarithm of each class's probability.
        ridge: see `estimate`.
    """
    place = torch.empty_like(labels)
    for c in labels.unique():
        place[labels == c] = torch.arange(int((labels == c).sum()))
    kept = torch.bincount(labels)[labels] > 1
    halves = [(kept & (place % 2 == side), kept & (place % 2 != side)) for side in (0, 1)]
    if not bool(kept.any()):
        return 0.0
    owns = [estimate(features[fit], labels[fit], known, ridge) for fit, _ in halves]
    losses = []
    for k in range(GRID + 1):
        loss = 0.0
        for own, (_, rest) in zip(owns, halves, strict=True):
            weights, biases = discriminant(mix(own, known, k / GRID), log_priors)
            loss += float(cross_entropy(features[rest] @ weights.T + biases, labels[rest]))
        losses.append(loss)
    return next(k for k, loss in enumerate(losses) if loss <= min(losses) + EQUAL) / GRID


def _set_head(model: Vector, layout: Layout, known: Gaussians, log_priors: Tensor) -> Vector:
    """A model with the head of Gaussians."""
    out = model.clone()
    rows, numbers = rows_of(out, layout, "GaussianHead")
    weights, biases = discriminant(known, log_priors)
    rows.copy_(weights)
    numbers.copy_(biases)
    return out


@dataclass(frozen=True)
class GaussianHead(Personalization[ClassStatistics, Own, ClassStatistics, ClassStatistics, _Fitting]):
    """client:  trains the body under the fixed head of the global mu, S:  A = S^-1 mu, b_c = log pi_ic - mu_c^T A_c / 2
             at the end mu_i, S_i from its features;   mu_i <- beta mu_i + (1 - beta) mu, S_i likewise
             uploads both, and keeps their head, with which it is evaluated
    server:  mu <- sum_i n_i/n mu_i;   S <- sum_i n_i/n S_i;   its own head is theirs with equal pi

    mu_c are the mean features of class c, S their covariance around these, pi_ic the client's class frequencies, each
    plus 1e-4. S_i has `ridge` added to its diagonal. The features are those of the trained model. beta is the best of
    0, 1/20, ..., 1 by cross entropy, each half of the client's examples judged by the other half. Before the first
    round mu is random in [0, 1] and S is I.

    Args:
        beta: the client's share of its Gaussians; None lets each client choose.
        ridge: what is added to the diagonal of a client's covariance, in units of squared features.
    """

    needs = Needs(labels=True)
    personalizes = True
    reports = ("beta",)

    beta: Annotated[float | None, Range("in [0, 1], or None to choose it", lambda x: x is None or 0 <= x <= 1)] = None
    ridge: Positive = 1.0

    def refuses(self, others: Mapping[str, object]) -> str:
        """What a private part refuses; several features per example; a classifier that is fixed."""
        return Private("last").refuses(others) or refuses_samples(others) or refuses_fixed(others)

    def init_server(self, w: Vector) -> ClassStatistics:
        """Nothing is known yet."""
        return ClassStatistics(w.new_empty(0), w.new_empty(0), 0.0)

    def init_client(self, w: Vector) -> Own:
        """No head."""
        return Own(w.new_empty(0))

    def send(self, view: ServerView[ClassStatistics]) -> ClassStatistics:
        """The statistics; before the first round random means and a covariance of I."""
        if view.state.examples:
            return view.state
        rows, _ = rows_of(view.params, view.layout, "GaussianHead")
        means = torch.rand(rows.shape, generator=view.random("means"), dtype=torch.float64)
        return ClassStatistics(means.flatten().to(rows), torch.eye(rows.shape[1]).flatten().to(rows), 0.0)

    def shared(self, layout: Layout) -> Tensor | None:
        """Everything but the head."""
        return Private("last").shared(layout)

    def start(self, params: Vector, kept: Own, layout: Layout) -> Vector:
        """The shared model with the client's head of its last round."""
        return Private("last").start(params, kept, layout)

    def active(self, step: Step) -> Tensor | None:
        """In training everything but the head."""
        return all_but("GaussianHead", "last", step.layout)

    def begin(self, sent: ClassStatistics, kept: Own, start: Start) -> _Fitting:
        """Take the first step under the head of the global Gaussians."""
        rows, _ = rows_of(start.w0, start.layout, "GaussianHead")
        found = count_labels(start, "GaussianHead")
        counts = torch.zeros(len(rows), dtype=torch.float64)
        counts[: len(found)] = found.cpu().double()
        frequencies = counts / counts.sum() + LEAST
        log_priors = (frequencies / frequencies.sum()).log()
        state = _Fitting(start.tap(last_linear(start.module), inputs=True), _matrices(sent, rows.shape[1]), log_priors)
        start.begin_at(_set_head(start.w0, start.layout, state.known, log_priors))
        return state

    def finish(self, state: _Fitting, end: End) -> tuple[ClassStatistics, Own]:
        """Estimate the Gaussians, mix in the global ones, and keep their head."""
        layer, known, log_priors = state
        features, labels = features_at(end.w, layer, end, "gaussians")
        beta = self.beta
        if beta is None:
            beta = best_share(features, labels, known, log_priors, self.ridge)
        end.report("beta", beta)
        mixed = mix(estimate(features, labels, known, self.ridge), known, beta)
        means, covariance = ((end.examples * x).flatten().to(end.w) for x in mixed)
        head = _set_head(end.w, end.layout, mixed, log_priors)[end.layout.layers[-1]]
        return ClassStatistics(means, covariance, float(end.examples)), Own(head.clone())

    def receive(
        self, delta: Vector, up: ClassStatistics, view: ServerView[ClassStatistics]
    ) -> tuple[Vector, ClassStatistics]:
        """The means by examples, and their head for the global model."""
        new = ClassStatistics(up.means / up.examples, up.covariance / up.examples, up.examples)
        rows, _ = rows_of(view.params, view.layout, "GaussianHead")
        known = _matrices(new, rows.shape[1])
        headed = _set_head(view.params, view.layout, known, torch.zeros(len(rows), dtype=torch.float64))
        last, moved = view.layout.layers[-1], delta.clone()
        moved[last] = headed[last] - view.params[last]
        return moved, new


def _matrices(known: ClassStatistics, dimension: int) -> Gaussians:
    """Statistics as matrices, in double precision on the host."""
    means, covariance = (x.detach().cpu().double().view(-1, dimension) for x in (known.means, known.covariance))
    return Gaussians(means, covariance)
