"""Limiting cases and hand-checked numbers of the personal methods."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.rounds import beginning, close, part_of, path, watch
from test_personal_methods import BOWLS, COHORT, FEDAVG, LOCAL, Q2, SEED, TASKS, own_models, pictures
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import make
from undrift.blocks import SAM, BalancedLogits, Moreau, Private, Uniform
from undrift.blocks.personalization.adaptive import Adapted
from undrift.core.records.types import ClientState
from undrift.core.tasks.task import Task
from undrift.testing import Quadratics
from undrift.testing.rounds import states_of


def same(one: Algorithm, other: Algorithm, task: Task = BOWLS, local: Local = LOCAL) -> None:
    found, expected = (path(a, task, local, 4, COHORT, SEED) for a in (one, other))
    assert torch.equal(found, expected)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fedper", {"head": ()}),
        ("fedrep", {"head": (), "head_epochs": 0}),
        ("fedbn", {}),
        ("fedala", {"rate": 0.0, "layers": 99}),
        ("apfl", {"alpha": 0.0}),
        ("apfl", {"alpha": 0.7, "adaptive": True}),
        ("ditto", {"lam": 0.0}),
        ("ditto", {"lam": 3.0}),
        ("fedavg-ft", {"epochs": 0}),
        ("fedavg-ft", {}),
        ("fedbabu", {"head": ()}),
        ("fedrod", {"tau": 0.0}),
    ],
    ids=str,
)
def test_the_global_path_is_fedavgs(name: str, arguments: dict[str, Any]) -> None:
    for task, local, _ in TASKS.values():
        same(make(name, **arguments), FEDAVG, task, local)


def test_fedrep_without_a_head_is_fedavg_with_the_bodys_epochs() -> None:
    eleven = Local(lr=0.05, epochs=11, batch_size=2)
    same_steps = path(make("fedavg"), BOWLS, replace(eleven, epochs=1), 4, COHORT, SEED)
    assert torch.equal(path(make("fedrep", head=()), BOWLS, eleven, 4, COHORT, SEED), same_steps)
    frames = watch(make("fedrep", body_epochs=0), BOWLS, eleven, 2)
    assert torch.equal(frames[-1].w, beginning(BOWLS)), "the body never moves"
    assert not torch.equal(frames[-1].client("personalization", "values")[3], beginning(BOWLS)[-3:])


def test_fedbabu_is_fedrep_without_steps_of_the_head() -> None:
    one, other = (make("fedbabu", epochs=3, tune="last"), make("fedrep", head_epochs=0, tuned=3))
    for task, local, _ in TASKS.values():
        same(one, other, task, local)
    simulations = [Simulation(a, BOWLS, LOCAL, cohort=COHORT, seed=SEED) for a in (one, other)]
    close(*(torch.stack(own_models(simulation, simulation.run(3))) for simulation in simulations))


def test_fedrods_global_model_is_trained_by_the_balanced_softmax_alone() -> None:
    task, local, _ = TASKS["network"]
    same(make("fedrod"), Algorithm(objective=BalancedLogits()), task, local)
    once = replace(local, steps=1, clip=None, weight_decay=0.0)
    (frame,), (plain,) = (watch(a, task, once, 1) for a in (make("fedrod"), FEDAVG))
    for client, upload in plain.uploads.items():  # after one step v is the step that the head takes by the plain loss
        close(part_of(frame.states[client][0], "personalization").values, upload.delta[-18:])


@pytest.mark.parametrize(("steps", "turn"), [(1, 0), (2, 1), (5, 4), (11, 10), (22, 20)])
def test_fedrep_gives_the_body_its_share_of_the_steps(steps: int, turn: int) -> None:
    task = Quadratics.scalar([1.0], [0.0], 1.0, [1])
    both = replace(task, start={"body": torch.ones(1).double(), "head": torch.ones(1).double()})
    both = replace(both, curvatures=[torch.eye(2).double()], optima=[torch.zeros(2).double()])
    simulation = Simulation(make("fedrep", tuned=0), both, Local(lr=0.5, epochs=steps))
    state = simulation.run(1)
    simulation.personal(state, 0)
    close(simulation.worker.model.w, [0.5 ** (steps - turn), 0.5**turn])


def local_training(task: Quadratics, client: int, steps: int, local: Local, w: Tensor) -> Tensor:
    for _ in range(steps):
        w = w - local.lr * (task.curvatures[client] @ (w - task.optima[client]) + local.weight_decay * w)
    return w


PLAIN = Local(lr=0.05, weight_decay=0.02, epochs=3, batch_size=7)


@pytest.mark.parametrize(
    "algorithm", [make("fedper", head="all"), make("ditto", lam=0.0), make("apfl", alpha=1.0)], ids=repr
)
def test_local_training_is_a_limit(algorithm: Algorithm) -> None:
    simulation = Simulation(algorithm, BOWLS, PLAIN)
    state = simulation.run(3)
    for client, model in enumerate(own_models(simulation, state)):
        close(model, local_training(BOWLS, client, 9, PLAIN, beginning(BOWLS)))
    if type(algorithm.personalization) is Private:
        assert torch.equal(state.params, beginning(BOWLS))


def test_fedala_with_weights_at_zero_is_local_training() -> None:
    simulation = Simulation(make("fedala", rate=0.0, layers=99), BOWLS, PLAIN)
    state = simulation.run(1)
    for held in states_of(simulation).values():
        kept = part_of(held[0], "personalization")
        held[0] = ClientState({"personalization": kept._replace(weights=torch.zeros_like(kept.weights))})
    state = simulation.run(2, state)
    for client, model in enumerate(own_models(simulation, state)):
        close(model, local_training(BOWLS, client, 9, PLAIN, beginning(BOWLS)))


def test_ditto_with_a_strong_pull_is_the_received_model() -> None:
    # at rest lam (v - w0) = -g(v), so |v - w0| is about |g|/lam
    simulation = Simulation(make("ditto", lam=1e4, lr=5e-5), BOWLS, replace(PLAIN, epochs=60))
    before = simulation.run(2)
    after = simulation.run(1, before)
    for model in own_models(simulation, after):
        assert float((model - before.params).norm()) < 1e-3 * float((after.params - before.params).norm() + 1)


def test_one_client_with_fedbn_trains_alone() -> None:
    alone = pictures(lambda: nn.BatchNorm2d(4), sizes=(9,))
    local = replace(LOCAL, batch_size=4)
    own, averaged = (Simulation(make(name), alone, local) for name in ("fedbn", "fedavg"))
    state, expected = own.run(3), averaged.run(3)
    own.personal(state, 0)
    close(own.worker.model.w, expected.params)
    close(own.worker.model.buffers, expected.buffers)


def test_pfedme_with_a_unit_step_averages_the_proximal_points() -> None:
    algorithm = make("pfedme", lam=20.0, inner=4, lr=0.02)
    frames = watch(algorithm, BOWLS, Local(lr=0.05, epochs=2, batch_size=2), 3)
    for frame in frames:
        thetas = torch.stack(frame.client("perturbation", "theta"))
        sizes = torch.tensor(BOWLS.sizes, dtype=torch.float64)
        close(frame.w, sizes @ thetas / sizes.sum())
        for client, upload in frame.uploads.items():
            close(frame.before.params + upload.delta, thetas[client])


def test_pfedme_finds_the_proximal_point_and_keeps_it_apart_from_the_model() -> None:
    for lam in (0.5, 1.0, 15.0):
        algorithm = Algorithm(Moreau(lam, 400, 0.5 / (1 + lam)))
        (frame,) = watch(algorithm, Q2, Local(lr=0.01, batch_size=3), 1)
        close(frame.client("perturbation", "theta")[1], (4 + lam * 1.0) / (1 + lam))
        close(1 + frame.uploads[1].delta, 1 + 0.01 * lam * ((4 + lam) / (1 + lam) - 1))


UNFILTERED = Algorithm(SAM(0.2), aggregation=Uniform(), personalization=Private("last"))


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    ("arguments", "limit"),
    [
        ({"head": (), "r": 0.2, "rho": 0.2}, make("fedfft", r=0.2, rho=0.2)),
        ({"r": 0.0, "rho": 0.2}, UNFILTERED),
        ({"r": 0.2, "rho": 0.0}, replace(make("fedper"), aggregation=Uniform())),
    ],
    ids=["no head", "no filter", "no perturbation"],
)
def test_fedper_fft_has_its_limits(arguments: dict[str, Any], limit: Algorithm) -> None:
    for task, local, _ in TASKS.values():
        same(make("fedper-fft", **arguments), limit, task, local)


def test_fedper_fft_without_a_body_is_local_sam() -> None:
    simulation = Simulation(make("fedper-fft", r=0.3, rho=0.1, head="all"), BOWLS, PLAIN)
    state = simulation.run(2)
    assert torch.equal(state.params, beginning(BOWLS))
    w = beginning(BOWLS)
    a, b = BOWLS.curvatures[2], BOWLS.optima[2]
    for _ in range(6):
        g = a @ (w - b)
        w = w - PLAIN.lr * (a @ (w + 0.1 * g / g.norm() - b) + PLAIN.weight_decay * w)
    close(own_models(simulation, state)[2], w)


# Numbers


def second(algorithm: Algorithm, steps: int) -> tuple[float, Any]:
    """Q2's second client after some steps of rate 1/2: its model and what it keeps."""
    (frame,) = watch(algorithm, Q2, Local(lr=0.5, epochs=steps, batch_size=3), 1)
    (kept,) = frame.states[1][0].parts.values()
    return float(1 + frame.uploads[1].delta), kept


