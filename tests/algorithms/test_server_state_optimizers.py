"""FedAdamW, FedLADA, FedMuon, FedPAC with Muon, FedMuon with variates and Delta-SGD: oracles, numbers and limits."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import methods, optimizing
from support.rounds import close, flat, path, rounds_to, watch
from test_newest import BOWLS, Q2, TASKS, Several
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import fedavg, make
from undrift.blocks import AutoStep, CorrectedMuon, LocalAdam, LocalAdamW, LocalMuon, ScaffoldInside, Uniform
from undrift.blocks.drift.scaffold import Variate
from undrift.blocks.local_optimizer.corrected_muon import polar
from undrift.blocks.local_optimizer.mixed import tensor_means
from undrift.blocks.local_optimizer.muon import orthogonal
from undrift.core.method.view import End
from undrift.core.model.flat_model import Layout
from undrift.testing import Quadratics

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedadamw", {"gamma": 0.5}),
    ("fedadamw", {"gamma": 0.3, "means": False, "fresh": True}),
    ("fedlada", {"gamma": 0.4}),
    ("fedmuon", {"gamma": 0.4, "alpha": 0.7, "beta1": 0.9}),
    ("fedpac-muon", {"gamma": 0.5}),
    ("fedmuon-cv", {"a": 0.8, "iterations": 0}),
    ("delta-sgd", {"gamma": 0.4, "delta": 0.3}),
]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=str)
def test_equals_its_oracle(name: str, arguments: dict[str, Any], task: str) -> None:
    """Equally many steps on all clients: t is one number on the sheet."""
    problem, local = TASKS[task]
    local = replace(local, lr=0.02 if name != "delta-sgd" else local.lr, epochs=1, steps=4, weight_decay=0.05)
    view, settings = Several(problem, local, 3, 2), methods.Settings(local.lr, local.decay, 0.05, local.clip)
    expected = flat(optimizing.METHODS[name](view, settings, 5, **arguments))
    close(path(make(name, **arguments), problem, local, 5, 3, 2), expected, 1e-9)


def test_delta_sgd_on_q2() -> None:
    task, local = Quadratics.scalar((1,), (4,), 1.0, (1,)), Local(lr=0.2, batch_size=1)
    ends = [path(make("delta-sgd"), task, replace(local, steps=k), 1) for k in range(1, 5)]
    rounds_to(torch.cat(ends), "1.6", "2.103428", "2.521599", "2.864272")


LOCAL = Local(lr=0.02, steps=4, batch_size=2)


def first(algorithm: Algorithm) -> Tensor:
    return path(algorithm, BOWLS, LOCAL, 1, 3)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("fedadamw", LocalAdamW()),
        ("fedpac-muon", LocalMuon()),
    ],
)
def test_the_first_round_is_local(name: str, optimizer: Any) -> None:
    """Without a direction yet; those that mix convexly take shorter steps."""
    close(first(make(name, gamma=0.0)), first(Algorithm(local_optimizer=optimizer, aggregation=Uniform())))


def test_delta_sgd_without_growth_or_bound_is_fedavg() -> None:
    off = Algorithm(local_optimizer=AutoStep(float("inf"), 0.0))
    close(path(off, BOWLS, LOCAL, 4, 3), path(fedavg(), BOWLS, LOCAL, 4, 3))
    once = replace(LOCAL, steps=1)
    assert torch.equal(path(make("delta-sgd"), BOWLS, once, 3, 3), path(fedavg(), BOWLS, once, 3, 3))


@dataclass(frozen=True)
class Uncorrected(CorrectedMuon):
    """The momentum begins at zero, and variates stay there."""

    def finish(self, state: Any, end: End) -> tuple[Variate, Variate]:
        return Variate(torch.zeros_like(end.w0)), Variate(torch.zeros_like(end.w0))


def test_scalars_take_sign_steps() -> None:
    local = Local(lr=0.01, steps=5, batch_size=3)
    (frame,) = watch(make("fedmuon-cv"), Q2, local, 1)
    close(torch.cat([frame.uploads[i].delta for i in (0, 1)]), (-0.05, 0.05))


def test_absent_clients_do_not_move() -> None:
    """One of two clients: half of its displacement."""
    simulation = Simulation(make("fedmuon-cv"), Q2, Local(lr=0.01, steps=5, batch_size=3))
    close(simulation.round(simulation.start(), [1])[0].params, 1 + 0.05 / 2)


def test_variates_remove_the_bias_of_polar_factors() -> None:
    """Gradients diag(1, 0) and diag(0, 1): the mean of polar factors is I/2, the polar factor of the mean I."""
    one, two = torch.diag(torch.tensor([1.0, 1e-9])), torch.diag(torch.tensor([1e-9, 1.0]))
    close(polar((one + two) / 2, 0), torch.eye(2))
    zero = torch.zeros(3, 2)
    assert torch.equal(polar(zero, 0), zero) and torch.equal(polar(zero, 5), zero)
    alone = Quadratics.random(clients=1)
    plain = replace(make("fedmuon-cv", iterations=0), local_optimizer=Uncorrected(1.0, 0))
    close(*(path(x, alone, LOCAL, 3) for x in (replace(plain, local_optimizer=CorrectedMuon(1.0, 0)), plain)))


@pytest.mark.parametrize("condition", [1.0, 10.0, 100.0])
def test_newton_schulz_comes_near(condition: float) -> None:
    draw = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(8, 8, generator=draw, dtype=torch.float64)).Q for _ in range(2))
    matrix = u @ torch.diag(torch.logspace(0, -float(torch.tensor(condition).log10()), 8, dtype=torch.float64)) @ v
    found = torch.linalg.svdvals(orthogonal(matrix, 5))
    assert float(found.min()) >= 0.65 and float(found.max()) <= 1.25
    close(torch.linalg.svdvals(polar(matrix, 0)), torch.ones(8))


def test_means_of_tensors() -> None:
    layout = Layout(("a", "b"), ((2, 2), (1,)))
    assert tensor_means(torch.tensor([1.0, 2, 3, 6, 5]), layout).tolist() == [3, 3, 3, 3, 5]


@pytest.mark.parametrize("name", ["fedadamw", "fedmuon"])
def test_what_the_server_knows_arrives_at_every_start(name: str) -> None:
    """A client that was never seen begins from the state of the others: the same as one that was there before."""
    twins = Quadratics.random(clients=3)
    twins = replace(twins, curvatures=[twins.curvatures[0]] * 3, optima=[twins.optima[0]] * 3)
    simulation = Simulation(make(name), twins, LOCAL)
    state, _ = simulation.round(simulation.start(), [0, 1])
    old, new = (simulation.round(state, [client])[0] for client in (1, 2))
    assert torch.equal(old.params, new.params)
    fresh = Simulation(make(name), twins, LOCAL)
    assert not torch.equal(fresh.round(replace(state, parts=fresh.start().parts), [2])[0].params, new.params)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("optimizer", [LocalAdam(), LocalAdam(0.0, 0.0), LocalMuon()], ids=str)
def test_a_variate_inside_any_optimizer_learns(optimizer: Any) -> None:
    """Adam, sign and Muon: SCAFFOLD's correction inside comes nearer to the optimum than none."""
    local = Local(lr=0.02, steps=5, batch_size=7, schedule="cosine(over=50, least=0.01)")
    optimum = torch.linalg.solve(
        sum(BOWLS.curvatures), sum(a @ b for a, b in zip(BOWLS.curvatures, BOWLS.optima, strict=True))
    )
    ends = []
    for drift in (ScaffoldInside(), Algorithm().drift):
        method = Algorithm(drift=drift, local_optimizer=optimizer, aggregation=Uniform())
        ends.append(float((path(method, BOWLS, local, 50)[-1] - optimum).norm()))
    assert ends[0] < ends[1], ends
