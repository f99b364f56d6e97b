"""How models are made: anew, with shapes, under a seed."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from undrift.core.tasks.model_factory import initial_model


def test_a_model_that_is_returned_twice_is_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2))
    initial_model(lambda: net, 0)
    for shared in (lambda: net, lambda: nn.Sequential(nn.ReLU(), net)):
        with pytest.raises(
            TypeError, match=r"it returned Linear of an earlier model again.*lambda: copy.deepcopy\(net\)"
        ):
            initial_model(shared, 0)
    copies: list[Any] = [initial_model(lambda: deepcopy(net), 0) for _ in range(2)]
    assert torch.equal(copies[0][1].weight, copies[1][1].weight)


def test_a_frozen_part_may_be_shared() -> None:
    backbone = nn.Linear(3, 2).requires_grad_(False)
    models: list[Any] = [initial_model(lambda: nn.Sequential(backbone, nn.Linear(2, 2)), 0) for _ in range(2)]
    assert models[0][0] is models[1][0] and models[0][1] is not models[1][1]


def test_layers_without_a_shape_are_named() -> None:
    with pytest.raises(TypeError, match=r"0.weight of Sequential has no shape yet; pass a batch through the model"):
        initial_model(lambda: nn.Sequential(nn.LazyLinear(3)), 0)

    def make() -> nn.Module:
        net = nn.Sequential(nn.LazyLinear(3))
        net(torch.zeros(1, 4))
        return net

    made: Any = initial_model(make, 0)
    assert made[0].weight.shape == (3, 4)
