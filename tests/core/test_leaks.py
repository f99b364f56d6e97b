"""Nothing goes from one client of a worker to the next but what travels."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from undrift import Algorithm, Local, Simulation, TensorTask
from undrift.core import Objective, Step, Vector
from undrift.core.client.visit import ClientError
from undrift.core.model.flat_model import bind

INPUTS = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))


class Moving(nn.Module):
    """A layer and a moving mean of its outputs, kept in some way."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer, self.kind = nn.Linear(5, 3), kind
        if kind == "frozen":
            self.mean = nn.Parameter(torch.zeros(3), requires_grad=False)
        else:
            self.register_buffer("mean", torch.zeros(3), persistent=kind == "travels")

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layer(x)
        if self.training:
            with torch.no_grad():
                if self.kind == "replaced":
                    self.mean = self.mean.lerp(outputs.mean(0), 0.1)  # type: ignore[assignment]
                else:
                    (self.mean.data if self.kind == "data" else self.mean).lerp_(outputs.mean(0), 0.1)
        out: Tensor = outputs + self.mean
        return out


def task(make: Any) -> TensorTask:
    """Four clients of three examples."""
    return TensorTask(make, INPUTS, torch.arange(12) % 3, [list(range(i, 12, 4)) for i in range(4)])


@pytest.mark.parametrize("kind", ["travels", "outside", "replaced", "data"])
def test_the_order_of_clients_does_not_matter(kind: str) -> None:
    found = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        simulation = Simulation("fedavg", task(lambda: Moving(kind)), failures="raise")
        found.append(simulation.round(simulation.start(), clients=order)[0].params)
    assert torch.equal(*found)


def test_a_frozen_parameter_that_a_pass_changes_is_an_error() -> None:
    simulation = Simulation("fedavg", task(lambda: Moving("frozen")), failures="raise")
    with pytest.raises(ClientError, match=r"changed mean, a parameter that is not trained.*register it as a buffer"):
        simulation.round(simulation.start(), clients=[0])
    with pytest.raises(RuntimeError, match="register it as a buffer"):
        simulation.worker.model.check()
    bound = bind(Moving("frozen"))
    bound.load_state({**Moving("frozen").state_dict(), "mean": torch.ones(3)})
    bound.check_frozen()


def test_an_embedding_that_keeps_its_norm_may_be_frozen() -> None:
    module = nn.Sequential(nn.Embedding(4, 3, max_norm=0.1), nn.Linear(3, 2))
    module[0].weight.requires_grad_(False)
    bound = bind(module)
    module(torch.arange(4))
    bound.check_frozen()


@dataclass(frozen=True)
class Look(Objective):
    """Looks at the loss beside training, or takes a second gradient."""

    how: str = ""

    def adjust(self, grad: Vector, state: None, step: Step) -> Vector:
        if self.how == "loss":
            step.loss_at(step.w0, step.batch)
        if self.how == "gradient":
            kept = grad.clone()
            step.gradient()
            return kept
        return grad


@pytest.mark.parametrize("kind", ["travels", "outside", "replaced"])
@pytest.mark.parametrize("how", ["loss", "gradient"])
def test_a_look_beside_training_moves_no_buffer(kind: str, how: str) -> None:
    found = []
    for looking in ("", how):
        simulation = Simulation(Algorithm(objective=Look(looking)), task(lambda: Moving(kind)), Local(batch_size=1))
        found.append(simulation.round(simulation.start(), clients=[0])[0].params)
    assert torch.equal(*found)


class Masked(nn.Module):
    """A layer and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)
        self.register_buffer("mask", torch.triu(torch.full((4, 4), float("-inf")), 1))
        self.register_buffer("least", torch.full((2,), torch.finfo(torch.float32).min))
        self.register_buffer("wide", torch.zeros(1).expand(3), persistent=False)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self.scale
        return out


def test_masks_do_not_travel() -> None:
    simulation = Simulation("fedavg", task(Masked), failures="raise")
    state = simulation.run(2)
    assert state.buffers.tolist() == [1.0]
    module = simulation.module(state)
    assert torch.equal(module.mask, Masked().mask) and torch.equal(module.least, Masked().least)  # type: ignore[arg-type]


def test_a_loss_without_a_graph_says_so() -> None:
    bound = bind(nn.Linear(2, 1))
    with pytest.raises(ValueError, match="does not depend on the model's trainable parameters; compute it from"):
        bound.gradient(torch.zeros(()))
