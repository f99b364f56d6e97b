"""Training and evaluation modes of a worker's model: personal models are evaluated, and training does not notice."""

from typing import Any

import pytest
import torch
from torch import nn

from undrift import Local, ServerState, Simulation, TensorTask
from undrift.core.model.modules import to_train
from undrift.testing import fingerprint

INPUTS = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
CLIENTS = [list(range(first, first + 10)) for first in range(0, 40, 10)]
LOCAL = Local(lr=0.05, batch_size=5)


class Net(nn.Module):
    """Batch normalisation and dropout, which differ in their two modes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        out: torch.Tensor = self.layers(x)
        return out


def simulation(method: str = "scaffold", make: type[nn.Module] = Net, **given: Any) -> Simulation:
    local = Local(lr=0.05, batch_size=5, **given)
    return Simulation(method, TensorTask(make, INPUTS, torch.arange(40) % 2, CLIENTS), local)


def spoiling(_: object, model: nn.Module, client: int) -> float:
    """A score that leaves the model in evaluation mode, with gradients."""
    model.eval()
    model(INPUTS).sum().backward()
    return float(client)


@pytest.mark.parametrize("method", ["scaffold", "ditto", "fedavg-ft(epochs=1)"])
def test_a_personal_model_is_ready_to_evaluate(method: str) -> None:
    run = simulation(method)
    state = run.run(1)
    model = run.personal(state, 0)
    assert not any(part.training for part in model.modules())
    assert torch.equal(model(INPUTS), model(INPUTS))
    assert run.scores(state, [0], lambda task, own, client: float(own.training)) == {0: 0.0}


@pytest.mark.parametrize("together", [1, 2])
def test_training_goes_on_in_its_own_modes_whatever_an_evaluation_did(together: int) -> None:
    make = Net if together == 1 else Dropping
    reference, run = simulation(make=make, together=together), simulation(make=make, together=together)
    state = run.run(1)
    run.personal(state, 0)
    run.scores(state, range(4), spoiling)
    assert fingerprint(run.run(1, state)) == fingerprint(reference.run(2))
    assert all(p.grad is None for p in run.worker.model.module.parameters())


class Dropping(nn.Module):
    """Dropout alone: clients with batch normalisation are not trained together."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits, halved while the model is trained."""
        out: torch.Tensor = self.out(self.layer(x)) * (0.5 if self.training else 1.0)
        return out


class Frozen(Net):
    """Its batch normalisation keeps the statistics that it came with."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[1].requires_grad_(False).eval()
        self.layers[1].running_mean += 1  # type: ignore[assignment, operator]


def statistics(state: ServerState) -> list[float]:
    return [float(x) for x in state.buffers[:4]]


def test_batch_normalisation_that_is_frozen_stays_frozen() -> None:
    run = simulation(make=Frozen)
    state = run.run(1)
    assert statistics(state) == [1.0] * 4 and statistics(simulation().run(1)) != [0.0] * 4
    run.scores(state, [0], spoiling)
    assert statistics(run.run(1, state)) == [1.0] * 4
    assert [part.training for part in run.worker.model.module.layers] == [True, False, True, True]  # type: ignore[union-attr]


def test_a_model_that_comes_in_evaluation_mode_is_trained_as_a_whole() -> None:
    net = Net().eval()
    assert all(part.training for part in to_train(net).modules())
    net.layers[1].eval()  # its parameters are trained: it is not frozen
    assert all(part.training for part in to_train(net).modules())
