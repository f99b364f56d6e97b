"""FedAS and FedPAC: oracles, limiting cases, and the weights of heads."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle import features as slow
from oracle.methods import Settings
from support.rounds import close, flat, path
from test_personal_methods import Wide, own_models
from undrift import Local, Simulation, cost, parse
from undrift.algorithms import fedper, make
from undrift.blocks import ByFisher, Uniform
from undrift.blocks.aggregation.combined import simplex_minimum
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import blobs

TASK = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.2, decay=0.9, clip=1.0, weight_decay=0.01, epochs=4, batch_size=4)
CASES = [
    (make("fedas", rate=0.3), slow.fedas, {"rate": 0.3}),
    (make("fedas", rate=0.0), slow.fedas, {"rate": 0.0}),
    (make("fedpac", lam=0.7, head_epochs=1, body_epochs=3), slow.fedpac, {"lam": 0.7, "share": 0.25}),
    (make("fedpac", lam=0.0, head_epochs=1, body_epochs=1), slow.fedpac, {"lam": 0.0, "share": 0.5}),
]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("cohort", [3, 5])
@pytest.mark.parametrize(("algorithm", "oracle", "arguments"), CASES, ids=[repr(case[0]) for case in CASES])
def test_equals_its_oracle(algorithm: Any, oracle: Any, arguments: dict[str, Any], cohort: int) -> None:
    settings = Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected, own = oracle(Wide(TASK, LOCAL, cohort, 2), settings, 4, **arguments)
    simulation = Simulation(algorithm, TASK, LOCAL, cohort=cohort, seed=2)
    states = [state for state, _ in simulation.rounds(4)]
    close(torch.stack([state.params for state in states]), flat(expected), 1e-9)
    close(torch.stack(own_models(simulation, states[-1])), flat([own[i] for i in range(TASK.population)]), 1e-9)


def test_fedas_without_its_terms_is_fedper() -> None:
    equal = replace(fedper(), aggregation=Uniform())
    flat_clients = replace(make("fedas", rate=0.0), aggregation=Uniform())
    assert torch.equal(*(path(a, TASK, LOCAL, 4, 3, 2) for a in (flat_clients, equal)))


def test_batches_of_one_example_give_the_trace_of_the_fisher_matrix() -> None:
    once = replace(LOCAL, epochs=1, batch_size=1)
    (record,) = (record for _, record in Simulation(make("fedas"), TASK, once).rounds(1))
    assert record.reports["aggregation.weight"]
    assert ByFisher().weigh(None, type("Up", (), {"t": 0.5})(), 0) == 0.5  # type: ignore[arg-type]


def test_clients_with_one_class_stay_finite() -> None:
    alone: TensorTask = replace(TASK, targets=torch.zeros_like(TASK.targets))
    for name in ("fedas", "fedpac"):
        assert bool(torch.isfinite(path(make(name), alone, LOCAL, 3, 3)).all())


@pytest.mark.parametrize("seed", range(20))
def test_the_weights_of_heads_are_the_minimum(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    m = 1 + seed % 5
    rows = torch.randn(m, 2 if seed % 3 else 7, generator=draw, dtype=torch.float64)
    q = rows @ rows.T + (seed % 2) * torch.rand(m, generator=draw, dtype=torch.float64).diag()
    a, best = simplex_minimum(q), slow.best_weights(q)
    assert float(a @ q @ a) <= float(best @ q @ best) + 1e-12  # of a singular q the oracle may miss the best
    assert float(a.min()) >= 0 and abs(float(a.sum()) - 1) < 1e-9
    assert bool((q @ a >= a @ q @ a - 1e-9).all()), "not stationary"


def test_many_equal_heads_are_weighed_by_their_variances() -> None:
    v = torch.linspace(0.5, 3, 100, dtype=torch.float64)
    close(simplex_minimum(v.diag()), (1 / v) / (1 / v).sum())
    close(simplex_minimum(torch.zeros(3, 3).double()).sum(), 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedas + scaffold", "starts from an aligned body, which drift=Scaffold would take for gradient steps"),
        ("fedpac + drift:scaffnew", "moves the shared part in some of the steps only|begins with a combined head"),
        ("fedavg + combined-heads + scaffold", "begins with a combined head, which drift=Scaffold would take"),
        ("fedavg + combined-heads + buffered(3)", "compares features of one round"),
    ],
)
def test_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        parse(text)


def test_a_model_without_a_linear_head_is_refused() -> None:
    bare = TensorTask(lambda: torch.nn.Linear(5, 3, bias=False).double(), TASK.inputs, TASK.targets, TASK.clients)
    with pytest.raises(Exception, match="CombinedHeads needs a model whose last module is linear, with a bias"):
        Simulation(make("fedpac", lam=0.0), bare, LOCAL, failures="raise").run(1)


@pytest.mark.parametrize(
    ("name", "down", "up", "client", "gathers"), [("fedas", 1, 1, 1, False), ("fedpac", 2, 3, 0, True)]
)
def test_cost_table(name: str, down: int, up: int, client: int, gathers: bool) -> None:
    c = cost(make(name))
    assert (c.down, c.up, c.client_state, c.gathers) == (down, up, client, gathers) and make(name).personalized
