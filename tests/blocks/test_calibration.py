"""Adapted logits, against one step of gradient descent on the adapted loss written out."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from undrift import Algorithm, Local, Simulation, TensorTask
from undrift.blocks import CalibratedLogits, RestrictedLogits
from undrift.core.method.block import AnyBlock

INPUTS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 0, 0, 2, 2, 0, 2])
"""Four examples of class 0 and three of class 2; classes 1 and 3 are missing."""


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Linear(3, 4)


def step(block: AnyBlock) -> Tensor:
    task = TensorTask(network, INPUTS, LABELS, [torch.arange(7)])
    local = Local(lr=0.5, batch_size=7, epochs=1, weight_decay=0.0, clip=None)
    return Simulation(Algorithm(objective=block), task, local).run(1).params  # type: ignore[arg-type]


def by_hand(shift: list[float], factor: list[float]) -> Tensor:
    model = network()
    logits = model(INPUTS) * torch.tensor(factor) - torch.tensor(shift)
    cross_entropy(logits, LABELS).backward()
    return torch.cat([(p - 0.5 * p.grad).reshape(-1).detach() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("block", "shift", "factor"),
    [
        (CalibratedLogits(2.0), [2 * 4**-0.25, float("inf"), 2 * 3**-0.25, float("inf")], [1.0] * 4),
        (CalibratedLogits(0.0), [0.0] * 4, [1.0] * 4),
        (RestrictedLogits(0.25), [0.0] * 4, [1.0, 0.25, 1.0, 0.25]),
        (RestrictedLogits(1.0), [0.0] * 4, [1.0] * 4),
    ],
    ids=str,
)
def test_a_step_by_hand(block: AnyBlock, shift: list[float], factor: list[float]) -> None:
    torch.testing.assert_close(step(block), by_hand(shift, factor), rtol=0, atol=1e-6)


def test_missing_classes_are_not_pushed_down() -> None:
    before = torch.cat([p.reshape(-1).detach() for p in network().parameters()])
    moved = (step(CalibratedLogits()) - before)[:12].view(4, 3)
    assert moved[1].abs().max() < 1e-7 < moved[0].abs().max()


def test_labels_are_needed() -> None:
    task = TensorTask(network, INPUTS, torch.randn(7, 4), [torch.arange(7)], criterion=nn.MSELoss())
    with pytest.raises(Exception, match="CalibratedLogits needs labels"):
        Simulation(Algorithm(objective=CalibratedLogits()), task, Local(lr=0.1), failures="raise").run(1)
