"""Parts of a model, named before there is a model: the last layer, all of it, or tensors by their names."""

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor

from undrift.core.model.flat_model import Layout

Part: TypeAlias = str | tuple[str, ...]
"""Name patterns such as ("head.*",); "last", the tensors of the last module that has any; or "all"; () is nothing."""


def check(block: str, part: Part) -> None:
    """Refuse what names no part of a model."""
    if isinstance(part, str) and part not in ("last", "all"):
        raise TypeError(
            f'{block}: names must be a tuple of patterns, "last" or "all", got the string {part!r}; write ({part!r},)'
        )
    if not isinstance(part, str | tuple):
        raise TypeError(f'{block}: names must be a tuple of patterns, "last" or "all", got {part!r}')


@lru_cache(maxsize=64)
def mask(block: str, part: Part, layout: Layout, device: torch.device | None = None) -> Tensor:
    """A boolean vector, true on the part, on a device (None is the CPU); every pattern must name something.

    The last module is the one of the last tensor: its tensors lie in a row and share their name up to the last dot, as
    "classifier.4.weight" and "classifier.4.bias" do. It is the linear head of every model here.
    """
    if device is not None and device.type != "cpu":
        return mask(block, part, layout).to(device)
    if isinstance(part, str):
        out = torch.zeros(layout.size, dtype=torch.bool)
        out[layout.layers[-1] if part == "last" else slice(None)] = True
        return out
    for pattern in part:
        if not any(fnmatchcase(name, pattern) for name in layout.names):
            raise ValueError(f"{block}: no tensor is named {pattern!r}; the model has {', '.join(layout.names)}")
    return layout.mask(lambda name, _: any(fnmatchcase(name, pattern) for pattern in part))


@lru_cache(maxsize=64)
def others(block: str, part: Part, layout: Layout) -> Tensor:
    """A boolean vector, true on all but the part."""
    return ~mask(block, part, layout)
