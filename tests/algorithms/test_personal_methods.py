"""Personal methods: each equals its slow oracle, and every number and limiting case of the sheets holds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import personal as slow
from oracle.methods import Params, Settings
from support.rounds import View, close, flat
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Local, Simulation, cost
from undrift.algorithms import make
from undrift.blocks import Private, PrivateNorms
from undrift.blocks.personalization.part import mask
from undrift.core.model.flat_model import bind
from undrift.core.model.random import generator
from undrift.core.tasks.task import Task
from undrift.core.tasks.tensor_task import TensorTask
from undrift.models import MODELS, build, head, resnet
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.loop.run import start
from undrift.runs.settings.config import Config
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import prepare
from undrift.testing import Clinic, Quadratics

Q2 = Quadratics.scalar((1, 1), (0, 4), 1.0, (1, 3))
BOWLS = Quadratics.random(sizes=(1, 3, 2, 5, 4, 7))
LOCAL = Local(lr=0.05, decay=0.97, weight_decay=0.05, clip=5.0, epochs=2, batch_size=2)


class Wide(View):
    """What the personal oracles want besides."""

    def epochs(self, client: int, round: int, count: int) -> list[Any]:
        order = generator(self.seed, round, client, "batches")
        return [b for _ in range(count) for b in self.task.batches(client, self.local.batch_size, order)]

    def aside(self, client: int, round: int, purpose: str) -> list[Any]:
        order = generator(self.seed, round, client, purpose)
        return list(self.task.batches(client, self.local.batch_size, order))

    def length(self, batch: Any) -> int:
        return len(batch[0]) if isinstance(batch, tuple) else 1

    def loss(self, params: Params, batch: Any) -> float:
        self.gradient(params, batch)  # puts the weights into the model
        return float(self.task.loss(self.model, batch).detach())


class Net(nn.Module):
    """A convolution, a norm of any kind, a hidden layer and a head."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Tanh(), nn.Flatten(), nn.Linear(16, 5), nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of 4 x 4 images."""
        out: Tensor = self.head(self.body(x))
        return out


def pictures(norm: Callable[[], nn.Module], sizes: tuple[int, ...] = (5, 12, 7, 9, 3)) -> TensorTask:
    draw = torch.Generator().manual_seed(5)
    targets = torch.cat([(torch.rand(n, generator=draw) < 0.3).long() + i % 2 for i, n in enumerate(sizes)])
    inputs = torch.randn(sum(sizes), 1, 4, 4, generator=draw, dtype=torch.float64) + targets.view(-1, 1, 1, 1)
    clients = torch.split(torch.arange(sum(sizes)), list(sizes))
    return TensorTask(lambda: Net(norm()).double(), inputs, targets, clients)


GROUPED, BATCHED = pictures(lambda: nn.GroupNorm(2, 4)), pictures(lambda: nn.BatchNorm2d(4))
TASKS: dict[str, tuple[Task, Local, dict[str, set[str]]]] = {
    "quadratics": (BOWLS, LOCAL, {"last": {"bias"}, "two": {"norm", "bias"}}),
    "network": (
        GROUPED,
        replace(LOCAL, clip=1.5, batch_size=4),
        {
            "last": {"head.weight", "head.bias"},
            "two": {"body.4.weight", "body.4.bias", "head.weight", "head.bias"},
        },
    ),
}
SEED, COHORT, ROUNDS = 9, 3, 4
FEDAVG = make("fedavg")


