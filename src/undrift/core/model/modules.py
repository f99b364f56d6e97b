"""Modules as people write them: names without the wrappers of `torch.compile`, and passes that hooks can see."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

_WRAPPED = "_orig_mod"
"""The attribute in which `torch.compile` keeps the module it was given."""


def plain_name(name: str) -> str:
    """The name that a tensor or layer of a compiled model has in the model itself.

    Args:
        name: a name of the compiled model.

    Example:
        >>> plain_name("_orig_mod.encoder._orig_mod.weight")
        'encoder.weight'
    """
    return ".".join(part for part in name.split(".") if part != _WRAPPED)


def plain(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` was given.

    Args:
        module: the model, compiled or not.
    """
    return getattr(module, _WRAPPED, module)


def plain_state(module: nn.Module) -> dict[str, Tensor]:
    """The state dict of a module, with the names it has without `torch.compile`.

    Args:
        module: the model; the tensors are its own, not copies.
    """
    return {plain_name(name): x for name, x in module.state_dict().items()}


def plain_copy(module: nn.Module) -> dict[str, Tensor]:
    """The same with copies of the tensors on the host, each contiguous and in its own memory, as files want them.

    Args:
        module: the model.
    """
    form = torch.contiguous_format
    return {name: x.detach().to("cpu", copy=True, memory_format=form) for name, x in plain_state(module).items()}


def load_plain(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state dict whose names may or may not have the prefixes of `torch.compile`.

    Args:
        module: the model, compiled or not.
        state: the values; every tensor of the model must be there.
    """
    given = {plain_name(name): x for name, x in state.items()}
    own = {plain_name(name): name for name in module.state_dict()}
    module.load_state_dict({own.get(name, name): x for name, x in given.items()})


def to_train(module: nn.Module) -> nn.Module:
    """The model itself in training mode, but for batch normalisation that is frozen: it stays in evaluation mode.

    It is frozen if it is in evaluation mode, though the model is not, and has no parameter that requires a gradient.

    Args:
        module: the model, as it was made.

    Example:
        >>> norm = nn.BatchNorm1d(2).requires_grad_(False).eval()
        >>> net = to_train(nn.Sequential(nn.Linear(2, 2), norm))
        >>> net.training, norm.training
        (True, False)
    """
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm)] if module.training else []
    frozen = [x for x in norms if not x.training and not any(p.requires_grad for p in x.parameters())]
    module.train()
    for part in frozen:
        part.eval()
    return module


def is_compiled(module: nn.Module) -> bool:
    """Whether a module, or a part of it, is compiled by `torch.compile` or `module.compile()`.

    Args:
        module: the model.
    """
    parts = list(module.modules())
    return any(hasattr(part, _WRAPPED) or getattr(part, "_compiled_call_impl", None) is not None for part in parts)


@contextmanager
def eager(module: nn.Module) -> Iterator[None]:
    """Run a compiled module as it was written: hooks that were added after its compilation are called only then.

    Args:
        module: the model; nothing changes if it is not compiled.
    """
    if not is_compiled(module):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
