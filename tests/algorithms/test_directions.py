"""Where methods go: uphill to look, downhill to step, to the optimum or beside it, whoever comes first."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from support.rounds import PLAIN, beginning, close, optimum, path, rounds_to, spy
from undrift.algorithms import (
    fedasam,
    fedcm,
    feddyn,
    fedfft,
    fedlesam,
    fedsam,
    fedspeed,
    make,
    mofedsam,
    scaffold,
    uniform,
)
from undrift.blocks import ByExamples, Filters, Uniform, high_pass
from undrift.compose.cards import family
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout, unit
from undrift.core.records.types import Local
from undrift.engine.round.simulation import Simulation
from undrift.testing import Quadratics

TASK = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, epochs=5, batch_size=7)
UNEQUAL = Local(lr=0.05, decay=0.9, epochs=2, batch_size=2)
LAYOUT = Layout(tuple(TASK.start), tuple(tuple(x.shape) for x in TASK.start.values()))

SLOW = {"fedadagrad", "fedrep"}  # a coordinate moves 0.55 at most in twelve rounds; one step in eleven moves the body
STEADY = {"fedmuon", "fedmuon-cv", "fedpac-muon", "fedpac-soap"}
"""The rate alone sets the length of a step, which 0.05 leaves short."""


def gradient(task: Quadratics, client: int, w: Tensor) -> Tensor:
    return task.curvatures[client] @ (w - task.optima[client])


@pytest.mark.quick(by=lambda name: family(make(name)))
@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("name", PLAIN)
def test_the_order_and_the_names_of_clients_change_nothing(name: str) -> None:
    order = [4, 2, 0, 5, 1, 3]
    renamed = Quadratics(
        [TASK.curvatures[i] for i in order],
        [TASK.optima[i] for i in order],
        TASK.start,
        [TASK.sizes[i] for i in order],
    )
    forth, back, other = (Simulation(make(name), task, UNEQUAL) for task in (TASK, TASK, renamed))
    a = b = c = forth.start()
    for _ in range(3):
        a, _ = forth.round(a, list(range(6)))
        b, _ = back.round(b, order)
        c, _ = other.round(c, list(range(6)))
    assert torch.equal(a.params, b.params)
    close(a.params, c.params)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("name", PLAIN)
def test_equal_sizes_make_weights_equal(name: str) -> None:
    task, algorithm = Quadratics.random(sizes=[3] * 6), make(name)
    close(*(path(replace(algorithm, aggregation=a), task, LOCAL, 3, 3) for a in (ByExamples(), Uniform())))


@pytest.mark.parametrize("algorithm", [fedsam(0.2), fedasam(0.2), fedfft(0.2, 0.2), mofedsam(0.2), fedspeed(0.2)])
def test_perturbations_point_uphill(monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm) -> None:
    seen = spy(monkeypatch)
    path(algorithm, TASK, LOCAL, 5, 3)
    assert len(seen.steps) == 5 * 3 * 5
    for look in seen.steps:
        assert look.offset is not None
        inner = float(look.offset @ look.here)
        assert inner > 0
        if isinstance(algorithm.spectral, Filters):
            filtered = high_pass(0.2)(look.here, LAYOUT)
            close(inner, 0.2 * float(filtered @ filtered) / float(look.here.norm()))
            close(look.offset, 0.2 * filtered / look.here.norm())


def test_perturbation_along_the_global_movement_points_uphill(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(fedlesam(0.2), TASK, LOCAL, 5)
    for look in seen.looks:
        if look.offset is not None and look.step == 0:
            assert float(look.offset @ sum(gradient(TASK, i, look.w) for i in range(6))) > 0
            close(look.offset.norm(), 0.2)


def averaging_ends(rate: float) -> Tensor:
    """Where averaging stands still: sum_i (I - (I - rate A_i)^5)(w - b_i) = 0."""
    eye = torch.eye(40).double()
    pulls = [eye - torch.linalg.matrix_power(eye - rate * a, 5) for a in TASK.curvatures]
    out: Tensor = torch.linalg.solve(sum(pulls), sum(p @ b for p, b in zip(pulls, TASK.optima, strict=True)))
    return out


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("algorithm", [scaffold(), feddyn(1.0), fedspeed(0.0, 1.0)], ids=repr)
def test_corrected_methods_reach_the_optimum(algorithm: Algorithm) -> None:
    end = path(algorithm, TASK, replace(LOCAL, lr=0.1), 60)[-1]
    assert float((end - optimum(TASK)).norm()) < 1e-6


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("algorithm", "rate", "printed"), [(uniform(), 0.05, "0.23"), (fedcm(0.1), 0.005, "0.02")], ids=repr
)
def test_averages_stand_still_elsewhere(algorithm: Algorithm, rate: float, printed: str) -> None:
    # A momentum that stands still is zero, so FedCM ends where averaging with rate a lr does: ten times nearer.
    end = averaging_ends(rate)
    rounds_to((end - optimum(TASK)).norm(), printed)
    close(path(algorithm, replace(TASK, start=LAYOUT.named(end)), LOCAL, 2)[-1], end)
    late = path(algorithm, TASK, LOCAL, 80)[-1]
    assert float((late - end).norm()) < 0.2


@pytest.mark.sweep(every=4)
def test_sharpness_moves_the_optimum() -> None:
    # FedSpeed with a radius ends where the mean perturbed gradient, not the mean gradient, is zero.
    end = path(fedspeed(0.1, 1.0), TASK, replace(LOCAL, lr=0.1), 45)[-1]
    own = [gradient(TASK, i, end) for i in range(6)]
    perturbed = [gradient(TASK, i, end + 0.1 * unit(g)) for i, g in enumerate(own)]
    close(sum(perturbed), torch.zeros(40), 1e-6)
    assert 0.01 < float((end - optimum(TASK)).norm()) < 0.1


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("name", sorted(set(PLAIN) - SLOW))
def test_every_method_goes_downhill(name: str) -> None:
    local = replace(LOCAL, lr=4 * LOCAL.lr) if name in STEADY else LOCAL
    away = (path(make(name), TASK, local, 12, 3) - optimum(TASK)).norm(dim=1)
    assert float(away.min()) < 0.6 * float((beginning(TASK) - optimum(TASK)).norm())
