"""FedDC, SCAFFOLD I, FedNova, FedOpt, q-FedAvg, loss weights and GradFilter-FedDyn: oracles and limiting cases."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from oracle import drift, methods
from support.rounds import View, beginning, close, close_with_decay, flat, optimum, part_of, path, watch
from undrift.algorithms import fedavg, feddyn, fedprox, make, scaffold, specgrad, uniform
from undrift.blocks import Adagrad, Adam, FedDyn, Scaffold, ScaffoldI, Yogi, high_pass
from undrift.blocks.drift.feddyn import Dual
from undrift.blocks.drift.scaffold import Variate
from undrift.core.method.algorithm import Algorithm
from undrift.core.method.block import Correction
from undrift.core.method.view import End, ServerView, Setting
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.types import Local
from undrift.core.tasks.task import Task
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import Quadratics, blobs

BOWLS = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
FULL = Local(lr=0.05, epochs=5, batch_size=7)
Q2 = Quadratics.scalar((1, 1), (0, 4), 1.0, (1, 3))
TWICE = Local(lr=0.5, epochs=2, batch_size=3)


class Seeing(View):
    """A view that also tells losses, the sizes of batches and all data of a client."""

    def loss(self, params: methods.Params, batch: Any) -> float:
        self.gradient(params, batch)  # puts the parameters in place
        return float(self.task.loss(self.model, batch).detach())

    def sizes(self, client: int, round: int) -> list[int]:
        chunks = torch.arange(self.examples(client)).split(self.local.batch_size)
        return [len(chunk) for chunk in chunks] * self.local.epochs  # type: ignore[operator]

    def whole(self, client: int) -> Any:
        if isinstance(self.task, Quadratics):
            return client
        assert isinstance(self.task, TensorTask)
        own = self.task.clients[client]
        return self.task.inputs[own], self.task.targets[own]


ADAPTIVE = {"lr": 0.3, "beta1": 0.6, "beta2": 0.8, "tau": 0.05}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("feddc", {"mu": 0.2}),
    ("scaffold-i", {}),
    ("gradfilter-feddyn", {"r": 0.2, "mu": 0.2}),
    ("fedadam", ADAPTIVE),
    ("fedyogi", ADAPTIVE),
    ("fedadagrad", {"lr": 0.3, "beta1": 0.6, "tau": 0.05}),
    ("fednova", {"rho": 0.0, "mu": 0.0}),
    ("fednova", {"rho": 0.7, "mu": 0.0}),
    ("fednova", {"rho": 0.7, "mu": 0.5}),
    ("q-fedavg", {"q": 1.0}),
    ("q-fedavg", {"q": 0.3}),
    ("fedlw", {"rule": "inverse"}),
    ("fedlw", {"rule": "softmax", "temperature": 2.0}),
    ("fedlw", {"rule": "complement"}),
    ("fednolowe", {}),
]
TASKS: dict[str, tuple[Task, Local]] = {
    "quadratics": (BOWLS, Local(lr=0.05, decay=0.97, clip=5.0, epochs=2, batch_size=2)),
    "network": (blobs((5, 12, 7, 9, 3)), Local(lr=0.2, decay=0.9, clip=0.7, epochs=2, batch_size=4)),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=str)
def test_equals_its_oracle(name: str, arguments: dict[str, Any], decay: float, task: str) -> None:
    algorithm, (problem, local) = make(name, **arguments), TASKS[task]
    view, settings = Seeing(problem, local, 3, 2), methods.Settings(local.lr, local.decay, decay, local.clip)
    expected = flat(drift.METHODS[name](view, settings, 6, **arguments))
    close_with_decay(algorithm, problem, local, decay, expected)


# Limiting cases


@dataclass(frozen=True)
class Frozen(Scaffold):
    """SCAFFOLD whose variates stay at zero."""

    def finish(self, state: Any, end: End) -> tuple[None, Variate]:
        return None, Variate(torch.zeros_like(end.w0))

    def receive(self, delta: Vector, up: None, view: ServerView[Variate]) -> tuple[Vector, Variate]:
        return delta, view.state


@dataclass(frozen=True)
class FrozenI(ScaffoldI):
    """The same of option I."""

    def finish(self, state: Any, end: End) -> tuple[Variate, Variate]:
        return Variate(torch.zeros_like(end.w0)), Variate(torch.zeros_like(end.w0))


@dataclass(frozen=True)
class Unshifted(FedDyn):
    """FedDyn without its server half."""

    def receive(self, delta: Vector, up: None, view: ServerView[Dual]) -> tuple[Vector, Dual]:
        return delta, super().receive(delta, up, view)[1]


LARGE = 1e6
SAME: dict[str, tuple[Algorithm, Algorithm]] = {
    "feddc without variates": (replace(make("feddc", mu=0.2), momentum=Frozen()), feddyn(0.2)),
    "feddc without the slot": (replace(make("feddc", mu=0.2), momentum=Correction()), feddyn(0.2)),
    "feddc mu to 0, no shift": (replace(make("feddc"), drift=Unshifted(1e-13)), scaffold()),
    "scaffold-i frozen at zero": (replace(make("scaffold-i"), drift=FrozenI()), uniform()),
    "gradfilter-feddyn r=0": (make("gradfilter-feddyn", r=0.0, mu=0.2), feddyn(0.2)),
    "gradfilter-feddyn": (make("gradfilter-feddyn", r=0.2, mu=0.2), specgrad(0.2, feddyn(0.2))),
    "fednova equal steps": (make("fednova"), fedavg()),
    "q-fedavg q=0": (make("q-fedavg", q=0.0), uniform()),
    "fedlw complement": (make("fedlw", rule="complement"), make("fednolowe")),
    "fedlw hot softmax": (make("fedlw", rule="softmax", temperature=1e13), uniform()),
    "moon mu=0": (make("moon", mu=0.0), fedavg()),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", SAME)
def test_equal(case: str) -> None:
    close(*(path(algorithm, BOWLS, FULL, 12, 3) for algorithm in SAME[case]))


OTHERS = ["feddc", "scaffold-i", "q-fedavg", "fedlw", "fednolowe", "fedadam", "uniform", "fedavg", "scaffold", "feddyn"]


def test_not_trivially_equal() -> None:
    ends = torch.stack([path(make(name), BOWLS, FULL, 4, 3)[-1] for name in OTHERS])
    apart = torch.cdist(ends, ends) + torch.eye(len(OTHERS))
    assert float(apart.min()) > 1e-2


@pytest.mark.parametrize(
    "optimizer", [Adam(LARGE, 0.0, LARGE, 0.0), Yogi(2 * LARGE, 0.0, LARGE, 0.0), Adagrad(2 * LARGE, 0.0, LARGE)]
)
def test_a_large_tau_switches_adapting_off(optimizer: Any) -> None:
    # Yogi and Adagrad keep v near its start tau^2, so that sqrt(v) + tau is 2 tau; Adam without memory forgets it.
    adapted, plain = (path(a, BOWLS, FULL, 4, 3) for a in (Algorithm(server_optimizer=optimizer), fedavg()))
    close(adapted, plain, 20 / LARGE)


def test_adam_without_memory_moves_every_coordinate_by_the_rate() -> None:
    after = path(Algorithm(server_optimizer=Adam(0.3, 0.0, 1e-30, 0.0)), BOWLS, FULL, 1)[0]
    close((after - beginning(BOWLS)).abs(), [0.3] * 40)


def server_view(w: Vector, state: Any) -> Any:
    """A round of one client."""
    setting = Setting(1, FULL, Layout(("w",), ((len(w),),)))
    return ServerView(params=w, w0=w, setting=setting, round=0, cohort=1, state=state)


@pytest.mark.parametrize("optimizer", [Adam(), Yogi(), Adagrad()], ids=str)
def test_adaptive_optimizers_rest_when_nothing_moves(optimizer: Any) -> None:
    w = torch.tensor([1.0, -2.0, 3.0])
    state = optimizer.init_server(w)
    for _ in range(3):
        delta, state = optimizer.receive(torch.zeros(3), None, server_view(w, state))
        w = w + delta
    assert torch.equal(w, torch.tensor([1.0, -2.0, 3.0]))


def test_adagrad_steps_fall_with_the_root_of_time() -> None:
    w, delta, state = torch.zeros(1).double(), torch.tensor([0.5]).double(), Adagrad(0.1, 0.0, 1e-9).init_server
    kept, steps = state(w), []
    for _ in range(5):
        moved, kept = Adagrad(0.1, 0.0, 1e-9).receive(delta, None, server_view(w, kept))
        steps.append(float(moved))
        w = w + moved
    close(steps, [0.1 / t**0.5 for t in range(1, 6)], 1e-8)


def test_scaffold_one_and_two_agree_for_one_full_step() -> None:
    once = replace(FULL, epochs=1)
    close(path(make("scaffold-i"), BOWLS, once, 12, 3), path(scaffold(), BOWLS, once, 12, 3))


def test_variates_of_equal_clients_cancel_and_the_server_holds_their_mean() -> None:
    alike = replace(BOWLS, curvatures=[BOWLS.curvatures[0]] * 6, optima=[BOWLS.optima[0]] * 6, sizes=[3] * 6)
    close(path(make("scaffold-i"), alike, FULL, 4), path(uniform(), alike, FULL, 4))
    for name, slot in [("scaffold-i", "drift"), ("feddc", "momentum")]:
        for frame in watch(make(name), BOWLS, replace(FULL, batch_size=2), 5, 3):
            close(torch.stack(frame.client(slot, "c")).mean(0), part_of(frame.after, slot).c)


def test_feddc_begins_as_feddyn_and_fedprox() -> None:
    (first,), (other,) = (watch(a, BOWLS, FULL, 1, 3) for a in (make("feddc", mu=0.3), feddyn(0.3)))
    close(first.w, other.w)
    (pulled,) = watch(fedprox(0.3), BOWLS, FULL, 1, 3)
    for client, upload in first.uploads.items():
        close(upload.delta, pulled.uploads[client].delta)


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("algorithm", [make("feddc", mu=1.0), make("scaffold-i")], ids=repr)
def test_corrected_methods_reach_the_optimum(algorithm: Algorithm) -> None:
    end = path(algorithm, BOWLS, replace(FULL, lr=0.1), 60)[-1]
    assert float((end - optimum(BOWLS)).norm()) < 1e-6


@pytest.mark.parametrize(("name", "slot"), [("scaffold-i", "drift"), ("feddc", "momentum")])
def test_variates_do_not_depend_on_the_decay_of_the_rate(name: str, slot: str) -> None:
    flat_bowls = Quadratics.scalar((1e-12, 1e-12), (1e12, -3e12), 0.0, (1, 3))  # gradients -1 and 3 everywhere
    arguments: dict[str, Any] = {"mu": 1e-9} if name == "feddc" else {}
    for decay in (1.0, 0.5):
        frames = watch(make(name, **arguments), flat_bowls, Local(lr=0.1, decay=decay, epochs=2), 4)
        close(torch.stack(frames[-1].client(slot, "c")), (-1, 3), 1e-6)


def test_low_frequencies_stay_where_they_began() -> None:
    layout = Layout(tuple(BOWLS.start), tuple(tuple(x.shape) for x in BOWLS.start.values()))
    moved = path(make("gradfilter-feddyn", r=0.2), BOWLS, FULL, 8, 3)[-1] - beginning(BOWLS)
    close(high_pass(0.2)(moved, layout), moved)
    assert float(moved.norm()) > 0.1


def test_fednova_minimises_the_objective_that_is_written_down() -> None:
    # Clients take 1 to 7 steps; to first order in lr FedAvg minimises sum p_i steps_i F_i, FedNova sum p_i F_i.
    # On 3 (w - 4)^2 / 2 of 3 examples and w^2 / 2 of 1, with lr 0.01: 3.6 against 27/7 with steps (1, 3).
    task = Quadratics.scalar((1, 3), (0, 4), 3.7, (1, 3))
    local = Local(lr=0.01, batch_size=1)
    nova, average = (path(a, task, local, 150)[-1] for a in (make("fednova"), fedavg()))
    assert abs(float(nova) - 3.6) < 0.03 and abs(float(average) - 27 * 4 / 28) < 0.03


def test_one_client_a_round_makes_fednova_fedavg() -> None:
    local = Local(lr=0.05, batch_size=2)
    close(path(make("fednova"), BOWLS, local, 8, 1), path(fedavg(), BOWLS, local, 8, 1))


def test_equal_losses_make_weights_equal() -> None:
    alike = Quadratics.scalar([2.0] * 3, [1.0, -1.0, 1.0], 0.0, [1, 5, 3])
    for name in ("fedlw", "fednolowe"):
        close(path(make(name), alike, Local(lr=0.1, batch_size=5), 1), path(uniform(), alike, Local(batch_size=5), 1))
    # q-FedAvg then goes along the same mean, by 1 / (1 + q |delta|^2 / (F lr)): F = 1, |delta| = 0.2, lr = 0.1
    (fair,) = path(make("q-fedavg", q=2.0), alike, Local(lr=0.1, batch_size=5), 1)
    close(fair, path(uniform(), alike, Local(batch_size=5), 1)[0] / (1 + 2 * 0.04 / 0.1), 1e-8)
