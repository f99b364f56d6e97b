"""FedFFT-S and FedFFT-D as printed do not work: a regression test that nobody restores their signs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import methods
from support.rounds import View, beginning, close, flat, optimum, part_of, path, rounds_to, watch
from undrift.algorithms import fedfft_d, fedfft_s
from undrift.blocks.drift.feddyn import Dual
from undrift.blocks.drift.scaffold import Variate
from undrift.core.method.aggregation import Robust
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction
from undrift.core.method.view import End, ServerView, Start, Step, Sums
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Local, Upload
from undrift.testing import Quadratics

TASK = Quadratics.random()
LOCAL = Local(lr=0.05, epochs=5)
START = float((beginning(TASK) - optimum(TASK)).norm())


@dataclass(frozen=True)
class PublishedVariates(Correction[Variate, Variate, Variate, Variate]):
    """Algorithm 3 as printed: v = g + c_i - c, c_i <- c_i - c - delta_i / (steps lr), c <- c + 1/N sum_i c_i."""

    def init_server(self, w: Vector) -> Variate:
        return Variate(torch.zeros_like(w))

    def init_client(self, w: Vector) -> Variate:
        return Variate(torch.zeros_like(w))

    def send(self, view: ServerView[Variate]) -> Variate:
        return view.state

    def begin(self, sent: Variate, kept: Variate, start: Start) -> Vector:  # type: ignore[override]
        return kept.c - sent.c

    def adjust(self, grad: Vector, state: Vector, step: Step) -> Vector:  # type: ignore[override]
        return grad.add_(state)

    def finish(self, state: Vector, end: End) -> tuple[Variate, Variate]:  # type: ignore[override]
        new = Variate(state - end.delta / (end.steps * end.lr))
        return new, new

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        return delta, Variate(view.state.c + up.c / view.population)


@dataclass(frozen=True)
class PublishedDuals(Correction[Dual, Dual]):
    """Algorithm 2 as printed: v = g + h_i + mu (w - w0), h_i <- h_i - mu delta_i; the server's dual is never used."""

    uses = Sums.DISPLACEMENTS

    mu: float = 0.1

    def init_server(self, w: Vector) -> Dual:
        return Dual(torch.zeros_like(w))

    def init_client(self, w: Vector) -> Dual:
        return Dual(torch.zeros_like(w))

    def adjust(self, grad: Vector, state: Dual, step: Step) -> Vector:
        return grad.add_(state.h).add_(step.w - step.w0, alpha=self.mu)

    def finish(self, state: Dual, end: End) -> tuple[None, Dual]:
        return None, Dual(state.h - self.mu * end.delta)

    def receive(self, delta: Vector, up: None, view: ServerView[Dual]) -> tuple[Vector, Dual]:
        return delta, Dual(view.state.h - self.mu / view.cohort * view.displacements)


@dataclass(frozen=True)
class Sum(Robust):
    """The sum of the displacements, without 1/m."""

    def gather(self, uploads: Sequence[Upload], ups: Sequence[None], view: ServerView[None]) -> tuple[Vector, None]:
        return torch.stack([upload.delta for upload in uploads]).sum(0), None


def published_s(r: float = 0.2, rho: float = 0.1) -> Algorithm:
    return replace(fedfft_s(r, rho), drift=PublishedVariates())


def published_d(r: float = 0.2, rho: float = 0.1, mu: float = 0.1, summed: bool = False) -> Algorithm:
    algorithm = replace(fedfft_d(r, rho, mu), drift=PublishedDuals(mu))
    return replace(algorithm, aggregation=Sum()) if summed else algorithm


def slow(name: str, rounds: int, cohort: int, **hyper: Any) -> Tensor:
    view = View(TASK, LOCAL, cohort=cohort)
    return flat(methods.run(name, view, methods.Settings(LOCAL.lr), rounds, rho=0.1, r=0.2, **hyper))


