"""FedSMOO, FedGloSS, FedLWSAM and FedSOL: oracles, limiting cases and the sheet's numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import smoo
from oracle.methods import Params, Path, Settings, sub
from support.rounds import View, close, flat, optimum, part_of, path, rounds_to, spy, watch
from undrift.algorithms import fedavg, feddyn, fedgloss, fedlw, fedlwsam, fednolowe, fedsam, fedsmoo, fedsol, fedspeed
from undrift.blocks import ByExamples, ByLastLoss, Consensus, ServerSAM, Uniform, WarmSAM
from undrift.blocks.perturbation.consensus import Agreed, Multiplier
from undrift.core.client.visit import ClientError
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.method.view import ServerView, Setting
from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.types import Local
from undrift.core.server import step as server
from undrift.core.tasks.task import Task
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import Quadratics

T2 = Quadratics.scalar((1, 3), (0, 4), 1.0, (1, 1)), Local(lr=0.1)
BOWLS = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
STEPS = Local(lr=0.05, decay=0.97, epochs=2, batch_size=2)

SETTING = Setting(2, Local(), Layout(("w",), ((1,),)))


class Seen(View):
    """A view that knows losses and the sizes of batches."""

    def loss(self, params: Params, batch: Any) -> float:
        for name, p in self.model.named_parameters():
            p.data.copy_(params[name])
        return float(self.task.loss(self.model, batch).detach())

    def sizes(self, client: int) -> list[int]:
        left, size = self.examples(client), self.local.batch_size
        return [size] * (left // size) + [left % size] * (left % size > 0)


def rows() -> TensorTask:
    """Five clients of unequal sizes with rows of six numbers, three classes and a linear model."""
    draw, sizes = torch.Generator().manual_seed(5), (5, 12, 7, 9, 3)
    targets = torch.cat([(torch.rand(n, generator=draw) < 0.3).long() + i % 2 for i, n in enumerate(sizes)])
    inputs = torch.randn(sum(sizes), 6, generator=draw, dtype=torch.float64) + targets.view(-1, 1)
    return TensorTask(lambda: nn.Linear(6, 3).double(), inputs, targets, torch.split(torch.arange(36), list(sizes)))


ROWS = rows()


def away(w: Params, x: Params, batch: Any) -> Params:
    """The gradient of ||x - w||^2 / 2."""
    return sub(x, w)


KL, WARM = smoo.linear_kl(3.0), fedgloss(0.3, 0.2, 0.2, 2, 0.05)
NEAR, SHARED = (fedsol(0.5, adaptive, distance="weights") for adaptive in (False, True))
SLOW: dict[str, tuple[Algorithm, Task, Callable[..., Path]]] = {
    "fedsmoo": (fedsmoo(0.2, 0.3), BOWLS, partial(smoo.fedsmoo, rho=0.2, mu=0.3)),
    "fedsmoo large radius": (fedsmoo(2.0, 0.1), BOWLS, partial(smoo.fedsmoo, rho=2.0, mu=0.1)),
    "fedsmoo linear": (fedsmoo(0.2, 0.3), ROWS, partial(smoo.fedsmoo, rho=0.2, mu=0.3)),
    "fedgloss": (fedgloss(0.3, 0.2, 0.2, 0), BOWLS, partial(smoo.fedgloss, rho=0.3, rho_l=0.2, mu=0.2)),
    "fedgloss warm-up": (WARM, BOWLS, partial(smoo.fedgloss, rho=0.3, rho_l=0.2, mu=0.2, warmup=2, first=0.05)),
    "fedgloss plain steps": (fedgloss(0.3, 0.0, 0.2, 0), ROWS, partial(smoo.fedgloss, rho=0.3, rho_l=0, mu=0.2)),
    "fedgloss no dual": (fedgloss(0.3, 0.2, 0.0, 0), BOWLS, partial(smoo.fedgloss, rho=0.3, rho_l=0.2, mu=0)),
    "fedlwsam": (fedlwsam(0.2), BOWLS, partial(smoo.fedlwsam, rho=0.2)),
    "fedlwsam linear": (fedlwsam(0.2), ROWS, partial(smoo.fedlwsam, rho=0.2)),
    "fedlwsam complement": (fedlwsam(0.2, "complement"), BOWLS, partial(smoo.fedlwsam, rho=0.2, rule="complement")),
    "fedsol": (fedsol(0.5), ROWS, partial(smoo.fedsol, rho=0.5, gradient=KL)),
    "fedsol cold": (fedsol(1.0, False, 0.5), ROWS, partial(smoo.fedsol, rho=1.0, gradient=smoo.linear_kl(0.5))),
    "fedsol adaptive": (fedsol(0.5, True), ROWS, partial(smoo.fedsol, rho=0.5, gradient=KL, adaptive=True)),
    "fedsol bias": (fedsol(0.5, names=("bias",)), ROWS, partial(smoo.fedsol, rho=0.5, gradient=KL, chosen=("bias",))),
    "fedsol weights": (NEAR, BOWLS, partial(smoo.fedsol, rho=0.5, gradient=away)),
    "fedsol weights adaptive": (SHARED, BOWLS, partial(smoo.fedsol, rho=0.5, gradient=away, adaptive=True)),
}


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("local", [STEPS, replace(STEPS, clip=2.0, weight_decay=0.05)], ids=["plain", "clip and decay"])
@pytest.mark.parametrize("case", SLOW)
def test_equals_its_oracle(case: str, local: Local) -> None:
    algorithm, task, slow = SLOW[case]
    settings = Settings(local.lr, local.decay, local.weight_decay, local.clip)
    expected = flat(slow(Seen(task, local, cohort=3, seed=2), settings, 5))
    close(path(algorithm, task, local, 5, cohort=3, seed=2), expected)


LONG = Local(lr=0.05, epochs=5, batch_size=7)
ONE_EPOCH = replace(LONG, epochs=1, batch_size=2)


def by_examples(algorithm: Algorithm) -> Algorithm:
    return replace(algorithm, aggregation=ByExamples())


SAME: dict[str, tuple[Algorithm, Algorithm, Local]] = {
    "fedsmoo rho=0": (fedsmoo(0.0, 0.2), feddyn(0.2), LONG),
    "fedgloss rho=0": (fedgloss(0.0, 0.2, 0.3, 0), by_examples(fedspeed(0.2, 0.3)), LONG),
    "fedgloss both 0": (fedgloss(0.0, 0.0, 0.2), by_examples(feddyn(0.2)), LONG),
    "fedgloss all 0": (fedgloss(0.0, 0.0, 0.0), fedavg(), LONG),
    "fedgloss rho=mu=0": (fedgloss(0.0, 0.2, 0.0, 0), by_examples(fedsam(0.2)), LONG),
    "fedgloss first above rho": (fedgloss(0.2, 0.1, 0.2, 9, 0.5), fedgloss(0.2, 0.1, 0.2, 0), LONG),
    "fedlwsam rho=0": (fedlwsam(0.0), fedlw(), ONE_EPOCH),
    "fedlwsam rho=0 softmax": (fedlwsam(0.0, "softmax", 0.5), fedlw("softmax", 0.5), ONE_EPOCH),
    "fedlwsam rho=0 complement": (fedlwsam(0.0, "complement"), fednolowe(), ONE_EPOCH),
    "fedlwsam hot": (fedlwsam(0.2, "softmax", 1e13), fedsam(0.2), LONG),
    "fedsol rho=0": (fedsol(0.0), fedavg(), LONG),
    "fedsol one step": (fedsol(), fedavg(), replace(LONG, epochs=1)),
}
DIFFERENT: dict[str, tuple[Algorithm, Algorithm]] = {
    "fedsmoo": (fedsmoo(0.2, 0.2), fedspeed(0.2, 0.2)),
    "fedgloss server": (fedgloss(0.2, 0.2, 0.2, 0), fedgloss(0.0, 0.2, 0.2, 0)),
    "fedgloss client": (fedgloss(0.2, 0.2, 0.2, 0), fedgloss(0.2, 0.0, 0.2, 0)),
    "fedgloss warm-up": (fedgloss(0.2, 0.2, 0.2, 9), fedgloss(0.2, 0.2, 0.2, 0)),
    "fedlwsam weights": (fedlwsam(0.2), fedsam(0.2)),
    "fedlwsam epochs": (fedlwsam(0.0), fedlw()),
    "fedsol": (fedsol(0.2, distance="weights"), fedavg()),
}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", SAME)
def test_equal(case: str) -> None:
    *both, local = SAME[case]
    close(*(path(a, BOWLS, local, 12, cohort=3) for a in both))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("case", DIFFERENT)
def test_not_trivially_equal(case: str) -> None:
    a, b = (path(a, BOWLS, LONG, 6, cohort=3) for a in DIFFERENT[case])
    assert float((a - b).abs().max()) > 1e-3


def test_first_step_of_fedsmoo_is_that_of_fedspeed() -> None:
    for local, same in ((replace(LONG, epochs=1), True), (LONG, False)):
        a, b = (path(algorithm, BOWLS, local, 1) for algorithm in (fedsmoo(1.0, 0.2), fedspeed(1.0, 0.2)))
        assert (float((a - b).norm()) < 1e-10) == same


def test_one_client_of_fedlwsam_trains_as_centralised_sam() -> None:
    for rule in ("inverse", "complement"):
        close(*(path(a, BOWLS, LONG, 6, cohort=1) for a in (fedlwsam(0.2, rule), fedsam(0.2))))


def test_two_clients_of_fedlwsam_do_not_tell_the_rules_apart() -> None:
    # 1/L_1 : 1/L_2 = L_2 : L_1, up to the 1e-8 that guards the inverse.
    close(*(path(fedlwsam(0.2, rule), BOWLS, LONG, 6, cohort=2) for rule in ("inverse", "complement")), 1e-7)  # type: ignore[call-arg]


def test_fedgloss_reaches_the_optimum_without_radii() -> None:
    models = path(fedgloss(0.0, 0.0, 1.0), BOWLS, Local(lr=0.3, epochs=3, batch_size=7), 50)
    assert float((models[-1] - optimum(BOWLS)).norm()) < 1e-6


def test_numbers_of_fedsmoo(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    first, second = watch(fedsmoo(0.1, 0.1), *T2, 2)
    close(torch.stack([look.offset for look in seen.steps[:2]]), (0.1, -0.1))  # type: ignore[misc]
    close(torch.stack(first.client("perturbation", "d")), (0.1, -0.1))
    assert float(part_of(first.after, "perturbation").s) == 0, "opposite clients agree on nothing"
    close(first.w, 1.82)
    close(second.w, 2.7138)


def test_numbers_of_fedgloss() -> None:
    algorithm = fedgloss(0.1, 0.0, 0.1, warmup=0)
    first, second = watch(algorithm, *T2, 2)
    close(torch.stack(first.client("drift", "h")), (0.01, -0.09))
    close((part_of(first.after, "drift").h, part_of(first.after, "server_optimizer").g, first.w), (-0.04, -0.4, 1.8))
    shifted = server.send(algorithm, first.after, SETTING).params
    close((shifted - first.w, shifted), (-0.1, 1.7))
    close(torch.stack([second.uploads[i].delta for i in (0, 1)]), (-0.169, 0.681))
    close((part_of(second.after, "drift").h, second.w), (-0.0656, 2.712))


@pytest.mark.parametrize(
    ("rule", "shares", "printed"),
    [
        ("inverse", (6 / 11, 3 / 11, 2 / 11), ("0.545455", "0.272727", "0.181818")),
        ("complement", (5 / 12, 4 / 12, 3 / 12), ("0.416667", "0.333333", "0.25")),
    ],
)
def test_numbers_of_fedlwsam(rule: str, shares: tuple[float, ...], printed: tuple[str, ...]) -> None:
    # Curvatures 2, 4, 6 and the distance 1 give losses 1, 2, 3; SAM sees gradients at the distance 1 + rho.
    rounds_to(shares, *printed)
    for scale in (1, 10):
        task = Quadratics.scalar((2 * scale, 4 * scale, 6 * scale), (1, 1, 1), 0.0, (1, 5, 2))
        w = path(fedlwsam(0.05, rule), task, Local(lr=0.01, batch_size=5), 1)
        close(w, 0.01 * 1.05 * scale * sum(p * a for p, a in zip(shares, (2, 4, 6), strict=True)), 1e-8)


def test_radii_grow_by_one_law() -> None:
    for block in (WarmSAM(0.15, 2000, 0.001), ServerSAM()):
        close([block.radius(t) for t in (0, 1000, 2000, 9000)], (0.001, 0.0755, 0.15, 0.15))
    assert [WarmSAM(0.0).radius(t) for t in (0, 5)] == [0.0, 0.0]
    assert WarmSAM(0.2, 0).radius(0) == 0.2


def test_radii_of_both_sides_follow_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, algorithm = spy(monkeypatch), fedgloss(0.4, 0.2, 0.1, 4, 0.1)
    frames = watch(algorithm, BOWLS, LONG, 5, cohort=1)
    close([float(look.offset.norm()) for look in seen.steps[::5]], [0.1, 0.125, 0.15, 0.175, 0.2])  # type: ignore[union-attr]
    shifts = [(server.send(algorithm, frame.after, SETTING).params - frame.w).norm() for frame in frames]
    close(torch.stack(shifts), [0.175, 0.25, 0.325, 0.4, 0.4])


@dataclass(frozen=True)
class Reversed(Consensus):
    """The older public code's sign of s."""

    def receive(self, delta: Vector, up: Multiplier, view: ServerView[Agreed]) -> tuple[Vector, Agreed]:
        return delta, Agreed(-super().receive(delta, up, view)[1].s)


