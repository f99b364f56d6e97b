"""Methods with unequal local work: every method equals its oracle, and FedNova removes the bias of FedAvg."""

from dataclasses import replace
from itertools import chain, count, islice
from typing import Any

import pytest
import torch
from torch import Tensor

from oracle import drift, methods
from support.rounds import View, close, flat, optimum, part_of, path, watch
from test_oracle import CASES, TASKS, Case
from undrift import Local, Simulation, make
from undrift.core.model.random import generator
from undrift.testing import Quadratics


def work(client: int, round: int) -> int:
    """Between one and seven steps, which have nothing to do with a client's size."""
    return (3 * client + 2 * round) % 7 + 1


class Cut(View):
    """The oracles' view of unequal work: reshuffled passes, cut off at the steps of the function above."""

    def batches(self, client: int, round: int) -> list[Any]:
        order = generator(self.seed, round, client, "batches")
        passes = (self.task.batches(client, self.local.batch_size, order) for _ in count())
        return list(islice(chain.from_iterable(passes), work(client, round)))


NETWORK = [case for case in CASES if case.name in ("fedprox", "scaffold", "feddyn", "fedcm", "fedlesam-s")]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    ("case", "task"),
    [*((case, "clipped quadratics") for case in CASES), *((case, "network") for case in NETWORK)],
    ids=str,
)
def test_a_method_equals_its_oracle(case: Case, task: str) -> None:
    problem, local, rounds = TASKS[task]
    found = path(case.algorithm(), problem, replace(local, steps=work), rounds, cohort=3, seed=2)
    close(found, case.expected(Cut(problem, local, cohort=3, seed=2), local, rounds))


@pytest.mark.parametrize(("rho", "mu"), [(0.0, 0.0), (0.6, 0.0), (0.0, 0.3)])
def test_fednova_equals_its_oracle(rho: float, mu: float) -> None:
    problem, local, rounds = TASKS["network"]
    found = path(make("fednova", rho=rho, mu=mu), problem, replace(local, steps=work), rounds, cohort=3, seed=2)
    settings = methods.Settings(local.lr, local.decay, local.weight_decay, local.clip)
    close(found, flat(drift.fednova(Cut(problem, local, cohort=3, seed=2), settings, rounds, rho, mu)))  # type: ignore[arg-type]


def test_variates_are_mean_gradients_over_the_steps_taken() -> None:
    """By hand, with one parameter: f_i(w) = a_i (w - b_i)^2 / 2, c_i the mean of a_i (w - b_i) on the client's path."""
    curvatures, optima, steps, lr = (1.0, 0.5, 2.0), (1.0, -2.0, 3.0), (1, 4, 2), 0.1
    task = Quadratics.scalar(curvatures, optima, 0.5, (1, 1, 1))
    frames = watch(make("scaffold"), task, Local(lr=lr, steps=list(steps)), 4)
    w, c, own = 0.5, 0.0, [0.0, 0.0, 0.0]
    for frame in frames:
        ends, variates = [], []
        for a, b, n, mine in zip(curvatures, optima, steps, own, strict=True):
            x, seen = w, []
            for _ in range(n):
                seen.append(a * (x - b))
                x -= lr * (seen[-1] - mine + c)
            ends.append(x)
            variates.append(sum(seen) / n)
        c += sum(new - old for new, old in zip(variates, own, strict=True)) / 3
        w, own = sum(ends) / 3, variates
        close(frame.w, w, 1e-14)
        close(torch.stack(frame.client("drift", "c")), own, 1e-14)
        close(part_of(frame.after, "drift").c, c, 1e-14)


def test_fedprox_by_hand() -> None:
    curvatures, optima, steps, lr, mu = (1.0, 0.5, 2.0), (1.0, -2.0, 3.0), (1, 4, 2), 0.1, 0.7
    task = Quadratics.scalar(curvatures, optima, 0.5, (1, 1, 1))
    ends = []
    for a, b, n in zip(curvatures, optima, steps, strict=True):
        x = 0.5
        for _ in range(n):
            x -= lr * (a * (x - b) + mu * (x - 0.5))
        ends.append(x)
    close(path(make("fedprox", mu=mu), task, Local(lr=lr, steps=list(steps)), 1), sum(ends) / 3, 1e-14)


def reached(matrix: Tensor, lr: float, steps: int) -> Tensor:
    """M with delta = M (b - w) after so many gradient steps on (w - b)^T A (w - b) / 2: I - (I - lr A)^steps."""
    one = torch.eye(len(matrix), dtype=matrix.dtype)
    out: Tensor = one - torch.linalg.matrix_power(one - lr * matrix, steps)
    return out


