"""Vectors without what does not travel: a block declares the part, see `Personalization.travels`.

A vector that is zero outside of the part is sent as the part alone, and every bit is restored. Any other is sent whole.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from undrift.core.method.block import Personalization
from undrift.core.model.flat_model import Layout

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes


@dataclass(frozen=True, eq=False)
class Part:
    """The part of a vector that travels.

    Args:
        mask: true on it.
        count: how many entries it has.
    """

    mask: Tensor
    count: int

    def cut(self, x: Tensor) -> Tensor:
        """The entries of the part, if all others are zero, whose sign counts; else the vector itself."""
        x = x.detach().cpu()
        return x if x.view(_INTEGERS[x.element_size()]).masked_fill(self.mask, 0).any() else x[self.mask]

    def widen(self, x: Tensor) -> Tensor:
        """The vector of which `cut` made this one."""
        if x.shape != (self.count,):
            return x
        out = torch.zeros(len(self.mask), dtype=x.dtype)
        out[self.mask] = x
        return out


def find_part(block: Personalization[Any, Any, Any, Any, Any], layout: Layout, round: int, up: bool) -> Part | None:
    """What a client receives or uploads of a model's vector in a round; None if all of it travels.

    Args:
        block: the personalization of the method.
        layout: the names and shapes of the model's tensors.
        round: the round.
        up: uploads; otherwise what is received.
    """
    try:
        return _find(block, layout, round, up)
    except TypeError:  # a block of your own with a list in it cannot be a key
        return _find.__wrapped__(block, layout, round, up)


@lru_cache(maxsize=4)
def _find(block: Personalization[Any, Any, Any, Any, Any], layout: Layout, round: int, up: bool) -> Part | None:
    """The part, found once."""
    mask = block.travels(layout, round, up=up)
    count = layout.size if mask is None else int(mask.count_nonzero())
    return None if mask is None or count == layout.size else Part(mask, count)


def travelling(block: Personalization[Any, Any, Any, Any, Any], layout: Layout, round: int, up: bool) -> int:
    """How many numbers of a model's vector a client receives or uploads in a round: arguments as of `find_part`."""
    part = find_part(block, layout, round, up)
    return layout.size if part is None else part.count


def mean_share(block: Personalization[Any, Any, Any, Any, Any], layout: Layout, up: bool) -> float:
    """The share of a vector that travels in a later round, in the mean of two, since factors may take turns."""
    return sum(travelling(block, layout, round, up) for round in (2, 3)) / 2 / layout.size
