"""What strict typing sees: no hook of any block takes or gives Any, and declarations follow from type parameters."""

import inspect
from typing import Any, get_args

import pytest

from support.registry import BLOCKS
from undrift.core.method.algorithm import SLOTS
from undrift.core.method.block import Block

PAIRS = {type(block): slot for slot, blocks in BLOCKS.items() for block in blocks}


def hooks(kind: type) -> list[Any]:
    """The public functions of a class and its bases that a block may write."""
    members = inspect.getmembers(kind, inspect.isfunction)
    return [function for name, function in members if not name.startswith("_")]


def mentions_any(hint: Any) -> bool:
    """Whether Any stands anywhere in a type."""
    return hint is Any or any(map(mentions_any, get_args(hint)))


@pytest.mark.parametrize("kind", [Block, *dict.fromkeys(SLOTS.values()), *PAIRS], ids=lambda kind: kind.__name__)
def test_no_hook_takes_or_gives_any(kind: type) -> None:
    for hook in hooks(kind):
        hints = inspect.get_annotations(hook, eval_str=True)
        assert set(hints) >= {*inspect.signature(hook).parameters, "return"} - {"self"}, f"{hook.__qualname__}: untyped"
        assert not any(map(mentions_any, hints.values())), f"{hook.__qualname__} mentions Any: {hints}"