def test_ditto_numbers() -> None:
    for lam, path_of_v in ((1.0, (2.5, 2.5)), (0.0, (2.5, 3.25))):
        assert [float(second(make("ditto", lam=lam), steps)[1].v) for steps in (1, 2)] == list(path_of_v)


def test_apfl_numbers() -> None:
    for steps, y, v, mixed in ((1, 2.5, 1.75, 2.125), (2, 3.25, 2.21875, 2.734375)):
        model, kept = second(make("apfl"), steps)
        assert (model, float(kept.v), (float(kept.v) + model) / 2) == (y, v, mixed)


def test_apfl_learns_alpha_once_a_round() -> None:
    # Rate 0.1: after step one y = 1.3 and v = 1.15, the mixture 1.225 has gradient -2.775, and alpha falls by
    # 0.1 * (1.15 - 1.3) * -2.775 = 0.041625; rate 0.5 would take it below zero, where it is cut.
    for steps in (1, 2, 3):
        local = Local(lr=0.1, epochs=steps, batch_size=3)
        (frame,) = watch(make("apfl", adaptive=True), Q2, local, 1)
        kept = part_of(frame.states[1][0], "personalization")
        close(kept.alpha, 0.458375)
        if steps == 2:  # the second step of v has the new share
            mixed = 0.458375 * 1.15 + (1 - 0.458375) * 1.3
            close(kept.v, 1.15 - 0.1 * 0.458375 * (mixed - 4))
    assert second(make("apfl", adaptive=True), 1)[1].alpha == 0.0


