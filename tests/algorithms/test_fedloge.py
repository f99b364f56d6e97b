"""FedLoGe: an oracle, its corners, what moves the features, and personal models."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle import features as slow
from oracle.methods import Settings
from support.rounds import close, flat, path
from test_personal_methods import Wide, own_models
from undrift import Local, Simulation, cost, parse
from undrift.algorithms import make
from undrift.blocks.corners import corners, sparse_corners
from undrift.testing import blobs

TASK = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.05, decay=0.9, clip=1.0, weight_decay=0.01, epochs=2, batch_size=4)
CASES: list[dict[str, Any]] = [{}, {"sparsity": 0.0, "length": 2.0}, {"sparsity": 0.3, "length": 1.0}]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("cohort", [3, 5])
@pytest.mark.parametrize("arguments", CASES, ids=str)
def test_equals_its_oracle(arguments: dict[str, Any], cohort: int) -> None:
    settings = Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected, own = slow.fedloge(Wide(TASK, LOCAL, cohort, 2), settings, 4, **arguments)
    simulation = Simulation(make("fedloge", **arguments), TASK, LOCAL, cohort=cohort, seed=2)
    states = [state for state, _ in simulation.rounds(4)]
    close(torch.stack([state.params for state in states]), flat(expected), 1e-10)
    close(torch.stack(own_models(simulation, states[-1])), flat([own[i] for i in range(TASK.population)]), 1e-10)


@pytest.mark.parametrize(("classes", "dimension"), [(2, 8), (10, 84), (10, 30), (47, 200)])
def test_sparse_corners_are_nearly_a_regular_simplex(classes: int, dimension: int) -> None:
    v = sparse_corners(classes, dimension)
    assert int((v == 0).sum()) >= int(0.6 * v.numel())
    cosines = v.T @ v
    close(cosines.diagonal(), torch.ones(classes))
    assert float((cosines - corners(classes, dimension).T @ corners(classes, dimension)).abs().max()) < 0.005


def test_corners_without_zeros_are_those_of_a_simplex() -> None:
    close(sparse_corners(4, 9, 0.0), corners(4, 9))


def test_corners_that_lose_a_class_are_refused() -> None:
    with pytest.raises(ValueError, match="95% zeros leave none to some class; lower sparsity"):
        sparse_corners(5, 6, 0.95)


def test_heads_do_not_move_the_features() -> None:
    """Another first head: the same body after three rounds, up to clipping, which sees the gradients of both."""
    other = replace(TASK, make=lambda: _doubled())
    free = replace(LOCAL, clip=None)
    found, expected = (path(make("fedloge"), task, free, 3, 5)[:, :-15] for task in (other, TASK))
    close(found, expected, 1e-10)


def _doubled() -> torch.nn.Module:
    model = TASK.make()
    with torch.no_grad():
        model.get_parameter("head.weight").mul_(2)
    return model


def test_a_client_without_a_round_has_rows_of_equal_length() -> None:
    simulation = Simulation(make("fedloge"), TASK, LOCAL, cohort=2, seed=2)
    state = simulation.run(1)
    (absent, *_) = set(range(TASK.population)) - set(simulation.sample(0))
    rows = own_models(simulation, state)[absent][-15:-3].view(3, 4)
    close(rows.norm(dim=1), torch.full((3,), 1.7, dtype=torch.float64))


def test_one_gradient_per_step_and_the_traffic_of_fedavg() -> None:
    found, plain = cost(make("fedloge")), cost(make("fedavg"))
    assert (found.gradients_per_step, found.up, found.down) == (plain.gradients_per_step, plain.up, plain.down)


def test_clients_with_one_class_stay_finite() -> None:
    alone = replace(TASK, targets=torch.zeros_like(TASK.targets))
    simulation = Simulation(make("fedloge"), alone, LOCAL)
    assert all(bool(torch.isfinite(x).all()) for x in own_models(simulation, simulation.run(3)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedloge(sparsity=1)", r"FixedCorners: sparsity must be in \[0, 1\), got 1"),
        ("fedloge + objective:balanced-simplex", "the model of objective=BalancedSimplex has a fixed one|both fill"),
        ("fedloge + local-adam", "RealignedHead"),
    ],
)
def test_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        parse(text)
