"""FedPAC's heads: each client begins with the combination of all heads that fits its own features best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.aggregation.rows import mean
from undrift.blocks.class_features import features_at, refuses_fixed, refuses_samples, rows_of, sums_by_class
from undrift.blocks.objective.contrast import last_linear
from undrift.blocks.personalization.adaptive import reads_steps
from undrift.blocks.personalization.gaussian_head import GaussianHead
from undrift.core import Array, End, Gathering, Layout, Needs, ServerView, Start, Synchronous, Upload, Vector


class HeadSpread(NamedTuple):
    """A client's class means times their frequencies, laid out as the head, and the variance of their sum."""

    v: Vector
    variance: float


class HeadChoice(NamedTuple):
    """The heads of the last cohort, one row each, with their clients' class means and variances."""

    heads: Array
    means: Array
    variances: Array


class Candidate(NamedTuple):
    """The head a client last trained, its class means and their variance; empty before its first round."""

    head: Array
    means: Array
    variance: float


@dataclass(frozen=True)
class CombinedHeads(Gathering[HeadChoice, Candidate, HeadChoice, HeadSpread, HeadSpread]):
    """client:  h_ic = pi_ic mu_ic, its class means at the received model times their frequencies
             v_i = 1/n_i (sum_c pi_ic E_c ||z||^2 - ||h_i||^2);   upload both with the trained model
    server:  keeps the cohort's heads H_j with h_j and v_j;   w <- w + sum_i n_i/n delta_i
    client:  its next round begins at the head sum_j a_j H_j,
             a = argmin a^T (diag(v) + D) a, a >= 0, sum_j a_j = 1,   D_jk = sum_c <h_ic - h_jc, h_ic - h_kc>

    h_i and H_i are those of its last round, and join the cohort's if it was not among them; in its first round h_i is
    new. A client is evaluated with the head it last trained.
    """

    needs = Needs(labels=True)
    personalizes = True

    def refuses(self, others: Mapping[str, object]) -> str:
        """Readers of gradient steps; heads of several versions, or that are computed; several features per example."""
        schedule = others["schedule"]
        if isinstance(schedule, Synchronous) and schedule.overlaps:
            return f"compares features of one round, found schedule={schedule!r}; use fedper"
        if isinstance(others["personalization"], GaussianHead):
            return f"combines trained heads, found personalization={others['personalization']!r}; use one of them"
        return refuses_samples(others) or refuses_fixed(others) or reads_steps(others, "begins with a combined head")

    def init_server(self, w: Vector) -> HeadChoice:
        """No heads."""
        return HeadChoice(w.new_empty(0, 0), w.new_empty(0, 0), w.new_empty(0))

    def init_client(self, w: Vector) -> Candidate:
        """No head."""
        return Candidate(w.new_empty(0), w.new_empty(0), 0.0)

    def begin(self, sent: HeadChoice, kept: Candidate, start: Start) -> HeadSpread:
        """Measure the features, and take the first step at the combined head."""
        layer = start.tap(last_linear(start.module), inputs=True)
        own = torch.zeros_like(start.w0)
        rows, _ = rows_of(own, start.layout, "CombinedHeads")
        features, labels = features_at(start.w0, layer, start, "features")
        sums, _ = sums_by_class(features, labels, len(rows))
        h = sums / len(labels)
        rows.copy_(h)
        variance = (features.square().sum() / len(labels) - h.square().sum()) / len(labels)
        if len(sent.heads):
            begun, last = start.w0.clone(), start.layout.layers[-1]
            begun[last] = _combine(sent, kept, rows.flatten())
            start.begin_at(begun)
        return HeadSpread(own, max(0.0, float(variance)))

    def finish(self, state: HeadSpread, end: End) -> tuple[HeadSpread, Candidate]:
        """Upload what was measured, and keep it with the head."""
        rows, _ = rows_of(state.v, end.layout, "CombinedHeads")
        return state, Candidate(end.w[end.layout.layers[-1]].clone(), rows.flatten(), state.variance)

    def weigh(self, upload: Upload, up: HeadSpread, age: int) -> float:
        """The number of examples; an impossible variance is rejected."""
        if up.variance < 0:
            raise ValueError(f"CombinedHeads: a variance is 0 or more, got {up.variance}")
        return float(upload.examples)

    def gather(
        self, uploads: Sequence[Upload], ups: Sequence[HeadSpread], view: ServerView[HeadChoice]
    ) -> tuple[Vector, HeadChoice]:
        """The mean by examples; every head is kept."""
        last = view.layout.layers[-1]
        heads = torch.stack([view.w0[last] + upload.delta[last] for upload in uploads])
        means = torch.stack([rows_of(up.v, view.layout, "CombinedHeads")[0].flatten() for up in ups])
        variances = torch.tensor([up.variance for up in ups], dtype=heads.dtype)
        return mean(uploads, [float(upload.examples) for upload in uploads]), HeadChoice(heads, means, variances)

    def personal(self, params: Vector, kept: Candidate, layout: Layout) -> Vector | None:
        """The global model with the head it last trained."""
        if not len(kept.head):
            return None
        own = params.clone()
        own[layout.layers[-1]] = kept.head
        return own


