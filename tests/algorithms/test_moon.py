"""MOON's contrast: its oracle, its limits, its numbers, and what it does to models it does not know."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oracle import drift, methods
from support.rounds import View, close, flat, path, rounds_to
from undrift import Local, Simulation, TensorTask
from undrift.algorithms import fedavg, make
from undrift.blocks.objective.contrast import Contrast, contrast
from undrift.core.client.visit import ClientError
from undrift.testing import Quadratics, blobs

TASK = blobs((5, 12, 7, 9, 3))
LOCAL = Local(lr=0.2, decay=0.9, clip=1.0, weight_decay=0.01, epochs=2, batch_size=4)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("features", ["", "projection", "body"])
def test_equals_its_oracle(features: str) -> None:
    arguments: dict[str, Any] = {"mu": 1.5, "temperature": 0.4, "features": features}
    settings = methods.Settings(LOCAL.lr, LOCAL.decay, LOCAL.weight_decay, LOCAL.clip)
    expected = flat(drift.moon(View(TASK, LOCAL, 3, 2), settings, 5, **arguments))  # type: ignore[arg-type]
    found = path(make("moon", **arguments), TASK, LOCAL, 5, 3, 2)
    close(found, expected)
    assert float((found - path(fedavg(), TASK, LOCAL, 5, 3, 2)).abs().max()) > 1e-3


def test_without_strength_or_a_last_model_it_is_fedavg() -> None:
    assert torch.equal(path(make("moon", mu=0.0), TASK, LOCAL, 4, 3), path(fedavg(), TASK, LOCAL, 4, 3))
    assert torch.equal(path(make("moon"), TASK, LOCAL, 1), path(fedavg(), TASK, LOCAL, 1))


def test_contrast_of_given_cosines() -> None:
    z, across = torch.tensor([[2.0, 0.0]]).double(), torch.tensor([[0.0, 3.0]]).double()
    rounds_to(contrast(z, z * 4, across, 0.5), "0.1269280110")
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(6, 2, 3, generator=draw, dtype=torch.float64).requires_grad_()
    other = torch.randn(6, 2, 3, generator=draw, dtype=torch.float64)
    same = contrast(z, other, other, 0.5)
    close(same.detach(), torch.log(torch.tensor(2.0).double()))
    close(torch.autograd.grad(same, z)[0], torch.zeros(6, 2, 3))


def test_no_hook_outlives_its_round_even_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(make("moon"), TASK, LOCAL)
    hooks, state = simulation.worker.model.module.get_submodule("head")._forward_pre_hooks, simulation.run(2)
    assert not hooks

    def fail(*_: object) -> Tensor:
        assert len(hooks) == 1
        raise ValueError("no")

    monkeypatch.setattr(Contrast, "_features_at", fail)
    with pytest.raises(ClientError, match=r"step 0, objective=Contrast.penalty: no"):
        simulation.round(state, [0])
    gc.collect()
    assert not hooks


class Pooled(nn.Module):
    """A network without a linear layer, whose second part answers with a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.pair = nn.Conv1d(1, 3, 2), Pair()

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        out: Tensor = self.pair(self.first(x[:, None]))[0].mean(-1)
        return out


class Pair(nn.Module):
    """Answers with a pair."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same twice."""
        return x, x


def test_models_without_a_linear_layer_need_a_name() -> None:
    task = TensorTask(lambda: Pooled().double(), TASK.inputs, TASK.targets, TASK.clients)
    with pytest.raises(ClientError, match=r"Contrast.begin: Contrast: Pooled has no linear layer .* features="):
        path(make("moon"), task, LOCAL, 1)
    with pytest.raises(ClientError, match=r"tap: the model has no layer 'neck'; it has first, pair"):
        path(make("moon", features="neck"), task, LOCAL, 1)
    with pytest.raises(ClientError, match=r"must be one tensor per forward pass, pair gave tuple; name another"):
        path(make("moon", features="pair"), task, LOCAL, 2)
    assert bool(torch.isfinite(path(make("moon", features="first"), task, LOCAL, 3)).all())
    with pytest.raises(ClientError, match="no linear layer"):
        path(make("moon"), Quadratics.random(), LOCAL, 1)


def test_other_models_are_seen_in_evaluation_mode() -> None:
    simulation = Simulation(make("moon"), TASK, Local(batch_size=12))
    state, modes = simulation.run(1), []
    head = simulation.worker.model.module.get_submodule("head")
    head.register_forward_hook(lambda module, inputs, output: modes.append(module.training))
    simulation.round(state, [1])
    assert modes == [True, False, False]


@pytest.mark.quick
def test_blobs_are_skewed_and_the_same_at_every_call() -> None:
    one, two = blobs(), blobs()
    assert torch.equal(one.inputs, two.inputs) and [len(own) for own in one.clients] == [4, 9, 3, 7]
    assert one.inputs.dtype == torch.float64 and one.model()(one.inputs).shape == (23, 3)
    most = [int(one.label_counts(i).argmax()) for i in range(4)]  # type: ignore[union-attr]
    assert len(set(most)) > 1
    assert not torch.equal(blobs(seed=1).inputs, one.inputs)
