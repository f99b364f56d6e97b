"""Terms and arguments written as text: split, read and checked against what a function takes. Nothing is evaluated."""

import ast
import warnings
from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

LONGEST = 2000
"""Characters of a text; Python's own parser needs a bound on what it is given."""

T = TypeVar("T")


def split(text: str) -> list[str]:
    """The terms of a text: what stands between the "+" that are in no brackets and no quotes."""
    if len(text) > LONGEST:
        raise ValueError(f"a composition has at most {LONGEST} characters, got {len(text)}")
    terms, depth, quote = [""], 0, ""
    for before, char in zip(" " + text, text, strict=False):
        if quote:
            quote = "" if char == quote and before != "\\" else quote
        elif char in "'\"":
            quote = char
        else:
            depth += (char in "([") - (char in ")]")
        if char == "+" and not depth and not quote:
            terms.append("")
        else:
            terms[-1] += char
    terms = [term.strip() for term in terms]
    if not all(terms):
        raise ValueError(f"{text!r} has an empty term; write names joined by +, for example scaffold + sam(rho=0.05)")
    return terms


def called(make: Callable[..., T], arguments: str, source: str) -> T:
    """The result of a call whose arguments are written as literals.

    Args:
        make: what is called; its annotations say what it takes.
        arguments: "" or arguments in brackets, positional or named.
        source: what to call it in errors.
    """
    positional, named = _arguments(arguments or "()", source)
    takes = signature(make)
    try:
        bound = takes.bind(*positional, **named)
    except TypeError as error:
        known = ", ".join(map(str, takes.parameters.values())) or "no arguments"
        raise ValueError(f"{source!r}: {error}; it takes {known}") from None
    for name, value in bound.arguments.items():
        try:
            bound.arguments[name] = fitted(make, name, value)
        except TypeError as error:
            raise ValueError(f"{source!r}: {error}") from None
    return make(*bound.args, **bound.kwargs)


def fitted(make: Callable[..., object], name: str, value: object) -> object:
    """A value as an argument's annotation has it; where a float is meant a whole number stays one.

    Raises:
        TypeError: the value is none that the annotation allows, or none that can be written.
    """
    hint = _hints(make).get(name, Any)
    try:
        return value if hint is Any else _as(value, hint)
    except TypeError:
        raise TypeError(f"{name} takes {getattr(hint, '__name__', None) or hint}, got {value!r}") from None


def written(value: object) -> str:
    """A literal as `called` reads it."""
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


@lru_cache(maxsize=256)
def _hints(make: Callable[..., object]) -> dict[str, Any]:
    """What each argument takes."""
    return get_type_hints(make)


def _as(value: object, hint: Any) -> object:
    """A value as one of the kinds a hint allows."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if (NoneType if value is None else type(value)) in kinds:
        return value
    if float in kinds and type(value) is int:
        return value
    if float in kinds and isinstance(value, float):
        return float(value)
    sequences = [kind for kind in kinds if get_origin(kind) is tuple]
    if sequences and isinstance(value, tuple):
        return tuple(_as(item, get_args(sequences[0])[0]) for item in value)
    raise TypeError


def _arguments(text: str, source: str) -> tuple[list[object], dict[str, object]]:
    """The arguments of a call, read as Python but only as literals."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a literal that Python would warn about is none of ours
            call = ast.parse(f"f{text}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{source!r}: cannot be read: {str(error).partition(' (')[0]}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{source!r}: write one pair of brackets, for example sam(rho=0.05)")
    named = {word.arg or "**": _literal(word.value, source) for word in call.keywords}
    if len(named) < len(call.keywords):
        raise ValueError(f"{source!r}: an argument is named twice")
    return [_literal(value, source) for value in call.args], named


def _literal(node: ast.expr, source: str) -> object:
    """The value of a number, a text, True, False, None, inf, or a tuple or list of these."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id="inf"):
            return float("inf")
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_literal(item, source) for item in items)
    raise ValueError(
        f"{source!r}: arguments are numbers, texts in quotes, True, False, None, inf or tuples of them, "
        f"got a {type(node).__name__.lower()}"
    )