def fixed_point(task: Quadratics, pulls: list[Tensor]) -> Tensor:
    """Where sum_i P_i (b_i - w) = 0."""
    out: Tensor = torch.linalg.solve(sum(pulls), sum(p @ b for p, b in zip(pulls, task.optima, strict=True)))
    return out


def limits(task: Quadratics, lr: float, steps: list[int]) -> tuple[Tensor, Tensor]:
    """The fixed points of FedAvg and of FedNova, for clients of equal size that all take part.

    A round moves w by sum_i M_i (b_i - w) / N, and with FedNova by a multiple of sum_i M_i / steps_i (b_i - w).
    """
    far = [reached(a, lr, n) for a, n in zip(task.curvatures, steps, strict=True)]
    return fixed_point(task, far), fixed_point(task, [m / n for m, n in zip(far, steps, strict=True)])


STEPS = [1, 8, 2, 5, 3, 16]


@pytest.mark.sweep(every=4)
def test_both_reach_the_fixed_points_of_their_closed_forms() -> None:
    task, lr, steps = Quadratics.random(3), 0.1, [1, 8, 3]
    biased, normalized = limits(task, lr, steps)
    for name, expected in (("fedavg", biased), ("fednova", normalized)):
        close(Simulation(make(name), task, Local(lr=lr, steps=steps)).run(300).params, expected, 1e-12)
    best = optimum(task)
    assert (normalized - best).norm() < (biased - best).norm() / 2


def test_as_the_rate_falls_fednova_tends_to_the_optimum_and_fedavg_to_another_point() -> None:
    """M_i = steps_i lr A_i + O(lr^2): FedAvg tends to where sum_i steps_i A_i (b_i - w) = 0, whatever its rate."""
    task = Quadratics.random()
    best = optimum(task)
    wrong = fixed_point(task, [n * a for n, a in zip(STEPS, task.curvatures, strict=True)])
    assert (wrong - best).norm() > 0.5
    errors = []
    for lr in (1e-4, 1e-5):
        biased, normalized = limits(task, lr, STEPS)
        assert (biased - wrong).norm() < 200 * lr
        errors.append(float((normalized - best).norm()))
    assert errors[0] < 0.02 and errors[0] / errors[1] == pytest.approx(10, rel=0.01)


@pytest.mark.quick
def test_fednova_reaches_the_optimum_where_fedavg_does_not() -> None:
    """A task on which FedNova has no bias at any rate.

    A client with curvature a and n steps moves by (1 - (1 - lr a)^n) (b - w). The curvatures here solve
    1 - (1 - lr a)^n = 0.8 n lr a, so that displacement / n = 0.8 lr a (b - w) on every client: FedNova rests exactly
    where sum_i a_i (b_i - w) = 0, the optimum, and FedAvg where sum_i n_i a_i (b_i - w) = 0.
    """
    lr, steps, optima = 0.1, [2, 4, 9], [1.0, -2.0, 4.0]

    def curvature(n: int) -> float:
        low, high = 1e-3, 1.0
        for _ in range(200):
            x = (low + high) / 2
            low, high = (x, high) if 1 - (1 - x) ** n > 0.8 * n * x else (low, x)
        return x / lr

    curvatures = [curvature(n) for n in steps]
    task = Quadratics.scalar(curvatures, optima, 0.0, (1, 1, 1))
    local = Local(lr=lr, steps=steps)
    best = sum(a * b for a, b in zip(curvatures, optima, strict=True)) / sum(curvatures)
    weights = [n * a for n, a in zip(steps, curvatures, strict=True)]
    biased = sum(x * b for x, b in zip(weights, optima, strict=True)) / sum(weights)
    close(optimum(task), best, 1e-14)
    close(Simulation(make("fednova"), task, local).run(100).params, best, 1e-13)
    close(Simulation(make("fedavg"), task, local).run(100).params, biased, 1e-13)
    assert abs(biased - best) > 0.1
    equal = Simulation(make("fedavg"), task, replace(local, steps=1)).run(400).params
    close(equal, best, 1e-12)  # with equal work FedAvg reaches it, too


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("name", ["fedlw", "fednolowe", "fedrep", "fedala", "q-fedavg", "feddyn", "fedavg-ft", "fedcr"])
def test_methods_that_look_at_epochs_train_with_every_kind_of_work(name: str) -> None:
    from undrift.testing.tasks import clinic

    algorithm = make(name)
    for given in ({"epochs": 1.5}, {"epochs": 0.3}, {"steps": 5}, {"epochs": "uniform:1-3", "drop_last": True}):
        simulation = Simulation(algorithm, clinic(algorithm), Local(lr=0.05, batch_size=4, **given), cohort=5)
        for state, record in simulation.rounds(2):
            assert torch.isfinite(state.params).all() and record.visits
