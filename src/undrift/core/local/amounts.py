"""Amounts that differ between clients and rounds: epochs, steps and speeds.

An amount is one of these:

    5                            the same for every client and round
    [1, 2, 0.5]                  one number per client
    "uniform(1, 5)"              drawn for every client and round: a whole number if both bounds are, else any between
    "uniform(1, 5, once=True)"   drawn for every client, the same in every round
    "mypackage.work:f"           f(client, round), both counted from 0; in Python also the function itself

What is drawn depends on the run's seed, the client and the round only, so every machine computes the same. The short
forms `uniform:1-5` and `uniform:1-5,once`, which earlier versions wrote, are read as well.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, TypeAlias

from undrift.core.model.random import derive
from undrift.util.naming.binding import build
from undrift.util.naming.calls import Call, read_call
from undrift.util.naming.references import Reference

Amount: TypeAlias = int | float | str | Sequence[float] | Callable[[int, int], float]
"""How much of something each client has or does: see the module."""

FORMS = 'write a number, a list with one number per client, "uniform(1, 5)" or a reference "mypackage.work:f"'

_SHORT = re.compile(r"\s*uniform:\s*(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*(,\s*once)?\s*")


@dataclass(frozen=True)
class _Uniform:
    """A uniform distribution between two bounds, both included if it draws whole numbers."""

    low: float
    high: float
    once: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.low <= self.high < inf and self.high > 0):
            raise ValueError(f"{self} must go from a smaller to a larger number: uniform(1, 5)")

    def __str__(self) -> str:
        return str(Call("uniform", (self.low, self.high), {"once": True} if self.once else {}))

    @property
    def short(self) -> str:
        """The text that earlier versions wrote."""
        return f"uniform:{self.low}-{self.high}{',once' if self.once else ''}"

    @property
    def whole(self) -> bool:
        """Whether it draws whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, seed: int, client: int, round: int, name: str) -> int | float:
        bits = derive(seed, *(() if self.once else (round,)), client, f"work/{name}")
        if isinstance(self.low, int) and isinstance(self.high, int):
            return self.low + bits % (self.high - self.low + 1)
        return self.low + (self.high - self.low) * (bits >> 10) / 2**53


_DISTRIBUTIONS = {"uniform": _Uniform}


def normalize_amount(name: str, value: Any, *, whole: bool = False, most: float = inf) -> Any:
    """An amount that can be used, or a `ValueError`: lists become tuples, whole numbers integers, texts canonical.

    Args:
        name: what to call it in errors.
        value: the amount as given.
        whole: whether only whole numbers are allowed.
        most: the largest number allowed.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, str):
        try:
            drawn = _distribution(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if drawn is None:
            _function(name, value)
            return value.replace(" ", "")
        if whole and not drawn.whole:
            raise ValueError(f"{name} must be whole numbers, got {value!r}")
        return canonical_amount(value)
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
        value: what `normalize_amount` returned.
        seed: the run's seed.
        client: the client's number.
        round: the round.
        whole: whether only whole numbers are allowed.

    Example:
        >>> [amount("epochs", (1, 2.5), 0, client, 0) for client in (0, 1)]
        [1, 2.5]
    """
    if isinstance(value, str):
        drawn = _distribution(value)
        if drawn is not None:
            return drawn.draw(seed, client, round, name)
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


def canonical_amount(text: str) -> str:
    """The text of a distribution as settings have it; a short form that is not canonical stays, as runs recorded it.

    Example:
        >>> canonical_amount("uniform: 1 - 5"), canonical_amount("uniform:1.50-5"), canonical_amount("uniform( 1, 5 )")
        ('uniform(1, 5)', 'uniform:1.50-5', 'uniform(1, 5)')
    """
    short, drawn = text.replace(" ", ""), _distribution(text)
    return short if drawn is None or (_SHORT.fullmatch(text) and short != drawn.short) else str(drawn)


def identity_amount(value: Any) -> Any:
    """What stands for an amount in the identity of a run: for a distribution its short form.

    Example:
        >>> identity_amount("uniform(1, 5, once=True)"), identity_amount(3)
        ('uniform:1-5,once', 3)
    """
    drawn = _distribution(value) if isinstance(value, str) and not _SHORT.fullmatch(value) else None
    return value if drawn is None else drawn.short


@lru_cache(maxsize=64)
def _distribution(text: str) -> _Uniform | None:
    """The distribution in a text; None if it is a reference."""
    short = _SHORT.fullmatch(text)
    if short is None and Reference.parse(text) is not None:
        return None
    if short is not None:
        low, high = (float(x) if "." in x else int(x) for x in short.groups()[:2])
        return _Uniform(low, high, short[3] is not None)
    call = read_call(text, FORMS)
    return build(_DISTRIBUTIONS[call.name], call) if call.name in _DISTRIBUTIONS else None


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
