"""FedLC, FedRS, FedNTD, FedVLS, FedDecorr and FedUV: oracles, limiting cases, and clients with one class."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle import labels, methods
from support.rounds import View, close, flat, path
from undrift import Algorithm, Local, Simulation
from undrift.algorithms import fedavg, make
from undrift.blocks import BalancedLogits
from undrift.blocks.objective.features import correlation, crowding
from undrift.core.tasks.tensor_task import TensorTask
from undrift.testing import blobs

TASK = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.2, decay=0.9, clip=1.0, weight_decay=0.01, epochs=2, batch_size=4)
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedlc", {"tau": 0.5}),
    ("fedrs", {"alpha": 0.3}),
    ("fedntd", {"beta": 1.5, "tau": 2.0}),
    ("fedvls", {"lam": 0.7, "suppression": 0.05}),
    ("fedvls", {"lam": 0.0, "suppression": 0.05, "literal": True}),
    ("feddecorr", {"beta": 0.8}),
    ("feddecorr", {"beta": 0.1, "literal": True}),
    ("feduv", {"lam": 1.5, "mu": 0.6}),
]


def counts(task: TensorTask) -> dict[int, list[int]]:
    """The examples of each of three classes, client by client."""
    return {i: torch.bincount(task.targets[own], minlength=3).tolist() for i, own in enumerate(task.clients)}


def compare(name: str, arguments: dict[str, Any], tolerance: float) -> None:
    """Compare a method with its oracle, and see that it is not FedAvg."""
    settings = methods.Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected = flat(labels.METHODS[name](View(TASK, LOCAL, 3, 2), settings, 4, counts(TASK), **arguments))
    found = path(make(name, **arguments), TASK, LOCAL, 4, 3, 2)
    close(found, expected, tolerance)
    assert float((found - path(fedavg(), TASK, LOCAL, 4, 3, 2)).abs().max()) > 1e-3


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=str)
def test_equals_its_oracle(name: str, arguments: dict[str, Any]) -> None:
    compare(name, arguments, 1e-10)


def test_balanced_logits_equal_their_oracle() -> None:
    settings = methods.Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected = flat(labels.METHODS["balanced"](View(TASK, LOCAL, 3, 2), settings, 4, counts(TASK)))
    close(path(Algorithm(objective=BalancedLogits()), TASK, LOCAL, 4, 3, 2), expected)
    vacant = make("fedvls", lam=0.0, suppression=0.0)  # the same but for 1e-9 in the frequencies
    close(path(vacant, TASK, LOCAL, 4, 3, 2), expected, 1e-6)


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("fedlc", {"tau": 0.0}),
        ("fedrs", {"alpha": 1.0}),
        ("fedntd", {"beta": 0.0}),
        ("feddecorr", {"beta": 0.0}),
        ("feduv", {"lam": 0.0, "mu": 0.0}),
    ],
)
def test_switched_off_it_is_fedavg(name: str, off: dict[str, Any]) -> None:
    assert torch.equal(path(make(name, **off), TASK, LOCAL, 3, 3), path(fedavg(), TASK, LOCAL, 3, 3))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("fedlc", {}), ("fedrs", {}), ("fedvls", {"suppression": 0.0}), ("fedvls", {"lam": 3.0, "suppression": 0.0})],
)
def test_balanced_clients_have_fedavg(name: str, arguments: dict[str, Any]) -> None:
    balanced = replace(TASK, targets=torch.arange(len(TASK.targets)) % 3, clients=torch.arange(36).split(6))
    close(path(make(name, **arguments), balanced, LOCAL, 3, 3), path(fedavg(), balanced, LOCAL, 3, 3), 1e-7)


def test_one_step_has_no_distillation() -> None:
    once = replace(LOCAL, epochs=1, steps=1)
    close(path(make("fedntd"), TASK, once, 4, 3), path(fedavg(), TASK, once, 4, 3))


@pytest.mark.parametrize(("name", "arguments"), CASES, ids=str)
def test_a_client_with_one_class_stays_finite(name: str, arguments: dict[str, Any]) -> None:
    alone = replace(TASK, targets=torch.zeros_like(TASK.targets))
    assert bool(torch.isfinite(path(make(name, **arguments), alone, LOCAL, 3, 3)).all())


def test_correlations() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=draw, dtype=torch.float64)
    white = torch.linalg.qr(x - x.mean(dim=0)).Q
    close(correlation(white), 0.0)
    close(correlation(torch.stack([x[:, 0], -2 * x[:, 0]], dim=1)), 1.0, 1e-6)
    rho = torch.corrcoef(x.T)
    close(correlation(x), (rho.square().sum() - 3) / 6, 1e-7)


def test_literal_decorrelation_grows_with_the_batch() -> None:
    """The term of one step: (B - 1)^2 / B times the paper's."""
    whole = Local(lr=0.1, steps=1, batch_size=12)
    start = path(fedavg(), TASK, whole, 1)

    def moved(beta: float, literal: bool) -> torch.Tensor:
        method = make("feddecorr", beta=beta, literal=literal)
        simulation = Simulation(method, TASK, whole)
        return simulation.round(simulation.start(), [1])[0].params

    plain = moved(0.0, False)
    close(moved(0.1, True) - plain, (moved(0.1, False) - plain) * 11**2 / 12, 1e-9)
    assert start.shape == (1, len(plain))


def test_crowding_of_equal_rows_and_of_a_pair() -> None:
    close(crowding(torch.ones(3, 2).double()), 1.0)
    x = torch.tensor([[0.0], [1.0], [3.0]]).double()
    close(crowding(x), sum(2.718281828459045 ** -(d / 4) for d in (1, 9, 4)) / 3)


def test_features_that_are_no_rows_are_refused() -> None:
    with pytest.raises(Exception, match="the model has no layer 'neck'"):
        Simulation(make("feddecorr", features="neck"), TASK, LOCAL, failures="raise").run(1)