def _combine(sent: HeadChoice, kept: Candidate, fresh: Tensor) -> Tensor:
    """The head with which a client begins."""
    heads, means, variances = (x.cpu().double() for x in sent)
    own = (kept.means if len(kept.head) else fresh).cpu().double()
    if len(kept.head) and not bool((means == own).all(dim=1).any()):
        heads, means = torch.cat([heads, kept.head.cpu().double()[None]]), torch.cat([means, own[None]])
        variances = torch.cat([variances, variances.new_tensor([kept.variance])])
    away = own - means
    a = simplex_minimum(variances.diag() + away @ away.T)
    return (a @ heads).to(sent.heads)


def simplex_minimum(q: Tensor) -> Tensor:
    """The a that minimises a^T q a where a >= 0 and sum a = 1, by Wolfe's method of active sets.

    Args:
        q: symmetric and positive semidefinite, in double precision.

    Example:
        >>> [round(x, 9) for x in simplex_minimum(torch.tensor([[1.0, 0.0], [0.0, 3.0]]).double()).tolist()]
        [0.75, 0.25]
    """
    active, least = [int(q.diagonal().argmin())], 1e-12 * float(q.diagonal().max())
    a = torch.zeros(len(q), dtype=q.dtype)
    a[active] = 1.0
    for _ in range(10 * len(q)):
        slope = q @ a
        nearest = int(slope.argmin())
        if nearest in active or float(slope[nearest]) >= float(a @ slope) - least:
            break
        active.append(nearest)
        x = _affine_minimum(q[active][:, active])
        while float(x.min()) <= 1e-14:  # back to where the first one becomes zero, without it
            here = a[active]
            bad = x <= 1e-14
            here = here + (here[bad] / (here[bad] - x[bad])).min() * (x - here)
            a[active] = here.clamp(min=0.0)
            active = [j for j, value in zip(active, here.tolist(), strict=True) if value > 1e-14]
            x = _affine_minimum(q[active][:, active])
        a = torch.zeros_like(a)
        a[active] = x
    return a


def _affine_minimum(q: Tensor) -> Tensor:
    """The same without the bound a >= 0."""
    edge = torch.cat([q, q.new_ones(1, len(q))])
    system = torch.cat([edge, torch.cat([q.new_ones(len(q), 1), q.new_zeros(1, 1)])], dim=1)
    right = q.new_zeros(len(q) + 1, 1)
    right[-1] = 1.0
    solved: Tensor = torch.linalg.lstsq(system, right, driver="gelsd").solution
    return solved[:-1, 0]
