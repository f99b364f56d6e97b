"""Parses names with arguments from text and checks the arguments against a function's signature. Nothing is evaluated.

Arguments can be written in two ways: `name(0.1, key=value)` with Python literals, parsed by `bracketed`, and the short
form `name:0.1,key=value` without parentheses and quotes, parsed by `short`. `called` checks either and makes the call.
"""

import ast
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import lru_cache
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

LONGEST = 2000
"""The longest text in characters; Python's own parser needs a bound on its input."""

ANY = "**"
"""Stands for arguments of any name, as in Python's signatures."""

Arguments = tuple[list[object], dict[str, object]]
"""Positional and named arguments."""

T = TypeVar("T")


def split(text: str, example: str = "for example scaffold + sam(rho=0.05)") -> list[str]:
    """The terms of a text, split at each "+" outside parentheses, brackets and quotes.

    Args:
        text: terms joined by "+".
        example: what to write, for the error.
    """
    if len(text) > LONGEST:
        raise ValueError(f"a composition has at most {LONGEST} characters, got {len(text)}")
    terms, depth, quote, escaped = [""], 0, "", False
    for char in text:
        if quote:
            quote = "" if char == quote and not escaped else quote
            escaped = char == "\\" and not escaped
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
        raise ValueError(f"{text!r} has an empty term; write names joined by +, {example}")
    return terms


def bracketed(text: str, source: str, example: str = "for example sam(rho=0.05)") -> Arguments:
    """Arguments in parentheses, parsed as Python literals; "" has none.

    Args:
        text: "" or arguments in parentheses, positional or named.
        source: what to call the text in errors.
        example: what to write, for the error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # reject a literal that Python warns about
            call = ast.parse(f"f{text or '()'}", mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{source!r}: cannot be read: {str(error).partition(' (')[0]}") from None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ValueError(f"{source!r}: write one pair of brackets, {example}")
    named = {word.arg or ANY: _literal(word.value, source) for word in call.keywords}
    if len(named) < len(call.keywords):
        raise ValueError(f"{source!r}: an argument is named twice; name it once")
    return [_literal(value, source) for value in call.args], named


def short(text: str, source: str, rest: str = "") -> tuple[str, Arguments]:
    """A name and its arguments in the short form `name[:value][,key=value...]`; whitespace is ignored.

    A value is a number, true or false, or else a string, written without quotes.

    Args:
        text: the text to parse.
        source: what to call it in errors.
        rest: a key whose value is the rest of the text, commas included.

    Example:
        >>> short("dirichlet: 0.1, balance=false", "the partition")
        ('dirichlet', ([0.1], {'balance': False}))
    """
    own, separator, inner = "".join(text.split()).partition(f",{rest}=" if rest else "\0")
    head, *settings = own.split(",")
    name, colon, value = head.partition(":")
    named: dict[str, object] = {}
    for setting in settings:
        key, equals, given = setting.partition("=")
        if not equals:
            raise ValueError(f"{source!r}: {setting!r} is not a setting; write key=value")
        if key in named:
            raise ValueError(f"{source!r}: {key} is named twice; name it once")
        named[key] = _scalar(given)
    if separator:
        named[rest] = inner
    return name, ([_scalar(value)] if colon else [], named)


def _scalar(text: str) -> object:
    """A value written without quotes: a bool or a number if it parses as one, else a string."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def called(make: Callable[..., T], arguments: Arguments, source: str) -> T:
    """Check arguments against a function's annotations and call it.

    Args:
        make: the function to call.
        arguments: as `bracketed` or `short` returns them.
        source: what to call the text in errors.
    """
    positional, named = arguments
    takes = signature(make)
    try:
        bound = takes.bind(*positional, **named)
    except TypeError as error:
        known = ", ".join(map(str, takes.parameters.values())) or "no arguments"
        raise ValueError(f"{source!r}: {error}; it takes {known}") from None
    for name, value in bound.arguments.items():
        kind = takes.parameters[name].kind
        try:
            if kind is Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(fitted(make, name, x) for x in value)
            elif kind is Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: fitted(make, name, x) for key, x in value.items()}
            else:
                bound.arguments[name] = fitted(make, name, value)
        except TypeError as error:
            raise ValueError(f"{source!r}: {error}") from None
    return make(*bound.args, **bound.kwargs)


def fitted(make: Callable[..., object], name: str, value: object) -> object:
    """A value checked against an argument's annotation; an int given for a float stays an int.

    Raises:
        TypeError: the annotation does not allow the value, or it cannot be written as a literal.
    """
    hint = annotations_of(make).get(name, Any)
    try:
        return _as(value, hint)
    except TypeError:
        raise TypeError(f"{name} takes {_shown(hint)}, got {value!r}") from None


