"""Blocks with other hooks, for tools that watch a block at work."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from typing_extensions import TypeVar

from undrift.core.method.block import AnyBlock

BlockT = TypeVar("BlockT", bound=AnyBlock)


def with_hooks(block: BlockT, hooks: Mapping[str, Callable[..., Any]]) -> BlockT:
    """The same block, of a subclass with other hooks.

    Args:
        block: the block; it is not changed.
        hooks: name -> the function that takes the hook's place, called with the new block first.
    """
    kind = type(block)
    copy: Any = object.__new__(type(kind.__name__, (kind,), {**hooks, "__module__": kind.__module__}))
    vars(copy).update(vars(block))
    return cast(BlockT, copy)
