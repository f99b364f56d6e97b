"""FedCR: its oracle, the sheets' numbers, its limits, what leaves a client, and models it does not know."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import cr as slow
from oracle.methods import Settings
from support.rounds import close, flat, part_of, path, rounds_to, watch
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from test_personal_methods import Wide, own_models
from undrift import Local, Simulation, TensorTask, cost
from undrift.algorithms import fedcr, make
from undrift.blocks import SAM, CommonRepresentation, Private, Uniform
from undrift.blocks.objective.common import ClassGaussians, Experts
from undrift.blocks.objective.gaussians import LEAST, decode_gaussian, divergence, product
from undrift.compose.grammar import parse, text
from undrift.core.client.visit import ClientError
from undrift.core.method.view import ServerView, Setting
from undrift.core.model.flat_model import Layout
from undrift.core.model.random import generator
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker
from undrift.models import Variational
from undrift.runs.loop.run import start
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.testing import Clinic, Quadratics, blobs, check_algorithm, fingerprint

DATA = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.2, decay=0.9, clip=1.0, weight_decay=0.01, epochs=2, batch_size=4)
SEED, COHORT, CLASSES, LATENT = 9, 3, 3, 4
MINE = partial(fedcr, CLASSES, LATENT)


def body() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh())


def network(samples: int = 3, classes: int = CLASSES) -> nn.Module:
    return Variational(body(), 6, LATENT, classes, samples).double()


def task_of(make: object = network) -> TensorTask:
    return TensorTask(make, DATA.inputs, DATA.targets, DATA.clients)  # type: ignore[arg-type]


TASK = task_of()


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize(
    ("beta", "beta2", "encoder_first"), [(1e-4, 1.0, False), (0.05, 0.6, False), (0.01, 0.3, True), (0.0, 1.0, False)]
)
def test_equals_its_oracle(beta: float, beta2: float, encoder_first: bool) -> None:
    hyper = slow.Hyper(LATENT, 3, beta, beta2, encoder_first, tuned=2)
    settings = Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)

    def noise(client: int, round: int) -> torch.Generator:
        return torch.Generator().manual_seed(generator(SEED, round, client, "model").initial_seed())

    view = Wide(TASK, LOCAL, COHORT, SEED)
    expected, common, own = slow.fedcr(view, settings, 2, hyper, CLASSES, LOCAL.epochs, noise)  # type: ignore[arg-type]
    algorithm = MINE(beta, beta2, encoder_first, tuned=2)
    simulation = Simulation(algorithm, TASK, LOCAL, cohort=COHORT, seed=SEED)
    states = [state for state, _ in simulation.rounds(2)]
    close(torch.stack([state.params for state in states]), flat(expected))
    for state, gaussians in zip(states, common, strict=True):
        for found, part in zip(part_of(state, "objective"), zip(*gaussians, strict=True), strict=True):
            close(found, torch.cat(part))
    close(torch.stack(own_models(simulation, states[-1])), flat([own[i] for i in range(TASK.population)]))


def test_the_term_changes_the_path() -> None:
    free = path(MINE(0.0), TASK, LOCAL, 3)
    assert float((path(MINE(0.05), TASK, LOCAL, 3) - free).abs().max()) > 1e-3
    assert float((path(MINE(0.05, encoder_first=True), TASK, LOCAL, 1) - path(MINE(0.05), TASK, LOCAL, 1)).norm()) > 0


# The sheets' numbers


def test_products_of_experts() -> None:
    sums = double(2.0), double(4.0)  # N(1, 1) and N(3, 1)
    rounds_to(torch.cat(product(*sums)), "1.3333333", "0.5773503")
    rounds_to(torch.cat(product(*sums, unit=0.0)), "2", "0.7071068")


def test_divergences() -> None:
    def normal(mean: float, deviation: float) -> tuple[Tensor, Tensor]:
        return double(mean), double(deviation)

    close(divergence(normal(1, 1), normal(0, 1)), 0.5)
    rounds_to(divergence(normal(0, 0.1), normal(0, 1)), "1.81")
    rounds_to(divergence(normal(0, 1), normal(0, 0.1)), "47.2")
    two = double(0.3, -1.0), double(0.5, 2.0)
    assert float(divergence(two, two)) == 0
    close(divergence(two, normal(0, 1)), slow.kl(two, (torch.zeros(2), torch.ones(2))))


def test_an_encoder_gives_softplus_and_never_less_than_the_least() -> None:
    mean, deviation = decode_gaussian(double(5.0, -5.0, 0.0, -100.0))
    assert mean.tolist() == [5.0, -5.0]
    close(deviation, double(0.6931471805599453, LEAST))


def test_the_loss_is_the_mean_of_the_samples_cross_entropies() -> None:
    """The cross entropy of the output is that of the mean logits; less log sum exp it is the samples' mean."""
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(7, 4, CLASSES, generator=draw, dtype=torch.float64)
    output, labels = scores.log_softmax(-1).mean(0), torch.tensor([0, 2, 1, 1])
    whole = nn.functional.cross_entropy(output, labels)
    close(whole, nn.functional.cross_entropy(scores.mean(0), labels))
    each = nn.functional.cross_entropy(scores.flatten(0, 1), labels.repeat(7))
    close(whole - torch.logsumexp(output, 1).mean(), each)


