"""The limiting cases of the sheets: a method with a part switched off is the method without it."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from support.rounds import PLAIN, beginning, close, optimum, path
from undrift.algorithms import (
    fedasam,
    fedavg,
    fedavgm,
    fedcm,
    feddyn,
    fedfft,
    fedfft_d,
    fedfft_s,
    fedgamma,
    fedlesam,
    fedlesam_d,
    fedlesam_s,
    fedprox,
    fedsam,
    fedspeed,
    make,
    mofedsam,
    scaffold,
    specgrad,
    uniform,
)
from undrift.blocks import Average, FedDyn, Filter, Scaffold, Uniform, high_pass
from undrift.blocks.drift.feddyn import Dual
from undrift.blocks.drift.scaffold import Variate
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction, Objective
from undrift.core.method.view import End, ServerView, Step, Sums
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Local
from undrift.testing import Quadratics

TASK = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, epochs=5, batch_size=7)
ALL = 1 - 1e-12
"""A share that rounds up to every bin."""


@dataclass(frozen=True)
class Frozen(Scaffold):
    """SCAFFOLD whose variates stay at zero."""

    def finish(self, state: Any, end: End) -> tuple[None, Variate]:
        return None, Variate(torch.zeros_like(end.w0))

    def receive(self, delta: Vector, up: None, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        return delta, view.state


@dataclass(frozen=True)
class Unshifted(FedDyn):
    """FedDyn without its server half."""

    def receive(self, delta: Vector, up: None, view: ServerView[Dual]) -> tuple[Vector, Dual]:
        return delta, super().receive(delta, up, view)[1]


@dataclass(frozen=True)
class Paper(FedDyn, Correction[Dual, Dual, None, Dual, Dual]):
    """FedSpeed as in its paper: a client uploads x_i - h_i/mu and the server averages these over the cohort."""

    uses = Sums.NONE

    def finish(self, state: Dual, end: End) -> tuple[Dual, Dual]:  # type: ignore[override]
        _, kept = super().finish(state, end)
        return kept, kept

    def receive(self, delta: Vector, up: Dual, view: ServerView[Dual]) -> tuple[Vector, Dual]:  # type: ignore[override]
        h = up.h / view.cohort
        return delta - h / self.mu, Dual(h)


@dataclass(frozen=True)
class Total(Objective):
    """A filter on all of the direction: data gradient, correction and objective term."""

    inner: Objective
    filter: Filter

    def adjust(self, grad: Vector, state: Any, step: Step) -> Vector:
        return self.filter(self.inner.adjust(grad, state, step), step.layout)


def evenly(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, aggregation=Uniform())


def totally(host: Algorithm, filter: Filter) -> Algorithm:
    return replace(host, objective=Total(host.objective, filter))


@cache
def trained(algorithm: Algorithm, local: Local = LOCAL, rounds: int = 30) -> Tensor:
    return path(algorithm, TASK, local, rounds, cohort=3)


SAME: dict[str, tuple[Algorithm, Algorithm]] = {
    # without radius
    "fedsam rho=0": (fedsam(0.0), uniform()),
    "fedasam rho=0": (fedasam(0.0), fedavg()),
    "fedgamma rho=0": (fedgamma(0.0), scaffold()),
    "fedspeed rho=0": (fedspeed(0.0, 0.2), feddyn(0.2)),
    "fedspeed blend=0": (fedspeed(0.3, 0.2, blend=0.0), feddyn(0.2)),
    "fedlesam rho=0": (fedlesam(0.0), uniform()),
    "fedlesam-s rho=0": (fedlesam_s(0.0), scaffold()),
    "fedlesam-d rho=0": (fedlesam_d(0.0, 0.2), feddyn(0.2)),
    "mofedsam rho=0": (mofedsam(0.0, 0.3), fedcm(0.3)),
    "fedfft rho=0": (fedfft(0.2, 0.0), uniform()),
    "fedfft-s rho=0": (fedfft_s(0.2, 0.0), scaffold()),
    "fedfft-d rho=0": (fedfft_d(0.2, 0.0, 0.2), feddyn(0.2)),
    # without momentum
    "mofedsam a=1": (mofedsam(0.2, 1.0), fedsam(0.2)),
    "fedcm a=1": (fedcm(1.0), uniform()),
    "mofedsam rho=0 a=1": (mofedsam(0.0, 1.0), uniform()),
    "fedavgm beta=0": (fedavgm(0.0), fedavg()),
    "fedavgm beta=0 lr=0.7": (fedavgm(0.0, 0.7), Algorithm(server_optimizer=Average(0.7))),
    # without a filter, and with nothing left
    "fedfft r=0": (fedfft(0.0, 0.2), fedsam(0.2)),
    "fedfft-s r=0": (fedfft_s(0.0, 0.2), fedgamma(0.2)),
    "fedfft-d r=0": (fedfft_d(0.0, 0.2, 0.2), fedspeed(0.2, 0.2)),
    "fedfft all bins": (fedfft(ALL, 0.2), uniform()),
    **{f"specgrad r=0 {name}": (specgrad(0.0, make(name)), make(name)) for name in PLAIN if name != "fedlin"},
    # without a correction or a term
    "fedprox mu=0": (fedprox(0.0), fedavg()),
    "scaffold frozen at zero": (replace(scaffold(), drift=Frozen()), uniform()),
    "fedgamma frozen at zero": (replace(fedgamma(0.2), drift=Frozen()), fedsam(0.2)),
    "feddyn mu to 0, no shift": (replace(feddyn(), drift=Unshifted(1e-13)), uniform()),
    # data gradient only, or all of the direction
    "filtered uniform": (specgrad(0.2), totally(uniform(), high_pass(0.2))),
    "filtered fedprox": (specgrad(0.2, fedprox(0.3)), totally(fedprox(0.3), high_pass(0.2))),
    "filtered scaffold": (specgrad(0.2, scaffold()), totally(scaffold(), high_pass(0.2))),
    "filtered feddyn": (specgrad(0.2, feddyn(0.2)), totally(feddyn(0.2), high_pass(0.2))),
}
DIFFERENT: dict[str, tuple[Algorithm, Algorithm]] = {
    "weights": (fedavg(), uniform()),
    "rho": (fedsam(0.2), uniform()),
    "blend": (fedspeed(0.2, 0.2, 0.5), fedspeed(0.2, 0.2)),
    "r": (fedfft(0.2, 0.2), fedsam(0.2)),
    "filtered": (specgrad(0.2), uniform()),
    "a": (fedcm(0.3), uniform()),
    "paper": (replace(fedspeed(0.2, 0.2), drift=Paper(0.2)), fedspeed(0.2, 0.2)),
}


@pytest.mark.sweep(every=6)
@pytest.mark.parametrize("case", SAME)
def test_equal(case: str) -> None:
    rounds = 8 if case.startswith("specgrad") else 30
    close(*(trained(a, rounds=rounds) for a in SAME[case]))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", DIFFERENT)
def test_not_trivially_equal(case: str) -> None:
    a, b = (trained(a, rounds=6) for a in DIFFERENT[case])
    assert float((a - b).abs().max()) > 1e-3


ONCE = replace(LOCAL, epochs=1)


def test_fedprox_with_one_step_is_fedavg() -> None:
    close(trained(fedprox(0.5), ONCE), trained(fedavg(), ONCE))


def test_fedcm_moves_a_times_as_far_at_first() -> None:
    close(trained(fedcm(0.2), LOCAL, 1), trained(uniform(), replace(LOCAL, lr=0.2 * LOCAL.lr), 1))


def test_strong_proximal_term_holds_the_model() -> None:
    # lr * mu = 1/2: the displacement tends to -g/mu, and g is below 20 at the start.
    after = trained(fedprox(1e7), replace(LOCAL, lr=5e-8, epochs=50), 1)
    assert 0 < float((after[0] - beginning(TASK)).norm()) < 20 / 1e7


@pytest.mark.sweep(every=4)
def test_paper_form_of_fedspeed_at_full_participation() -> None:
    paper = replace(fedspeed(0.2, 0.2), drift=Paper(0.2))
    close(*(path(a, TASK, LOCAL, 30) for a in (paper, fedspeed(0.2, 0.2))))


@pytest.mark.sweep(every=4)
def test_paper_form_of_fedspeed_fails_under_partial_participation() -> None:
    apart = [path(replace(feddyn(0.1), drift=drift), TASK, LOCAL, 100, cohort=2) for drift in (Paper(0.1), FedDyn(0.1))]
    paper, code = (float((p[-20:] - optimum(TASK)).norm(dim=1).mean()) for p in apart)
    assert paper > 10 * code
