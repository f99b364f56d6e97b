"""How a task's model is made, and what cannot make one."""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.parameter import is_lazy

_made: WeakSet[nn.Module] = WeakSet()  # of each model that was made, the first part with weights that train


def initial_model(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A new model, built under a seed; the global random stream is left as it was.

    It raises if the model shares weights that train with one made before, or has layers without a shape.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = make()
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise TypeError(
                f"make: {name} of {type(model).__name__} has no shape yet; pass a batch through the model in make, as "
                "in net = Net(); net(torch.zeros(1, 3, 32, 32)); return net"
            )
    for part in model.modules():
        if any(parameter.requires_grad for parameter in part.parameters(recurse=False)):
            if part in _made:
                raise TypeError(
                    f"make: it returned {type(part).__name__} of an earlier model again, whose weights are trained "
                    "already; build the model anew, as in lambda: Net(10), or copy it: lambda: copy.deepcopy(net)"
                )
            _made.add(part)
            break
    return model


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
