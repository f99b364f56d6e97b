"""The optimizers of torch in place of the oracles' SGD step: `Settings.mover` may return one of these."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .methods import Params


class TorchMover:
    """x after a step of a `torch.optim` optimizer, which lives as long as this object."""

    def __init__(self, make: Callable[..., torch.optim.Optimizer], **settings: Any) -> None:
        self.make, self.settings = make, settings
        self.parameters: dict[str, nn.Parameter] = {}

    def __call__(self, lr: float, x: Params, g: Params) -> Params:
        """One step from x along g."""
        if not self.parameters:
            self.parameters = {name: nn.Parameter(value.detach().clone()) for name, value in x.items()}
            self.optimizer = self.make(list(self.parameters.values()), lr=lr, **self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for name, parameter in self.parameters.items():
            parameter.data.copy_(x[name])
            parameter.grad = g[name].detach().clone()
        self.optimizer.step()
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