def test_what_fedsmoo_agrees_on_goes_uphill() -> None:
    # Steps times radius exceed the gradients and the model is slow: the duals have met the gradients.
    local = Local(lr=1e-4, epochs=20, batch_size=7)
    pull = [a @ b for a, b in zip(BOWLS.curvatures, BOWLS.optima, strict=True)]
    for block, sign in ((Consensus(1.0), 1), (Reversed(1.0), -1)):
        for frame in watch(replace(fedsmoo(), perturbation=block), BOWLS, local, 2):
            s, gradient = part_of(frame.after, "perturbation").s, sum(BOWLS.curvatures) @ frame.w - sum(pull)  # type: ignore[operator]
            close(s.norm(), 1.0)
            assert sign * float(torch.cosine_similarity(s, gradient, dim=0)) > 0.8


def test_fedsol_on_a_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(fedsol(0.3, distance="weights"), BOWLS, LONG, 1, cohort=1)
    first, *others = seen.steps
    assert first.offset is None and len(others) == 4
    for look in others:
        moved = look.w - first.w
        fits = [(look.there - look.here - 0.3 * a @ moved / moved.norm()).norm() < 1e-10 for a in BOWLS.curvatures]
        assert sum(fits) == 1, "the gradient gains rho A U(w - w0) of the client's own A"


