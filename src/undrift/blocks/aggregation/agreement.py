"""Weights learned from how well the uploads agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import torch
from torch import Tensor

from undrift.blocks.aggregation.adam import FewNumbersAdam
from undrift.blocks.aggregation.rows import blend
from undrift.core import Array, Gathering, ServerView, Upload, Vector, unit
from undrift.util.naming.ranges import Natural, NonNegative

_CHUNK = 1 << 16  # coordinates at a time: double precision never doubles the memory


class Logits(NamedTuple):
    """A logit for every client seen so far, by the client's number."""

    clients: Array
    values: Array


@dataclass(frozen=True)
class ByAgreement(Gathering[Logits]):
    """server:  T_i = log n_i when a client is first seen;   lam = softmax(T) over the cohort
             J(T) = sum_i lam_i ||delta_i - sum_j lam_j delta_j|| + sum_i lam_i (1 - cos(w0 + delta_i, w0))
             T <- Adam on J, fresh in every round;   delta = sum_i lam_i delta_i with the new lam

    Args:
        steps: Adam's steps in a round; 0 gives ByExamples.
        lr: Adam's rate.
    """

    reports = ("weight",)

    steps: Natural = 1
    lr: NonNegative = 1e-3

    def init_server(self, w: Vector) -> Logits:
        """No client yet."""
        return Logits(torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64))

    def weigh(self, upload: Upload, up: None, age: int) -> float:
        """The number of examples, which weighs running statistics."""
        return float(upload.examples)

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[Logits]) -> tuple[Vector, Logits]:
        """Find the cohort's logits, improve them, average."""
        held = dict(zip(view.state.clients.tolist(), view.state.values.tolist(), strict=True))
        start = [held.get(upload.client, log(upload.examples)) for upload in uploads]
        logits = self._learn(torch.tensor(start, dtype=torch.float64), uploads, view.w0)
        held.update(zip((upload.client for upload in uploads), logits.tolist(), strict=True))
        clients = sorted(held)
        values = torch.tensor([held[client] for client in clients], dtype=torch.float64)
        shares: list[float] = logits.softmax(0).tolist()
        view.report("weight", shares)
        return blend(uploads, shares), Logits(torch.tensor(clients), values)

    def _learn(self, logits: Tensor, uploads: Sequence[Upload], w0: Vector) -> Tensor:
        """Adam's steps."""
        gram, turned, adam = inner_products(uploads), turns(uploads, w0), FewNumbersAdam(len(logits))
        for _ in range(self.steps):
            logits.requires_grad_()
            (slope,) = torch.autograd.grad(disagreement(logits.softmax(0), gram, turned), logits)
            logits = adam.step(logits.detach(), slope, self.lr)
        return logits


def disagreement(shares: Tensor, gram: Tensor, turned: Tensor) -> Tensor:
    """J from inner products: ||delta_i - sum_j lam_j delta_j||^2 = G_ii - 2 (G lam)_i + lam' G lam."""
    pulled = gram @ shares
    squares = gram.diagonal() - 2 * pulled + shares @ pulled
    return shares @ ((squares.clamp(min=0) + 1e-12).sqrt() + turned)


def inner_products(uploads: Sequence[Upload]) -> Tensor:
    """The Gram matrix of the displacements, seen from the first: distances are the same, and equal ones give zero."""
    total = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    for rows in torch.split(torch.stack([upload.delta for upload in uploads]), _CHUNK, dim=1):
        away = (rows - rows[:1]).double()
        total += away @ away.T
    return total


def turns(uploads: Sequence[Upload], w0: Vector) -> Tensor:
    """1 - cos(w0 + delta_i, w0) for every upload."""
    start = unit(w0.double())
    return torch.stack([1 - unit(w0 + upload.delta.double()) @ start for upload in uploads])