def test_pfedme_numbers() -> None:
    algorithm = make("pfedme", lam=1.0, inner=1, lr=0.5)
    for steps, theta, w in ((1, 2.5, 1.75), (2, 2.875, 2.3125)):
        model, kept = second(algorithm, steps)
        assert (model, float(kept.theta)) == (w, theta)


@pytest.mark.parametrize(("rate", "weight", "mixture"), [(0.25, 0.5, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 2.0)])
def test_fedala_numbers(rate: float, weight: float, mixture: float) -> None:
    task = Quadratics.scalar([1.0], [1.0], 2.0, [1])
    simulation = Simulation(make("fedala", rate=rate), task, Local(lr=0.5))
    last, one = torch.zeros(1).double(), torch.ones(1).double()
    kept = ClientState({"personalization": Adapted(last, one, 2)})
    simulation.worker.store.save(0, 0, kept, None)
    state = simulation.run(1, replace(simulation.start(), round=1, accepted={0: 0}))
    found = part_of(simulation.worker.store.load(0, 1), "personalization")
    assert (float(found.weights), found.rounds) == (weight, 3)
    close(state.params, mixture - 0.5 * (mixture - 1))  # one step of training from the mixture


def test_fedala_learns_until_the_losses_settle() -> None:
    # A rate that never settles takes 100 epochs, one at rest the ten that the window needs, a later round one.
    task = Quadratics.scalar([1.0], [1.0], 2.0, [1])
    counts = {}
    for rounds, threshold in ((1, 0.0), (1, 1.0), (2, 0.0), (0, 1.0)):
        simulation = Simulation(make("fedala", rate=1e-3, threshold=threshold), task, Local(lr=0.5))
        kept = Adapted(torch.zeros(1).double(), torch.ones(1).double(), rounds)
        simulation.worker.store.save(0, 0, ClientState({"personalization": kept}), None)
        simulation.run(1, replace(simulation.start(), round=1, accepted={0: 0}))
        # with a = 0, g = 2: hat = 2 W and W <- W - 0.001 (2 W - 1) 2, so W - 1/2 shrinks by 0.996 an epoch
        weight = float(part_of(simulation.worker.store.load(0, 1), "personalization").weights)
        counts[rounds, threshold] = round(float(torch.tensor(2 * weight - 1).log() / torch.tensor(0.996).log()))
    assert counts == {(1, 0.0): 100, (1, 1.0): 10, (2, 0.0): 1, (0, 1.0): 0}
