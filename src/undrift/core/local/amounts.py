"""Amounts that differ between clients and rounds: epochs, steps and speeds.

An amount is one of these:

    5                     the same for every client and round
    [1, 2, 0.5]           one number per client
    "uniform:1-5"         drawn for every client and round: a whole number if both bounds are, else any number between
    "uniform:1-5,once"    drawn for every client, the same in every round
    "mypackage.work:f"    f(client, round), both counted from 0; in Python also the function itself

What is drawn depends on the run's seed, the client and the round only, so every machine computes the same.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, TypeAlias

from undrift.core.model.random import derive
from undrift.util.naming.references import Reference

Amount: TypeAlias = int | float | str | Sequence[float] | Callable[[int, int], float]
"""How much of something each client has or does: see the module."""

FORMS = 'write a number, a list with one number per client, "uniform:1-5" or a reference "mypackage.work:f"'

_LAW = re.compile(r"uniform:\s*(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*(,\s*once)?")


@dataclass(frozen=True)
class _Law:
    """A uniform distribution between two bounds, both included if it draws whole numbers."""

    low: int | float
    high: int | float
    once: bool

    def draw(self, seed: int, client: int, round: int, name: str) -> int | float:
        bits = derive(seed, *(() if self.once else (round,)), client, f"work/{name}")
        if isinstance(self.low, int) and isinstance(self.high, int):
            return self.low + bits % (self.high - self.low + 1)
        return self.low + (self.high - self.low) * (bits >> 10) / 2**53


def checked(name: str, value: Any, *, whole: bool = False, most: float = inf) -> Any:
    """An amount that can be used, or a `ValueError`: lists become tuples, whole numbers integers.

    Args:
        name: what to call it in errors.
        value: the amount as given.
        whole: whether only whole numbers are allowed.
        most: the largest number allowed.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str):
        law = _law(value)
        if law is None:
            _function(name, value)
        elif whole and not (isinstance(law.low, int) and isinstance(law.high, int)):
            raise ValueError(f"{name} must be whole numbers, got {value!r}")
        elif not (law.low <= law.high and law.high > 0):
            raise ValueError(f"{name}: {value!r} must go from a smaller to a larger number: uniform:1-5")
        return value.replace(" ", "")
    if isinstance(value, list | tuple):
        numbers = tuple(_number(f"{name}[{i}]", x, whole, most=most) for i, x in enumerate(value))
        if not any(numbers):
            raise ValueError(f"{name} must have one number per client, not all of them 0, got {list(numbers)}")
        return numbers
    return value if callable(value) else _number(name, value, whole, positive=True, most=most)


def amount(name: str, value: Amount, seed: int, client: int, round: int, *, whole: bool = False) -> int | float:
    """The amount of a client in a round, 0 or more.

    Args:
        name: what it is an amount of; each name has its own draws.
        value: what `checked` returned.
        seed: the run's seed.
        client: the client's number.
        round: the round.
        whole: whether only whole numbers are allowed.

    Example:
        >>> [amount("epochs", (1, 2.5), 0, client, 0) for client in (0, 1)]
        [1, 2.5]
    """
    if isinstance(value, str):
        law = _law(value)
        if law is not None:
            return law.draw(seed, client, round, name)
        return amount(name, _function(name, value), seed, client, round, whole=whole)
    if callable(value):
        return _number(f"{name} of client {client} in round {round + 1}", value(client, round), whole)
    return value if isinstance(value, float | int) else value[client]


def check_population(name: str, value: Amount | None, population: int) -> None:
    """Raise if a list does not have one number per client."""
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) != population:
        raise ValueError(f"{name} has {len(value)} numbers, but there are {population} clients; give one per client")


def portable(name: str, value: Any) -> Any:
    """An amount as data: a function as the reference with which another process finds it."""
    if not callable(value):
        return value
    reference = Reference(getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))
    if reference.module != "__main__" and Reference.parse(str(reference)) == reference:
        try:
            if reference.resolve() is value:
                return str(reference)
        except ValueError:
            pass
    raise ValueError(
        f'{name}: a function is stored and sent by its name only: put it into a module and write "mymodule:function"'
    )


@lru_cache(maxsize=64)
def _law(text: str) -> _Law | None:
    """The distribution in a text; None if it is a reference."""
    match = _LAW.fullmatch(text.strip())
    if match is None and text.strip().startswith("uniform:"):
        raise ValueError(
            f'{text!r} is not a distribution: write "uniform:1-5", or "uniform:1-5,once" for one draw per client'
        )
    if match is None:
        return None
    low, high = (float(x) if "." in x else int(x) for x in match.groups()[:2])
    return _Law(low, high, match[3] is not None)


@lru_cache(maxsize=64)
def _function(name: str, text: str) -> Callable[[int, int], float]:
    """The function of a reference."""
    reference = Reference.parse(text)
    if reference is None:
        raise ValueError(f"{name}: {text!r} is neither a distribution nor a reference; {FORMS}")
    try:
        found = reference.resolve()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not callable(found):
        raise ValueError(f"{name}: {text} must be a function of a client and a round, got {type(found).__name__}")
    return found  # type: ignore[no-any-return]  # whatever it returns is checked


def _number(name: str, x: Any, whole: bool, *, positive: bool = False, most: float = inf) -> int | float:
    """A finite number of 0 or more, an integer if it is whole."""
    x = x.item() if hasattr(x, "item") else x
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise ValueError(f"{name}: {FORMS}, got {x!r}")
    if not 0 <= x < inf or (positive and x == 0):
        raise ValueError(f"{name} must be {'positive' if positive else '0 or more'} and finite, got {x}")
    if x > most:
        raise ValueError(f"{name} must be at most {most:g}, got {x:g}")
    if x == int(x):
        return int(x)
    if whole:
        raise ValueError(f"{name} must be a whole number, got {x}")
    return x