def test_fedsol_climbs_the_distance_and_not_rounding_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    task = replace(ROWS, make=lambda: nn.Linear(6, 3), inputs=ROWS.inputs.float())
    seen = spy(monkeypatch)
    path(fedsol(), task, STEPS, 1, cohort=1)
    assert [look.offset is None for look in seen.steps] == [True] + [False] * (len(seen.steps) - 1)
    for look in seen.steps[1:]:
        close(look.offset.norm(), 1.0, 1e-6)  # type: ignore[union-attr]


def test_adaptive_offset_is_shared_out_along_the_first_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    path(fedsol(0.5, adaptive=True, distance="weights"), ROWS, STEPS, 1, cohort=1)
    moved = seen.steps[1].w - seen.steps[0].w
    weight, bias = moved[:18].view(3, 6), moved[18:]
    shares = torch.cat([(weight.abs() / weight.norm(dim=0)).reshape(-1), bias.abs() / bias.norm()])
    close(seen.steps[1].offset, 0.5 * moved / moved.norm() * shares)
    assert float(seen.steps[1].offset.norm()) < 0.5  # type: ignore[union-attr]


class Pair(nn.Module):
    """Gives out two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3).double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = self.head(x)
        return z, z


def test_fedsol_needs_scores() -> None:
    with pytest.raises(ClientError, match=r"step 1, perturbation=ProximalAscent\._scores: .*got NoneType; distance="):
        path(fedsol(), BOWLS, LONG, 1)
    twice = replace(ROWS, make=Pair, criterion=lambda z, y: nn.functional.cross_entropy(z[0], y))
    with pytest.raises(
        ClientError, match='must return scores, one row per example, got tuple; distance="weights" needs'
    ):
        path(fedsol(), twice, STEPS, 1)


@pytest.mark.parametrize(
    ("algorithm", "client", "server", "down", "up", "gradients"),
    [
        (fedsmoo(), 2, 3, 2, 2, 2),
        (fedgloss(), 1, 3, 1, 1, 2),
        (fedgloss(local_rho=0.0), 1, 3, 1, 1, 1),
        (fedlwsam(), 0, 1, 1, 1, 2),
        (fedsol(), 0, 1, 1, 1, 2),
        (fedsol(distance="weights"), 0, 1, 1, 1, 1),
    ],
)
def test_costs(algorithm: Algorithm, client: int, server: int, down: int, up: int, gradients: int) -> None:
    c = cost(algorithm)
    found = (c.client_state, c.server_state, c.down, c.up, c.gradients_per_step)
    assert found == (client, server, down, up, gradients)
    assert c.plain_sum and not c.gathers and c.stateless == (client == 0)


def test_weights_are_the_papers() -> None:
    found = [algorithm.aggregation for algorithm in (fedsmoo(), fedlwsam(), fedgloss(), fedsol())]
    assert found == [Uniform(), ByLastLoss(), ByExamples(), ByExamples()]
