"""Blocks with other verbs, for tools that watch a block at work."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from typing_extensions import TypeVar

from undrift.core.block import AnyBlock

BlockT = TypeVar("BlockT", bound=AnyBlock)


def with_verbs(block: BlockT, verbs: Mapping[str, Callable[..., Any]]) -> BlockT:
    """The same block, of a subclass with other verbs.

    Args:
        block: the block; it is not changed.
        verbs: name -> the function that takes the verb's place, called with the new block first.
    """
    kind = type(block)
    copy: Any = object.__new__(type(kind.__name__, (kind,), {**verbs, "__module__": kind.__module__}))
    vars(copy).update(vars(block))
    return cast(BlockT, copy)
