"""The methods of 2022 to 2026 with vectors alone: oracles, the sheet's numbers on Q2 and Q2c, and limiting cases."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import methods, newest
from support.rounds import View, close, close_with_decay, flat, part_of, path, rounds_to, watch
from undrift.algorithms import fedavg, fedcm, fedprox, fedsam, make, scaffold, uniform
from undrift.blocks import Average, FallingRate, FollowedVariates, LocalAdam, ScaffoldInside, Uniform
from undrift.blocks.drift.inside import PathVariates
from undrift.blocks.drift.scaffold import Variate
from undrift.compose.grammar import parse
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.method.view import End, ServerView
from undrift.core.model.flat_model import Vector
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task
from undrift.engine.round.simulation import Simulation
from undrift.testing import Quadratics, blobs

BOWLS = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
FULL = Local(lr=0.05, epochs=5, batch_size=7)
Q2 = Quadratics.scalar((1, 1), (0, 4), 1.0, (1, 3))
TWICE = Local(lr=0.5, steps=2, batch_size=3)
Q2C = Quadratics.scalar((1, 2), (0, 4), 1.0, (1, 1))
QUARTER = Local(lr=0.25, steps=2, batch_size=1)

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedexp", {"eps": 1e-3}),
    ("fedexp", {"eps": 0.1, "by_examples": True}),
    ("fedacg", {"lam": 0.6, "beta": 0.2}),
    ("fednsam", {"lam": 0.6, "rho": 0.1}),
    ("fedgps", {"rho": 0.3}),
    ("fedinit", {"beta": 0.3}),
    ("fedinit", {"beta": 0.3, "first": False}),
    ("fedinit", {"beta": 0.3, "literal": True}),
]
OWN: list[tuple[str, dict[str, Any]]] = [
    ("scaffold-m", {"beta": 0.3}),
    ("fedlin", {}),
    ("fedswa", {"rho": 0.2, "alpha": 1.3}),
    ("fedmoswa", {"rho": 0.2, "alpha": 1.3, "gamma": 0.4}),
]
"""Methods whose steps the oracle takes itself: they need plain SGD, or have a local optimizer of their own."""

TASKS: dict[str, tuple[Task, Local]] = {
    "quadratics": (BOWLS, Local(lr=0.05, decay=0.97, clip=5.0, epochs=2, batch_size=2)),
    "network": (blobs((5, 12, 7, 9, 3)), Local(lr=0.2, decay=0.9, clip=0.7, epochs=2, batch_size=4)),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize(("name", "arguments"), [*CASES, *OWN], ids=str)
def test_equals_its_oracle(name: str, arguments: dict[str, Any], decay: float, task: str) -> None:
    algorithm, (problem, local) = make(name, **arguments), TASKS[task]
    view, settings = View(problem, local, 3, 2), methods.Settings(local.lr, local.decay, decay, local.clip)
    expected = flat(newest.METHODS[name](view, settings, 6, **arguments))
    close_with_decay(algorithm, problem, local, decay, expected)


@pytest.mark.parametrize("task", TASKS)
def test_scaffnew_equals_its_oracle(task: str) -> None:
    """With all clients; its variates are gradients of the decayed loss."""
    problem, local = TASKS[task]
    local = replace(local, epochs=1, steps=4, decay=1.0, clip=None, weight_decay=0.05)
    view = Several(problem, local)
    expected = flat(newest.scaffnew(view, methods.Settings(local.lr, 1.0, 0.05), 6, 0.2))
    close(path(make("scaffnew", p=0.2), problem, local, 6), expected)


class Several(View):
    """A view of visits with a fixed number of steps."""

    def batches(self, client: int, round: int) -> list[Any]:
        assert isinstance(self.local.steps, int)
        passes = -(-self.local.steps // self.local.epoch_steps(self.examples(client)))
        view = View(self.task, replace(self.local, steps=None, epochs=passes), None, self.seed)
        return view.batches(client, round)[: self.local.steps]


# The sheet's numbers


def q2(name: str, rounds: int, **arguments: Any) -> Tensor:
    return path(make(name, **arguments), Q2, TWICE, rounds)


def q2c(name: str, rounds: int, **arguments: Any) -> Tensor:
    return path(make(name, **arguments), Q2C, QUARTER, rounds)


def test_q2c_shows_drift() -> None:
    rounds_to(q2c("uniform", 3), "1.90625", "2.274414", "2.423981")
    rounds_to(q2c("scaffold", 3), "1.90625", "2.358398", "2.548981")
    close(q2c("uniform", 60)[-1], 48 / 19, 1e-8)
    close(q2c("scaffold", 60)[-1], 8 / 3, 1e-8)


def test_fedexp_on_q2() -> None:
    simulation = Simulation(make("fedexp"), Q2, TWICE)
    state = simulation.start()
    for eta, x, w in [
        ("2.495563", "2.871673", "1.935836"),
        ("3.124915", "0.828746", "1.850209"),
        ("1.955366", "2.546418", "1.687582"),
    ]:
        before = part_of(state, "server_optimizer").x
        state, _ = simulation.round(state)
        rounds_to(part_of(state, "server_optimizer").x, x)
        rounds_to(state.params, w)
        rounds_to(
            (part_of(state, "server_optimizer").x - before) / path(uniform(), moved(before), TWICE, 1).sub(before), eta
        )


def moved(start: Tensor) -> Quadratics:
    return Quadratics.scalar((1, 1), (0, 4), float(start), (1, 3))


def test_look_ahead_on_q2() -> None:
    rounds_to(q2("fedacg", 4, beta=0.0), "1.75", "2.096875", "2.09793", "2.024707")
    rounds_to(q2c("fedacg", 3, beta=0.0), "1.90625", "2.587354", "2.786306")
    close(q2c("fedacg", 200, beta=0.0)[-1], 48 / 19, 1e-8)  # FedAvg's biased fixed point


@pytest.mark.parametrize(
    ("literal", "printed"),
    [(False, (".5625", "3.129688", "1.904854", "3.445593")), (True, (".5625", "3.173438", "1.67083", "3.527122"))],
)
def test_relaxed_starts_on_q2c(literal: bool, printed: tuple[str, ...]) -> None:
    simulation = Simulation(make("fedinit", literal=literal), Q2C, QUARTER)
    state = simulation.start()
    for clients, value in zip(([0], [1], [0], [1]), printed, strict=True):
        state, _ = simulation.round(state, clients)
        rounds_to(state.params, value)


def test_scaffnew_on_q2c() -> None:
    frames = watch(make("scaffnew", p=0.5), Q2C, QUARTER, 3)
    rounds_to(torch.stack([frame.w for frame in frames]), "1.90625", "2.358398", "2.548981")
    h = [frame.client("drift", "c")[0] - part_of(frame.after, "drift").c for frame in frames]
    rounds_to(torch.stack(h), "2.6875", "2.908203", "2.808289")
    close(q2c("scaffnew", 60, p=0.5)[-1], 8 / 3, 1e-8)


def test_fedlin_on_q2c() -> None:
    """Every second round moves the model."""
    rounds_to(q2c("fedlin", 6), "1", "2.015625", "2.015625", "2.412354", "2.412354", "2.567326")
    close(q2c("fedlin", 120)[-1], 8 / 3, 1e-8)


def test_fedlin_with_one_step_is_gradient_descent() -> None:
    once = replace(FULL, epochs=1)
    w = torch.cat([x.reshape(-1) for x in BOWLS.start.values()])
    for row in path(make("fedlin"), BOWLS, once, 10)[1::2]:
        slopes = [a @ (w - b) for a, b in zip(BOWLS.curvatures, BOWLS.optima, strict=True)]
        w = w - once.lr * torch.stack(slopes).mean(0)
        close(row, w)


def test_fedlin_of_equal_clients_is_fedavg() -> None:
    task = Quadratics.scalar((2.0, 2.0), (4.0, 4.0), 1.0, (1, 1))
    close(path(make("fedlin"), task, QUARTER, 6)[1::2], path(uniform(), task, QUARTER, 3))


def test_a_client_without_a_gradient_of_the_round_before_is_not_corrected() -> None:
    """Client 0 trains with gradients 1 and -6, from 1 by 1.625 to 2.09375; then after a round of client 1 by itself."""
    simulation = Simulation(make("fedlin"), Q2C, QUARTER)
    state = simulation.start()
    for clients, value in (([0, 1], "1"), ([0], "2.09375"), ([1], "2.09375"), ([0], "1.177734")):
        state, _ = simulation.round(state, clients)
        rounds_to(state.params, value)


def test_fedmoswa_on_q2c() -> None:
    plain = {"rho": 1.0, "alpha": 1.0, "gamma": 0.4}
    rounds_to(q2c("fedmoswa", 3, **plain), "1.90625", "1.916602", "2.278219")
    close(q2c("fedmoswa", 200, **plain)[-1], 8 / 3, 1e-6)


# Limiting cases


@dataclass(frozen=True)
class Frozen(ScaffoldInside):
    """Variates that stay at zero."""

    def finish(self, state: PathVariates, end: End) -> tuple[Variate, Variate]:
        return Variate(torch.zeros_like(end.w0)), Variate(torch.zeros_like(end.w0))


@dataclass(frozen=True)
class FrozenFollowed(FollowedVariates):
    """The same of FedMoSWA's."""

    def finish(self, state: PathVariates, end: End) -> tuple[Variate, Variate]:
        return Variate(torch.zeros_like(end.w0)), Variate(torch.zeros_like(end.w0))

    def receive(self, delta: Vector, up: Variate, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        return delta, view.state


def evenly(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, aggregation=Uniform())


SAME: dict[str, tuple[Algorithm, Algorithm]] = {
    "fedexp eps=inf": (replace(make("fedexp", eps=float("inf")), server_optimizer=Average()), uniform()),
    "fedacg lam=0": (make("fedacg", lam=0.0, beta=0.3), evenly(fedprox(0.3))),
    "fedacg lam=beta=0": (make("fedacg", lam=0.0, beta=0.0), uniform()),
    "fednsam lam=0": (make("fednsam", rho=0.2, lam=0.0), fedsam(0.2)),
    "fednsam rho=0": (make("fednsam", rho=0.0), make("fedacg", beta=0.0)),
    "fedgps rho=0": (make("fedgps", rho=0.0), uniform()),
    "fedinit beta=0": (make("fedinit", beta=0.0), uniform()),
    "scaffold-m beta=1": (make("scaffold-m", beta=1.0), scaffold()),
    "scaffold-m without variates": (replace(make("scaffold-m", beta=0.3), drift=Frozen()), fedcm(0.3)),
    "scaffold-inside": (Algorithm(drift=ScaffoldInside(), aggregation=Uniform()), scaffold()),
    "fedswa rho=alpha=1": (make("fedswa", rho=1.0, alpha=1.0), uniform()),
    "fedmoswa without variates": (replace(make("fedmoswa"), drift=FrozenFollowed()), make("fedswa")),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", SAME)
def test_equal(case: str) -> None:
    close(*(path(algorithm, BOWLS, FULL, 12, 3) for algorithm in SAME[case]))


EVERYONE: dict[str, tuple[Algorithm, Algorithm]] = {
    "scaffnew": (make("scaffnew", p=0.2), scaffold()),
    "fedmoswa": (make("fedmoswa", rho=1.0, alpha=1.0, gamma=1.0), scaffold()),
    "fedinit literal": (make("fedinit", literal=True), make("fedinit")),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", EVERYONE)
def test_equal_with_all_clients(case: str) -> None:
    close(*(path(algorithm, BOWLS, FULL, 12) for algorithm in EVERYONE[case]))


def test_one_client_has_nothing_to_extrapolate() -> None:
    alone = Quadratics.random(clients=1)
    last = path(replace(make("fedexp"), server_optimizer=Average()), alone, FULL, 6)
    close(last, path(fedavg(), alone, FULL, 6))
    start = torch.cat([x.reshape(-1) for x in alone.start.values()])[None]
    close(path(make("fedexp"), alone, FULL, 6), (last + torch.cat([start, last[:-1]])) / 2)


def test_a_client_looks_uphill_on_the_others_losses() -> None:
    """In round 1 client 0 moves down and client 1 up; in round 2 they end at 1.291015625 and 3.1015625."""
    close(path(make("fedgps", rho=0.5), Q2C, QUARTER, 2)[:, 0], torch.tensor([1.90625, 2.1962890625]))


def test_nobody_else_is_no_perturbation() -> None:
    alone = Quadratics.random(clients=1)
    assert torch.equal(path(make("fedgps"), alone, FULL, 6), path(uniform(), alone, FULL, 6))


def test_look_ahead_with_one_step_is_nesterovs_method() -> None:
    once, lam = replace(FULL, epochs=1), 0.7
    found = path(make("fedacg", lam=lam, beta=0.0), BOWLS, once, 10)
    w = x = torch.cat([x.reshape(-1) for x in BOWLS.start.values()])
    for row in found:
        slopes = [a @ (x - b) for a, b in zip(BOWLS.curvatures, BOWLS.optima, strict=True)]
        new = x - once.lr * torch.stack(slopes).mean(0)
        x, w = new + lam * (new - w), new
        close(row, w)


def test_the_rate_falls_from_all_of_it() -> None:
    steps = [1 - (1 - 0.2) * k / 5 for k in range(5)]
    task, local = Quadratics.scalar((1.0,), (4.0,), 0.0, (1,)), Local(lr=0.1, steps=5, batch_size=1)
    left = torch.prod(torch.tensor([1 - 0.1 * f for f in steps], dtype=torch.float64))
    close(path(Algorithm(local_optimizer=FallingRate(0.2)), task, local, 1), 4 - 4 * left)


def test_variates_inside_adam_are_gradients() -> None:
    """The mean of the gradients on the path, whatever Adam does with them: the client's own here, c at most later."""
    algorithm = Algorithm(drift=ScaffoldInside(), local_optimizer=LocalAdam(), aggregation=Uniform())
    local = Local(lr=0.01, steps=3, batch_size=1)
    (frame,) = watch(algorithm, Q2C, local, 1)
    rows = [[(1.0 - 0.01 * k) * 1 for k in range(3)], [2 * (1.0 + 0.01 * k - 4) for k in range(3)]]
    close(torch.cat(frame.client("drift", "c")), [sum(row) / 3 for row in rows], 1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedlin + local-adam", "it reads the clients' gradients off their displacements"),
        ("fedlin + scaffold", "in which drift=Scaffold.. would take part; leave it out, or use drift:scaffold"),
        ("fedlin + fedadam", "in which server_optimizer=Adam"),
        ("fedlin + objective:proximal(0.1)", "in which the pull of objective=Proximal"),
        ("fedlin + buffered(2)", "in turn, with schedule=Buffered"),
        ("scaffnew + local-adam", "its variates are displacements by the rate"),
        ("fedinit + scaffold", "starts beside the received model, which drift=Scaffold would take for gradient steps"),
        ("fedala + drift:scaffnew", "starts from a mixture, which drift=Scaffnew would take for gradient steps"),
        ("fedrep + drift:scaffold-inside", "but drift=ScaffoldInside divides"),
        ("fedinit(literal=True) + by-loss", "takes the equal mean of the offsets away, found aggregation=ByLoss"),
        ("scaffold + falling-rate(0.1)", "its variates are slopes"),
    ],
)
def test_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("name", "client", "server", "down", "up", "gradients"),
    [
        ("fedexp", 0, 2, 1, 1, 1),
        ("fedacg", 0, 2, 1, 1, 1),
        ("fednsam", 0, 2, 1, 1, 2),
        ("fedgps", 1, 2, 2, 1, 1),
        ("fedinit", 1, 2, 2, 1, 1),
        ("scaffold-m", 1, 3, 3, 2, 1),
        ("scaffnew", 1, 2, 2, 1, 1),
        ("fedlin", 1, 2, 2, 1, 1),
        ("fedswa", 0, 1, 1, 1, 1),
        ("fedmoswa", 1, 2, 2, 2, 1),
    ],
)
def test_cost_table(name: str, client: int, server: int, down: int, up: int, gradients: int) -> None:
    c = cost(make(name))
    assert (c.client_state, c.server_state, c.down, c.up, c.gradients_per_step) == (client, server, down, up, gradients)
    assert c.plain_sum and not c.gathers
