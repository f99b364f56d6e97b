"""How a task's model is made, and what cannot make one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def initial_model(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A new model, built under a seed; the global random stream is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def check_make(where: str, make: Any) -> None:
    """Raise if something cannot make a model: a model itself, whose weights would be shared, or no function at all.

    Args:
        where: the task, for errors.
        make: what was given.
    """
    if isinstance(make, nn.Module) or not callable(make):
        raise TypeError(
            f"{where}: make builds the model anew whenever it is called; give the model's class or a function that "
            f"returns it, as in lambda: Net(10), got {'the model ' if isinstance(make, nn.Module) else ''}"
            f"{type(make).__name__}"
        )