# Limits


class Plain(nn.Module):
    """The same network as an ordinary one: it reads the means and knows no noise."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.moments, self.head = body(), nn.Linear(6, 2 * LATENT), nn.Linear(LATENT, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores."""
        out: Tensor = self.head(self.moments(self.body(x))[:, :LATENT])
        return out


@pytest.mark.parametrize("tuned", [0, 2])
def test_without_noise_and_divergence_it_is_fedper(tuned: int) -> None:
    fedper = replace(make("fedper"), aggregation=Uniform(), personalization=Private("last", tuned))
    quiet = Simulation(MINE(0.0, tuned=tuned), task_of(partial(network, 0)), LOCAL, cohort=COHORT)
    plain = Simulation(fedper, task_of(lambda: Plain().double()), LOCAL, cohort=COHORT)
    one, two = quiet.run(4), plain.run(4)
    close(one.params, two.params, 1e-12)
    close(torch.stack(own_models(quiet, one)), torch.stack(own_models(plain, two)), 1e-12)


def receive(beta2: float, precision: Tensor, weighted: Tensor, old: ClassGaussians | None = None) -> ClassGaussians:
    block = CommonRepresentation(2, 2, beta2=beta2)
    kept = block.init_server(torch.zeros(1, dtype=torch.float64)) if old is None else old
    zero, setting = torch.zeros(1), Setting(1, Local(), Layout(("w",), ((1,),)))
    view: Any = ServerView(params=zero, w0=zero, setting=setting, round=0, cohort=1, state=kept)
    return block.receive(zero, Experts(precision, weighted), view)[1]


def test_the_server_follows_the_product_and_unseen_classes_keep_theirs() -> None:
    result = double(2, 3, 0, 0), double(4, 0, 0, 0)
    first = receive(1.0, *result)
    close(first.mean, double(4 / 3, 0, 0, 0))
    close(first.deviation, double(3**-0.5, 0.5, 1, 1))
    half = receive(0.25, *result)
    close(half.mean, double(1 / 3, 0, 0, 0))
    close(half.deviation, double(0.75 + 0.25 * 3**-0.5, 0.875, 1, 1))
    old = ClassGaussians(double(7, 7, 8, 8), double(0.1, 0.1, 0.2, 0.2))
    later = receive(1.0, *result, old)
    assert later.mean.tolist()[2:] == [8, 8] and later.deviation.tolist()[2:] == [0.2, 0.2]
    still = receive(0.0, *result, old)
    assert all(torch.equal(a, b) for a, b in zip(still, old, strict=True))
    hostile = receive(1.0, double(-2, -1, 1, 1), double(4, 0, 0, 0), old)
    assert hostile.deviation.isfinite().all() and hostile.mean.tolist() == [7, 7, 0, 0]


def test_a_class_that_nobody_has_stays_standard() -> None:
    simulation = Simulation(fedcr(5, LATENT), task_of(partial(network, 3, 5)), LOCAL)
    mean, deviation = (x.view(5, LATENT) for x in part_of(simulation.run(2), "objective"))
    assert not mean[3:].any() and bool((deviation[3:] == 1).all())
    assert bool(mean[:3].all()) and bool((deviation[:3] < 1).all())


# What leaves a client


def test_every_example_of_the_last_epoch_counts_once() -> None:
    """One step an epoch: the sums are those at the model before the last step, also where a step looks twice."""
    local = replace(LOCAL, batch_size=20, epochs=3, clip=None)
    for algorithm in (MINE(), replace(MINE(), perturbation=SAM(0.5))):
        two = watch(algorithm, TASK, replace(local, epochs=2), 1, seed=SEED)[0]
        frame = watch(algorithm, TASK, local, 1, seed=SEED)[0]
        for client, upload in frame.uploads.items():
            model: Any
            model, own = TASK.model(), TASK.clients[client]
            nn.utils.vector_to_parameters(two.before.params + two.uploads[client].delta, model.parameters())
            head = part_of(two.states[client][0], "personalization").values
            nn.utils.vector_to_parameters(head, model.head.parameters())
            mean, deviation = (x.detach() for x in decode_gaussian(model.moments(model.body(TASK.inputs[own]))))
            onehot = nn.functional.one_hot(TASK.targets[own], CLASSES).double().T
            result = part_of(upload, "objective")
            close(result.precision, (onehot @ deviation**-2).flatten())
            close(result.weighted, (onehot @ (mean * deviation**-2)).flatten())


