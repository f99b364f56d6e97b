"""FedETF: its oracle, a value by hand, its limits, what travels, and models and methods that it refuses."""

from dataclasses import replace
from functools import partial
from math import exp
from pathlib import Path

import pytest
import torch
from torch import nn

from oracle import labels, methods
from support.rounds import View, close, flat, path
from test_label_methods import LOCAL, counts
from undrift import Local, Simulation, TensorTask, make, parse
from undrift.algorithms import fedavg, fedetf
from undrift.models import Simplex, corners
from undrift.runs import Config, ConfigError
from undrift.runs.setup.prepare import prepare
from undrift.testing import blobs


def network(dimension: int = 4) -> Simplex:
    """A hidden layer before the simplex of three classes, in double precision throughout."""
    model = Simplex(nn.Sequential(nn.Linear(5, 6), nn.Tanh()), 6, 3, dimension, 2.0).double()
    model.vertices = corners(3, dimension)
    return model


TASK = replace(blobs((5, 12, 7, 9, 3)), make=network)
SETTINGS = methods.Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)


@pytest.mark.parametrize(("tau", "dimension"), [(1.0, 4), (0.5, 3)])
def test_equals_its_oracle(tau: float, dimension: int) -> None:
    """Of "fedetf", whose corners the oracle makes by itself."""
    task = replace(TASK, make=partial(network, dimension))
    view, v = View(task, LOCAL, 3, 2), labels.corners(3, dimension, 0)
    expected = flat(labels.METHODS["fedetf"](view, SETTINGS, 4, counts(task), tau=tau, corners=v))
    found = path(fedetf(tau), task, LOCAL, 4, 3, 2)
    close(found, expected)
    assert float((found - path(fedavg(), task, LOCAL, 4, 3, 2)).abs().max()) > 1e-3


def by_the_axes() -> Simplex:
    """Two classes in a plane, features that are the inputs, and U = I: V = [[1, -1], [-1, 1]] / sqrt(2)."""
    model = Simplex(nn.Identity(), 2, 2).double()
    model.vertices = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).double() / 2**0.5
    with torch.no_grad():
        model.head.weight.copy_(torch.eye(2))
        model.head.bias.zero_()
    return model


def test_a_step_of_the_scale_by_hand() -> None:
    """With q = sqrt(2), three examples (1, 0) of class 0 are wrong with 1 / (1 + 3e^q), (0, 2) of 1 with 3 / (3 + e^q).

    Their mean, (3 * 0.0749645 + 0.4217481) / 4, times q is by how much s grows at rate 1: 0.2286222.
    """
    x = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 2.0]]).double()
    task = TensorTask(by_the_axes, x, torch.tensor([0, 0, 0, 1]), [torch.arange(4)])
    state = Simulation(fedetf(), task, Local(lr=1.0, batch_size=4)).run(1)
    q = 2**0.5
    wrong = (3 / (1 + 3 * exp(q)) + 3 / (3 + exp(q))) / 4
    close(state.params[0], 1 + q * wrong)
    close(state.params[0], 1.2286222, 1e-6)


def test_without_balance_it_is_fedavg() -> None:
    assert torch.equal(path(fedetf(0.0), TASK, LOCAL, 3, 3), path(fedavg(), TASK, LOCAL, 3, 3))


def test_balanced_clients_have_fedavg() -> None:
    balanced = replace(TASK, targets=torch.arange(len(TASK.targets)) % 3, clients=torch.arange(36).split(6))
    close(path(fedetf(), balanced, LOCAL, 3, 3), path(fedavg(), balanced, LOCAL, 3, 3), 1e-7)


def test_a_client_with_one_class_stays_finite() -> None:
    """Only its own class is in the softmax, so it does not move but for weight decay."""
    alone = replace(TASK, targets=torch.zeros_like(TASK.targets))
    plain = replace(LOCAL, weight_decay=0.0)
    found = path(fedetf(), alone, plain, 3, 3)
    close(found, found[:1].expand_as(found))
    assert bool(torch.isfinite(path(fedetf(), alone, LOCAL, 3, 3)).all())


def test_the_scale_is_averaged_and_the_corners_stay() -> None:
    simulation = Simulation(fedetf(), TASK, LOCAL)
    state = simulation.run(3)
    trained = simulation.module(state)
    assert trained.scale.item() == float(state.params[0]) != 2.0  # type: ignore[operator]
    assert torch.equal(trained.vertices, corners(3, 4))  # type: ignore[arg-type]
    assert len(state.params) == sum(p.numel() for p in network().parameters())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedetf + combined-heads", "objective=BalancedSimplex has a fixed one; use fedper"),
        ("fedetf + fedcr", "no model fits all blocks|both fill|BalancedSimplex"),
        ("fedetf + fed-sb", "no model fits all blocks: .* 'simplex' and .* 'cored' is needed|'cored' and .* 'simplex'"),
    ],
)
def test_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        parse(text)


def test_another_model_is_refused() -> None:
    with pytest.raises(Exception, match=r"Projected has no fixed corners of a simplex, .* use model 'simplex-cnn', or"):
        Simulation(fedetf(), blobs(), LOCAL, failures="raise").run(1)


def test_heads_with_a_row_per_class_refuse_the_model() -> None:
    with pytest.raises(Exception, match="TowardsPrototypes needs a model whose last module is linear"):
        Simulation(make("fedpac"), replace(TASK, make=partial(network, 3)), LOCAL, failures="raise").run(1)


def test_a_run_has_such_a_model_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n}.5,{n % 7},{'pos' if n % 2 else 'neg'}" for n in range(80)]
    Path("cls.csv").write_text("\n".join(["a,b,label", *rows]))
    settings = {"method": "fedetf", "partition": "iid", "clients": 4}
    assert prepare(Config.build({**settings, "data": "digits"})).config.model == "simplex-cnn"
    own = r"fedetf needs a simplex model, and 'simplex-cnn' reads no table data; .* undrift.models.Simplex\(body, ...\)"
    with pytest.raises(ConfigError, match=own):
        prepare(Config.build({**settings, "data": "cls.csv"}))
    with pytest.raises(ConfigError, match="'small-cnn' is none; for image data use model 'simplex-cnn'"):
        prepare(Config.build({**settings, "data": "digits", "model": "small-cnn"}))
    with pytest.raises(ConfigError, match="model: BalancedSimplex: MLP has no fixed corners"):
        prepare(Config.build({**settings, "data": "cls.csv", "model": "undrift.models:MLP"}))