def error(models: Tensor) -> Tensor:
    out: Tensor = (models - optimum(TASK)).norm(dim=1)
    return out


@pytest.mark.parametrize("cohort", [3, 6])
@pytest.mark.sweep(every=2)
def test_published_variates_diverge_and_corrected_ones_do_not(cohort: int) -> None:
    wrong = path(published_s(), TASK, LOCAL, 30, cohort)
    right = path(fedfft_s(0.2, 0.1), TASK, LOCAL, 30, cohort)
    if cohort == 3:
        close(wrong, slow("fedfft_s_published", 30, cohort))
        close(right, slow("fedfft_s", 30, cohort))
    assert error(wrong)[-1] > 1e4 * START
    assert bool((error(wrong)[10::5].diff() > 0).all())
    assert error(right)[-1] < START / 10


def test_published_variates_double() -> None:
    # c_i' = 2 (c_i - c) + mean gradient: what the local sign does in one round.
    frames = watch(published_s(0.2, 0.0), TASK, replace(LOCAL, epochs=1), 6)
    for before, after in pairwise(frames):
        old, new = before.client("drift", "c"), after.client("drift", "c")
        for client in range(6):
            gradient = TASK.curvatures[client] @ (before.w - TASK.optima[client])
            close(new[client], 2 * (old[client] - part_of(before.after, "drift").c) + gradient)


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("cohort", [3, 6])
def test_published_duals_equal_their_oracle(cohort: int, summed: bool) -> None:
    found = path(published_d(summed=summed), TASK, LOCAL, 10, cohort)
    close(found, slow("fedfft_d_published", 10, cohort, mu=0.1, server="sum" if summed else "mean"))


@pytest.mark.sweep(every=4)
def test_published_duals_grow_and_corrected_ones_settle() -> None:
    local = replace(LOCAL, lr=0.1)
    wrong, right = (watch(a, TASK, local, 40) for a in (published_d(mu=1.0), fedfft_d(0.2, 0.1, 1.0)))
    grown, settled = (
        torch.stack([torch.stack(frame.client("drift", "h")).norm() for frame in frames]) for frames in (wrong, right)
    )
    assert bool((grown[10:].diff() > 0).all()) and grown[-1] > 10 * settled[-1]
    assert abs(float(settled[-1] - settled[-10])) < 1e-3 * float(settled[-1])
    final = [error(torch.stack([frame.w for frame in frames]))[-1] for frames in (wrong, right)]
    assert final[1] < 0.1 < START < final[0]


def test_published_sum_is_the_cohort_times_too_long() -> None:
    one, many = (watch(published_d(summed=summed), TASK, LOCAL, 1, 3)[0] for summed in (False, True))
    close(many.w - beginning(TASK), 3 * (one.w - beginning(TASK)))


def test_published_duals_on_the_toy_problem() -> None:
    # Exact local minimisation of L_i + h_i x + (x - w)^2 / 2: h_i' = 2 h_i + L_i'(x_i). Lr 1/4 contracts by 1/2 and 0.
    task = Quadratics.scalar((1, 3), (0, 4), 0.0, (1, 1))
    frames = watch(published_d(0.0, 0.0, 1.0), task, Local(lr=0.25, epochs=60), 5)
    w, h, second = 0.0, [0.0, 0.0], []
    for frame in frames:
        x = [(w - h[0]) / 2, (12 - h[1] + w) / 4]
        h = [2 * h[0] + x[0], 2 * h[1] + 3 * (x[1] - 4)]
        w = sum(x) / 2
        second.append(h[1])
        close(frame.w, w)
        close(torch.cat(frame.client("drift", "h")), h)
    rounds_to(second, "-3", "-5.63", "-8.20", "-11.06", "-14.54")
    for frame in watch(fedfft_d(0.0, 0.0, 1.0), task, Local(lr=0.25, epochs=60), 5):
        close(frame.client("drift", "h")[1], -3)