@dataclass(frozen=True)
class Case:
    """An algorithm with its arguments, the oracle's arguments, and which part of the model both speak of."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    renamed: dict[str, Any] = field(default_factory=dict)
    part: str = ""

    def __str__(self) -> str:
        """Its name in the report."""
        return f"{self.name}{''.join(f'-{key}={value}' for key, value in self.arguments.items())}"


CASES = [
    Case("fedavg-ft", {"epochs": 3}, {"epochs": 3}, "last"),
    Case("fedper", {}, {}, "last"),
    Case("fedbabu", {"epochs": 2}, {"tuned": 2, "every": True}, "last"),
    Case("fedbabu", {"epochs": 1, "tune": "last"}, {"tuned": 1, "every": False}, "last"),
    Case("fedrod", {"tau": 0.0}, {}, "last"),
    Case("fedrep", {"head_epochs": 3, "body_epochs": 1, "tuned": 2}, {"share": 0.75, "tuned": 2}, "last"),
    Case("fedrep", {"head_epochs": 1, "body_epochs": 2, "tuned": 0}, {"share": 1 / 3, "tuned": 0}, "last"),
    Case("fedper-fft", {"r": 0.2, "rho": 0.2}, {"r": 0.2, "rho": 0.2}, "last"),
    Case(
        "fedala",
        {"rate": 0.5, "sample": 0.6, "layers": 2, "threshold": 1e-3},
        {"rate": 0.5, "sample": 0.6, "threshold": 1e-3},
        "two",
    ),
    Case("ditto", {"lam": 0.7}, {"lam": 0.7}),
    Case("ditto", {"lam": 0.7, "lr": 0.1}, {"lam": 0.7, "personal_lr": 0.1}),
    Case("apfl", {"alpha": 0.3}, {"alpha": 0.3}),
    Case("apfl", {"alpha": 0.6, "adaptive": True}, {"alpha": 0.6, "adaptive": True}),
    Case(
        "pfedme",
        {"lam": 3.0, "inner": 3, "lr": 0.1, "beta": 0.8},
        {"lam": 3.0, "inner": 3, "inner_lr": 0.1, "beta": 0.8},
    ),
]


def own_models(simulation: Simulation, state: Any) -> list[Tensor]:
    """The model every client is evaluated with."""
    models = []
    for client in range(simulation.task.population):
        simulation.personal(state, client)
        models.append(simulation.worker.model.w.clone())
    return models


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_its_oracle(case: Case, task: str) -> None:
    problem, local, parts = TASKS[task]
    hyper = dict(case.renamed) | ({"names": parts[case.part]} if case.part else {})
    if case.name == "fedala":
        hyper["batch_size"] = local.batch_size
    settings = Settings(local.lr, local.decay, local.weight_decay, local.clip)
    expected, own = slow.METHODS[case.name](Wide(problem, local, COHORT, SEED), settings, ROUNDS, **hyper)
    simulation = Simulation(make(case.name, **case.arguments), problem, local, cohort=COHORT, seed=SEED)
    states = [state for state, _ in simulation.rounds(ROUNDS)]
    close(torch.stack([state.params for state in states]), flat(expected))
    close(torch.stack(own_models(simulation, states[-1])), flat([own[i] for i in range(problem.population)]))


def test_some_client_never_takes_part_and_some_three_times() -> None:
    for problem, local, _ in TASKS.values():
        visits = [i for t in range(ROUNDS) for i in Wide(problem, local, COHORT, SEED).cohort(t)]
        assert len(set(visits)) < problem.population and max(map(visits.count, visits)) >= 3


def test_fedbn_equals_its_oracle() -> None:
    local = replace(LOCAL, batch_size=4)
    settings = Settings(local.lr, local.decay, local.weight_decay, local.clip)
    expected, own = slow.fedbn(BATCHED, Wide(BATCHED, local, COHORT, SEED), settings, ROUNDS)
    simulation = Simulation(make("fedbn"), BATCHED, local, cohort=COHORT, seed=SEED)
    states = [state for state, _ in simulation.rounds(ROUNDS)]
    close(torch.stack([state.params for state in states]), flat(expected))
    for client in range(BATCHED.population):
        found = simulation.personal(states[-1], client).state_dict()
        for name, value in own[client].items():
            if "num_batches" not in name:
                close(found[name], value)


# Parts of a model


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("densenet121", "vit-tiny", "resnet18-bn")])
def test_the_last_module_is_the_head_of_every_model(name: str) -> None:
    data = {"symbols": 20} if name == "lstm" else {"channels": 3, "image": 32}
    module = build(name, classes=7, **data)
    layout = bind(module).layout
    assert torch.equal(mask("Private", "last", layout), mask("Private", head(module), layout))


def test_the_last_module_by_hand() -> None:
    layout = bind(Clinic().model()).layout
    chosen = mask("Private", "last", layout)
    assert torch.equal(chosen, ~Private(("head.*",)).shared(layout)) and int(chosen.sum()) == 64 * 3 + 3  # type: ignore[operator]
    assert mask("Private", "all", layout).all() and not mask("Private", (), layout).any()
    with pytest.raises(ValueError, match=r"Tuned: no tensor is named 'haed.*'; the model has body.0.weight"):
        mask("Tuned", ("haed.*",), layout)


def test_norms_are_chosen_by_their_class_so_shortcuts_count() -> None:
    # 8 layers: 1 norm in the stem, 2 in each of 3 blocks, 1 in each of the 2 shortcuts that change the shape
    layout = bind(resnet(8, norm="batch")).layout
    own = PrivateNorms().own(layout)
    assert own is not None and int(own.sum()) == 2 * (16 + 2 * 16 + 2 * 32 + 2 * 64 + 32 + 64)
    named = layout.mask(lambda name, _: "norm" in name)
    assert int((own & ~named).sum()) > 0, "a search by name misses the shortcuts"
    grouped = bind(resnet(8)).layout
    named_so = PrivateNorms(("*Norm*",)).own(grouped)
    assert PrivateNorms().own(grouped) is None and named_so is not None and int(named_so.sum()) == int(own.sum())


@pytest.mark.parametrize(
    ("name", "client", "gradients", "stateless"),
    [
        ("fedavg-ft", 0, 1, True),
        ("fedper", 0, 1, False),
        ("fedrep", 0, 1, False),
        ("fedbabu", 0, 1, True),
        ("fedrod", 0, 2, False),
        ("fedbn", 0, 1, False),
        ("fedala", 1, 1, False),
        ("ditto", 1, 2, False),
        ("apfl", 1, 2, False),
        ("pfedme", 1, 5, False),
        ("fedper-fft", 0, 2, False),
    ],
)
def test_cost_table(name: str, client: int, gradients: int, stateless: bool) -> None:
    c = cost(make(name))
    assert (c.client_state, c.gradients_per_step, c.stateless) == (client, gradients, stateless)
    assert (c.down, c.up, c.server_state, c.plain_sum) == (1, 1, 1, True)
    assert make(name).personalized


# Whole runs


def settings(method: str, **more: Any) -> Config:
    return Config.build({**RUN, "method": method, "holdout": 0.3, **more})


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
def test_every_clients_own_model_is_measured(tmp_path: Path) -> None:
    """Tuning comes before evaluation: the same training as FedAvg's, better on a client's own test."""
    found = {}
    for method, arguments in (("fedavg", {}), ("fedavg-ft", {"head": "all", "epochs": 3})):
        found[method] = start(settings(method, arguments=arguments), tmp_path / method).summary
    assert "personal_accuracy" not in found["fedavg"]
    assert found["fedavg-ft"]["accuracy"] == found["fedavg"]["accuracy"]
    assert found["fedavg-ft"]["client_accuracy"] == found["fedavg"]["client_accuracy"]
    assert found["fedavg-ft"]["personal_accuracy"] > found["fedavg"]["client_accuracy"] + 0.05


@pytest.mark.usefixtures("tiny")
def test_a_lost_state_gives_no_number_and_states_elsewhere_are_found(tmp_path: Path) -> None:
    ready = prepare(settings("ditto"))
    with open_simulation(ready, tmp_path) as simulation:
        state = simulation.run(2)
        measure = Measure(ready, simulation)
        result = measure.personal(state)
        assert measure.has_personal and not result.isnan().any() and measure.personal(state) is result
        simulation.root = tmp_path  # type: ignore[attr-defined, attr-defined]  # as an engine whose workers are elsewhere says
        assert torch.equal(Measure(ready, simulation).personal(state), result)
        client = max(state.accepted)
        for lost in (tmp_path / "0" / str(client)).iterdir():
            lost.unlink()
        gone = Measure(ready, simulation).personal(state)
    assert gone.isnan().nonzero().flatten().tolist() == [client]
    kept = replace(ready, algorithm=FEDAVG, local=replace(ready.local, buffers="keep"))
    assert Measure(kept, simulation).has_personal and not Measure(replace(kept, local=Local()), simulation).has_personal
