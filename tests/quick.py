"""The selection of `make quick`: a promise of every kind and a call into every module, in two minutes.

Tests are named, not copied: of the contract one block per signature of declarations, of the methods one per family,
and of everything else the tests in `TESTS`.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import undrift
from undrift.algorithms import make
from undrift.compose.cards import family
from undrift.core.block import AnyBlock
from undrift.core.types import kinds

ROOT = Path(undrift.__file__).parent

TESTS: tuple[str, ...] = ("test_golden::test_hashes_are_those_written_down",)
"""Tests by file and function; of one with parameters the first."""


def signature(slot: str, block: AnyBlock) -> tuple[object, ...]:
    """What a block declares, and its kind: blocks that agree in it take the same way through the core."""
    trees = (tuple(kinds(tree).values()) for tree in (block.Server, block.Client, block.Sent, block.Up))
    kind = next(base for base in type(block).__mro__ if base.__module__.startswith("undrift.core"))
    flags = (sorted(block.uses), block.keeps_buffers, block.personalizes, block.gradients > 0)
    return slot, kind, *trees, str(block.needs), str(flags)


def chosen(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests of the selection, each signature, family and name once."""
    taken: set[object] = set()
    for item in items:
        key = _key(item)
        if key is not None and key not in taken:
            taken.add(key)
            yield item


def _key(item: pytest.Item) -> object:
    """What a test stands for in the selection; None if it is not in it."""
    function = getattr(item, "originalname", None) or item.name
    given: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if function == "test_block_keeps_the_contract":
        return signature(given["slot"], given["block"])
    if function == "test_the_order_and_the_names_of_clients_change_nothing":
        return family(make(given["name"]))
    name = f"{item.path.stem}::{function}"
    return name if name in TESTS else None


def module(file: str) -> str:
    """The name of a file of undrift; "" of another."""
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else ""


def untouched(used: Iterable[str]) -> list[str]:
    """The files of undrift that define functions of which none was called."""
    files = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in ROOT.rglob("*.py")}
    defining = {name for name, tree in files.items() if any(isinstance(x, ast.FunctionDef) for x in ast.walk(tree))}
    return sorted(defining - set(used))
