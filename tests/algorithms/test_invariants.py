"""What holds in every round: of variates, duals and momenta, of frozen frequencies, of one client alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from oracle import methods
from support.rounds import View, beginning, close, flat, optimum, part_of, path, spy, watch
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
from undrift.blocks import high_pass
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout, unit
from undrift.core.records.types import Local
from undrift.testing import Quadratics

TASK = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, epochs=5, batch_size=7)
UNEQUAL = Local(lr=0.05, decay=0.9, epochs=2, batch_size=2)
LAYOUT = Layout(tuple(TASK.start), tuple(tuple(x.shape) for x in TASK.start.values()))
VARIATES = [scaffold(), fedgamma(0.2), fedlesam_s(0.2), fedfft_s(0.2, 0.2), specgrad(0.2, scaffold())]
DUALS = [feddyn(0.2), fedspeed(0.2, 0.2), fedlesam_d(0.2, 0.2), fedfft_d(0.2, 0.2, 0.2), specgrad(0.2, feddyn(0.2))]


class Slopes(Quadratics):
    """Losses with constant gradients: the optima are the gradients."""

    def loss(self, model: nn.Module, batch: int) -> Tensor:
        return torch.cat([p.reshape(-1) for p in model.parameters()]) @ self.optima[batch]


def gradient(task: Quadratics, client: int, w: Tensor) -> Tensor:
    return task.curvatures[client] @ (w - task.optima[client])


@pytest.mark.parametrize("algorithm", VARIATES, ids=repr)
def test_variates(monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm) -> None:
    # c_i is the mean data gradient its client descended along, c the mean over all clients; c follows from deltas.
    seen = spy(monkeypatch)
    for frame in watch(algorithm, TASK, UNEQUAL, 8, cohort=3):
        own, c, old = frame.client("drift", "c"), part_of(frame.after, "drift").c, part_of(frame.before, "drift").c
        paced = []
        for client, upload in frame.uploads.items():
            looks, seen.looks = seen.steps[: upload.steps], seen.steps[upload.steps :]
            raw = torch.stack([look.there for look in looks])
            filter = getattr(algorithm.spectral, "gradient", None)
            close(own[client], (raw if filter is None else torch.stack([filter(g, LAYOUT) for g in raw])).mean(0))
            paced.append(upload.delta / (upload.steps * UNEQUAL.rate(frame.before.round)))
        close(c, torch.stack(own).mean(0))
        close(c, (1 - 3 / 6) * old - sum(paced) / 6)


def test_variates_of_one_step_are_gradients_at_the_received_model() -> None:
    for frame in watch(scaffold(), TASK, replace(LOCAL, epochs=1), 5, cohort=3):
        for client in frame.uploads:
            close(frame.client("drift", "c")[client], gradient(TASK, client, frame.before.params))


def test_variates_of_equal_clients_are_equal() -> None:
    task = Quadratics([TASK.curvatures[0]] * 6, [TASK.optima[0]] * 6, TASK.start, [1] * 6)
    for frame in watch(scaffold(), task, LOCAL, 5):
        for own in frame.client("drift", "c"):
            close(own, part_of(frame.after, "drift").c)


@pytest.mark.parametrize("algorithm", DUALS, ids=repr)
def test_server_dual_is_the_mean_of_all_clients_duals(algorithm: Algorithm) -> None:
    for frame in watch(algorithm, TASK, UNEQUAL, 12, cohort=3):
        close(part_of(frame.after, "drift").h, torch.stack(frame.client("drift", "h")).mean(0))


def test_feddyn_in_gradient_units_is_feddyn_in_model_units() -> None:
    view = View(TASK, LOCAL, cohort=3)
    expected = flat(methods.run("feddyn", view, methods.Settings(LOCAL.lr), 30, mu=0.2))
    close(path(feddyn(0.2), TASK, LOCAL, 30, cohort=3), expected)


def test_feddyn_starts_as_fedprox() -> None:
    a, b = (watch(algorithm, TASK, LOCAL, 1)[0].uploads for algorithm in (feddyn(0.3), fedprox(0.3)))
    for client in range(6):
        close(a[client].delta, b[client].delta)


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("algorithm", [feddyn(1.0)], ids=repr)
def test_fixed_point_of_feddyn(algorithm: Algorithm) -> None:
    last = watch(algorithm, TASK, replace(LOCAL, lr=0.1), 80)[-1]
    close(part_of(last.after, "drift").h, torch.zeros(40))
    for client, h in enumerate(last.client("drift", "h")):
        close(h, gradient(TASK, client, optimum(TASK)))
        close(last.uploads[client].delta, torch.zeros(40))


def test_one_full_step_is_gradient_descent_on_the_weighted_objective() -> None:
    local, sizes, ones = replace(LOCAL, epochs=1), TASK.sizes, (1,) * 6
    for algorithm, weights in ((fedavg(), sizes), (uniform(), ones), (scaffold(), ones)):
        w = beginning(TASK)
        for found in path(algorithm, TASK, local, 10):
            w = w - local.lr * sum(weights[i] * gradient(TASK, i, w) for i in range(6)) / sum(weights)
            close(found, w)


def test_fedcm_with_one_step_is_a_moving_average_on_the_server() -> None:
    local = replace(LOCAL, epochs=1)
    w, m = beginning(TASK), torch.zeros(40).double()
    for frame in watch(fedcm(0.3), TASK, local, 30, cohort=3):
        m = 0.7 * m + 0.3 * sum(gradient(TASK, i, w) for i in frame.uploads) / 3
        w = w - local.lr * m
        close(frame.w, w)
        close(part_of(frame.after, "momentum").m, m)


def test_heavy_ball_on_a_constant_gradient_reaches_its_terminal_step() -> None:
    task = Slopes(TASK.curvatures, TASK.optima, TASK.start, [1] * 6)
    models = path(fedavgm(0.5, 0.7), task, LOCAL, 40)
    close(models[-1] - models[-2], -0.7 * LOCAL.lr * 5 * torch.stack(TASK.optima).mean(0) / (1 - 0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", [*VARIATES[:4], fedcm(0.3), mofedsam(0.2, 0.3)], ids=repr)
def test_states_of_constant_gradients_do_not_depend_on_the_rate(algorithm: Algorithm) -> None:
    task = Slopes(TASK.curvatures, TASK.optima, TASK.start, TASK.sizes)
    runs = [watch(algorithm, task, replace(UNEQUAL, decay=decay), 6, cohort=3) for decay in (1.0, 0.5)]
    for steady, slowing in zip(*runs, strict=True):
        for slot, tree in steady.after.parts.items():
            close(part_of(slowing.after, slot)[0], tree[0])
            if algorithm.drift.Client is not None:
                close(torch.stack(slowing.client(slot, "c")), torch.stack(steady.client(slot, "c")))
                for client in steady.uploads:
                    close(steady.client(slot, "c")[client], TASK.optima[client])


def test_weight_decay_keeps_its_strength_under_momentum() -> None:
    # A zero data gradient: the model shrinks by the decay alone. With the decay inside m it would be wd/a = 10 wd.
    task = Quadratics.scalar((0, 0), (0, 0), 1.0, (1, 1))
    local, rounds = Local(lr=0.1, weight_decay=1e-3, epochs=50), 15
    last = watch(fedcm(0.1), task, local, rounds)[-1]
    plain = (1 - 0.1 * 1e-3) ** (50 * rounds)
    strength = torch.log(last.w) / torch.log(torch.tensor(plain, dtype=torch.float64))
    assert abs(float(strength) - 1) < 1e-3
    assert abs(float(part_of(last.after, "momentum").m)) < 1e-3 * 1e-3 * float(last.w)
    close(path(uniform(), task, local, rounds)[-1], plain)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("r", [0.2, 0.5])
@pytest.mark.parametrize("host", ["uniform", "fedprox", "scaffold", "feddyn", "fedcm", "fedsam"])
def test_low_frequencies_are_frozen_and_shrink_with_the_decay_alone(host: str, r: float) -> None:
    algorithm, start, keep = specgrad(r, make(host)), beginning(TASK), high_pass(r)
    low = start - keep(start, LAYOUT)
    assert float(low.norm()) > 0.01
    for w in path(algorithm, TASK, LOCAL, 8, cohort=3):
        close(w - keep(w, LAYOUT), low)
    if host not in ("uniform", "fedsam"):
        return  # the pull of the others, or their states, follow the displacement of the low part, too
    shrunk, local = low, replace(LOCAL, weight_decay=0.1, decay=0.9)
    for t, w in enumerate(path(algorithm, TASK, local, 15, cohort=3)):
        shrunk = shrunk * (1 - local.rate(t) * 0.1) ** 5
        close(w - keep(w, LAYOUT), shrunk)


@pytest.mark.parametrize("host", ["uniform", "scaffold", "feddyn"])
def test_nothing_moves_without_bins(host: str) -> None:
    close(path(specgrad(1 - 1e-12, make(host)), TASK, LOCAL, 5)[-1], beginning(TASK))


def test_constants_in_the_gradient_are_filtered_out() -> None:
    # r = 0.2 removes a bin at least from the first two tensors, 24 and 12 elements long.
    tilt = torch.cat([torch.full((24,), 3.0), torch.full((12,), -2.0), torch.zeros(4)]).double()
    tilted = [b - torch.linalg.solve(a, tilt) for a, b in zip(TASK.curvatures, TASK.optima, strict=True)]
    other = replace(TASK, optima=tilted)
    close(*(path(specgrad(0.2), task, LOCAL, 20, cohort=3) for task in (TASK, other)))


Step = Callable[[Callable[[Tensor], Tensor], Tensor, Tensor, Tensor], Tensor]


def _asam(g: Callable[[Tensor], Tensor], x: Tensor, w: Tensor, old: Tensor) -> Tensor:
    scale = torch.where(LAYOUT.mask(lambda name, _: "weight" in name), x.abs() + 0.1, torch.ones_like(x))
    return g(x + 0.2 * scale * unit(scale * g(x)))


CENTRAL: list[tuple[Algorithm, Step]] = [
    (fedavg(), lambda g, x, w, old: g(x)),
    (uniform(), lambda g, x, w, old: g(x)),
    (scaffold(), lambda g, x, w, old: g(x)),
    (fedprox(0.3), lambda g, x, w, old: g(x) + 0.3 * (x - w)),
    (fedsam(0.2), lambda g, x, w, old: g(x + 0.2 * unit(g(x)))),
    (fedgamma(0.2), lambda g, x, w, old: g(x + 0.2 * unit(g(x)))),
    (fedasam(0.2, 0.1), _asam),
    (fedlesam(0.2), lambda g, x, w, old: g(x + 0.2 * unit(old - w))),
    (fedfft(0.2, 0.2), lambda g, x, w, old: g(x + high_pass(0.2)(0.2 * unit(g(x)), LAYOUT))),
    (specgrad(0.2), lambda g, x, w, old: high_pass(0.2)(g(x), LAYOUT)),
]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("algorithm", "step"), CENTRAL, ids=[repr(a) for a, _ in CENTRAL])
def test_one_client_alone_is_the_centralised_optimiser(algorithm: Algorithm, step: Step) -> None:
    alone = Quadratics(TASK.curvatures[:1], TASK.optima[:1], TASK.start, [1])
    x = w = beginning(TASK)
    for found in path(algorithm, alone, LOCAL, 20):
        old, w = w, x
        for _ in range(5):
            x = x - LOCAL.lr * step(lambda at: gradient(alone, 0, at), x, w, old)
        close(found, x)