def scalars(make: Callable[..., object], *without: str) -> dict[str, Any]:
    """The arguments of a function that are numbers, texts or booleans, with their annotations.

    Args:
        make: the function.
        without: arguments to leave out.

    Example:
        >>> def model(classes: int, patch: int = 4, widths: tuple[int, ...] = ()) -> None: ...
        >>> scalars(model, "classes")
        {'patch': <class 'int'>}
    """
    hints = {name: parameter.annotation for name, parameter in signature(make).parameters.items()}
    return {name: hint for name, hint in hints.items() if name not in without and _is_scalar(hint)}


def literals(make: Callable[..., object], *without: str) -> dict[str, Any]:
    """The arguments of people's own functions, with their annotations; one that we cannot check becomes `Any`.

    Args:
        make: the function.
        without: arguments to leave out.

    Example:
        >>> def model(classes, width: int = 8, act: object = None, **others): ...
        >>> literals(model, "classes")
        {'width': <class 'int'>, 'act': typing.Any, '**': typing.Any}
    """
    hints, out = annotations_of(make), dict[str, Any]()
    for name, parameter in signature(make).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) or name in without:
            continue
        hint = hints.get(name, Any)
        known = _is_scalar(hint) or get_origin(hint) is tuple
        out[ANY if parameter.kind is parameter.VAR_KEYWORD else name] = hint if known else Any
    return out


def check_scalars(given: Mapping[str, object], known: Mapping[str, Any], source: str) -> None:
    """Check named values against the arguments that `scalars` lists.

    Args:
        given: name -> value.
        known: name -> annotation; that of the key "**" is for all other names.
        source: what takes the arguments, for errors.
    """
    for name, value in given.items():
        hint = known.get(name, known.get(ANY))
        if hint is None:
            raise ValueError(f"{source} has no argument {name!r}; it takes {', '.join(known) or 'no arguments'}")
        try:
            _as(value, hint)
        except TypeError:
            raise ValueError(f"{source}: {name} takes {_shown(hint)}, got {value!r}") from None


def _shown(hint: Any) -> str:
    """An annotation as it is written."""
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "").replace("collections.abc.", "")


def written(value: object) -> str:
    """A value written as a literal that `bracketed` parses."""
    if isinstance(value, tuple):
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


_BUILTIN = (bool, int, float, str, tuple, list)  # matched by exact type, not by isinstance
_LISTS = {list: list, MutableSequence: list, tuple: tuple, Sequence: tuple, Collection: tuple, Iterable: tuple}


def _is_scalar(hint: Any) -> bool:
    """Whether an annotation allows only numbers, texts, booleans and None."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return all(kind in (bool, int, float, str, NoneType) for kind in kinds)


@lru_cache(maxsize=256)
def annotations_of(make: Callable[..., object], *, extras: bool = False) -> dict[str, Any]:
    """The annotations of a function, or of the constructor of a class; none if they name what does not exist.

    Args:
        make: the function or class.
        extras: whether to keep what `Annotated` adds to a type.
    """
    try:
        own = isinstance(make, type) and not is_dataclass(make)
        return get_type_hints(make.__init__ if own else make, include_extras=extras)
    except (NameError, TypeError, AttributeError):
        return {}


def _as(value: object, hint: Any) -> object:
    """A value as one of the types that a hint allows."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if Any in kinds or object in kinds or (NoneType if value is None else type(value)) in kinds:
        return value
    plain = [kind for kind in kinds if isinstance(kind, type) and get_origin(kind) is None and kind not in _BUILTIN]
    if isinstance(value, tuple(plain)) or (float in kinds and type(value) is int):
        return value
    if float in kinds and isinstance(value, float):
        return float(value)
    allowed = [x for kind in kinds if get_origin(kind) is Literal for x in get_args(kind)]
    if any(type(x) is type(value) and x == value for x in allowed):
        return value
    for kind in kinds:
        with suppress(TypeError):
            return _as_list(value, kind)
    if getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):  # a number of NumPy or torch
        return _as(value.item(), hint)
    raise TypeError


def _as_list(values: object, kind: Any) -> object:
    """Values as the tuple or list that an annotation names, each as the type that it has there."""
    make, args = _LISTS.get(get_origin(kind) or kind), get_args(kind)
    if make is None or not isinstance(values, tuple | list):
        raise TypeError
    fixed = get_origin(kind) is tuple and args[1:] != (...,)
    if fixed and len(args) != len(values):
        raise TypeError
    each = args if fixed else (args or (Any,))[:1] * len(values)
    return make(_as(x, hint) for x, hint in zip(values, each, strict=True))


def _literal(node: ast.expr, source: str) -> object:
    """The value of a number, a string, True, False, None, inf, or a tuple or list of these."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.Name(id="inf"):
            return float("inf")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return float("-inf")
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return tuple(_literal(item, source) for item in items)
    raise ValueError(
        f"{source!r}: arguments are numbers, texts in quotes, True, False, None, inf or tuples of them, "
        f"got a {type(node).__name__.lower()}"
    )