def test_private_heads_stay_and_costs_are_those_of_the_sheet() -> None:
    algorithm = MINE()
    frame = watch(algorithm, TASK, LOCAL, 1)[0]
    assert all(not upload.delta[-(LATENT + 1) * CLASSES :].any() for upload in frame.uploads.values())
    sizes = CommonRepresentation(10, 512).sizes()
    assert sizes == {"precision": 5120, "weighted": 5120} and not algorithm.stateless and algorithm.personalized
    assert not cost(algorithm).gathers and algorithm.objective.gradients == 0


def test_two_workers_give_the_bits_of_one() -> None:
    algorithm, clients = MINE(0.01), range(TASK.population)
    alone = Simulation(algorithm, TASK, LOCAL, seed=SEED)
    workers = [Worker(Job(algorithm, TASK, LOCAL, SEED)) for _ in range(2)]
    state, expected = alone.start(), alone.run(3)
    for turn in range(3):
        broadcast = server.send(algorithm, state, alone.job.setting)
        gate = Gate(algorithm, LOCAL, broadcast, clients)
        total = gate.total()
        for worker, own in zip(workers, ([4, 1], [3, 0, 2]), strict=True):
            part = worker.serve(broadcast, own[::-1] if turn else own, state.accepted, len(clients))
            assert gate.merge(part.total, total) is None
        state = alone.close(state, broadcast, total)
    assert fingerprint(state) == fingerprint(expected)


def test_training_draws_noise_of_its_own_for_every_client_and_round() -> None:
    simulation = Simulation(MINE(), TASK, LOCAL)
    state, before, seen = simulation.start(), torch.get_rng_state(), []
    module = simulation.worker.model.module
    module.get_submodule("head").register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].detach().clone()))
    for client in (0, 0, 4):
        simulation.round(state, [client])
    same, again, other = seen[0], seen[4], seen[8]  # two epochs of two batches, five examples
    assert torch.equal(same, again) and not torch.equal(same[:, :3], other[:, :3])
    assert torch.equal(torch.get_rng_state(), before)


# Models, methods and whole runs


@pytest.mark.parametrize(
    ("task", "algorithm", "message"),
    [
        (DATA, MINE(), r"Projected has no linear layer named moments, .* use model 'variational-cnn', or undrift"),
        (Quadratics.random(), MINE(), "_Free has no linear layer named moments"),
        (TASK, fedcr(CLASSES, 8), "the model has 4 latent units, not 8; write latent=4"),
        (TASK, fedcr(7, LATENT), "the model has 3 classes, not 7; write classes=3"),
        (
            TensorTask(network, DATA.inputs, nn.functional.one_hot(DATA.targets).double(), DATA.clients, nn.MSELoss()),
            MINE(),
            r"second element must be the classes of its examples, .*, got torch.float64 in a tuple",
        ),
    ],
    ids=["no moments", "no layers", "latent", "classes", "labels"],
)
def test_what_does_not_fit_is_refused(task: object, algorithm: object, message: str) -> None:
    with pytest.raises(ClientError, match=rf"objective=CommonRepresentation\.\w+: CommonRepresentation: .*{message}"):
        Simulation(algorithm, task, LOCAL).run(1)  # type: ignore[arg-type]


def test_it_composes() -> None:
    built = parse("fedcr(classes=3, latent=4) + sam(0.05)")
    assert built == replace(MINE(), perturbation=SAM(0.05)) == parse(text(built))
    assert "objective:common-representation(classes=3, latent=4)" in text(built)
    assert bool(torch.isfinite(path(built, TASK, LOCAL, 3)).all())


@pytest.mark.sweep(every=4)
def test_a_method_may_bring_its_own_model() -> None:
    def deep() -> nn.Module:
        return Variational(nn.Sequential(nn.Flatten(), nn.Linear(36, 7), nn.Dropout(0.2)), 7, LATENT, CLASSES)

    check_algorithm(MINE(), Clinic(make=deep))


@pytest.mark.usefixtures("tiny")
@pytest.mark.sweep(every=2)
def test_a_run_takes_the_model_that_fits(tmp_path: Path) -> None:
    settings = {key: value for key, value in RUN.items() if key != "model"}
    done = start(Config.build({**settings, "method": "fedcr", "holdout": 0.3}), tmp_path / "run")
    assert 'model = "variational-cnn"' in (tmp_path / "run" / "config.toml").read_text()
    assert done.summary["personal_accuracy"] > done.summary["accuracy"]
    with pytest.raises(ConfigError, match="use model 'variational-cnn'"):
        start(Config.build({**RUN, "method": "fedcr"}), tmp_path / "other")
    assert not (tmp_path / "other").exists()
