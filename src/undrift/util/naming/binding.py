"""Arguments for functions and fields of dataclasses, checked against annotations by one rule: `conform`.

Texts in the grammar of `calls`, tables of run files and values from Python are all checked here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import lru_cache, partial, wraps
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    SupportsFloat,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import TypeAdapter, ValidationError

from undrift.util.naming.calls import Call
from undrift.util.naming.ranges import Range

ANY = "**"
"""Stands for arguments of any name, as in Python's signatures."""

T = TypeVar("T")

_SCALARS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", NoneType: "None"}
_EXACT = (bool, int, float, str, tuple, list)  # matched by exact type, not by isinstance
_LISTS = {list: list, MutableSequence: list, tuple: tuple, Sequence: tuple, Collection: tuple, Iterable: tuple}


def build(make: Callable[..., T], call: Call, nested: Callable[[Call], object] | None = None) -> T:
    """Call a function with the arguments of a text, checked against its annotations.

    Args:
        make: the function.
        call: the arguments, and the text for errors.
        nested: what a call among the arguments stands for; None refuses it.

    Example:
        >>> def area(width: float, height: int = 2) -> float: return width * height
        >>> build(area, Call("area", (0.5,), {"height": 3}))
        1.5
    """
    source, takes = call.source or str(call), signature(make)
    if nested is None:
        check_literals(call)
    try:
        bound = takes.bind(*call.positional, **call.named)
    except TypeError as error:
        hints = annotations_of(make)
        plain = [one.replace(annotation=hints.get(one.name, one.annotation)) for one in takes.parameters.values()]
        known = ", ".join(map(str, plain)) or "no arguments"
        raise ValueError(f"{source!r}: {error}; it takes {known}") from None
    for name, value in bound.arguments.items():
        kind = takes.parameters[name].kind
        try:
            if kind is Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(conform_argument(make, name, x) for x in value)
            elif kind is Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: conform_argument(make, name, x) for key, x in value.items()}
            else:
                inner = nested(value) if nested is not None and isinstance(value, Call) else value
                bound.arguments[name] = conform_argument(make, name, inner)
        except TypeError as error:
            raise ValueError(f"{source!r}: {error}") from None
    return make(*bound.args, **bound.kwargs)


def check_literals(call: Call) -> None:
    """Raise a `ValueError` if an argument is a name without quotes."""
    values = list(call.named.values()) + list(call.positional)
    for value in values:
        if isinstance(value, tuple):
            values += value
        if isinstance(value, Call):
            raise ValueError(
                f"{call.source!r}: arguments are numbers, texts in quotes, True, False, None, inf or tuples of them, "
                f"got a name: {value}"
            )


def conform_argument(make: Callable[..., object], name: str, value: object) -> object:
    """A value checked against the annotation of a function's argument; raises a `TypeError` with what it takes."""
    hint = annotations_of(make).get(name, Any)
    try:
        return conform(value, hint)
    except TypeError:
        raise TypeError(f"{name} must be {hint_text(hint)}, got {value!r}") from None


def conform(value: object, hint: Any) -> object:
    """A value as one of the types that an annotation allows; raises a `TypeError` if it is none of them.

    An int for a float stays an int, a number of NumPy or torch becomes Python's, a list the annotation's kind of list.

    Example:
        >>> conform([1, 2], tuple[float, ...]), conform(3, float)
        ((1, 2), 3)
    """
    kinds = _kinds(hint)
    if Any in kinds or object in kinds or (NoneType if value is None else type(value)) in kinds:
        return value
    others = [kind for kind in kinds if isinstance(kind, type) and get_origin(kind) is None and kind not in _EXACT]
    if isinstance(value, tuple(others)) or (float in kinds and type(value) is int):
        return value
    if float in kinds and isinstance(value, float):
        return float(value)
    allowed = [x for kind in kinds if get_origin(kind) is Literal for x in get_args(kind)]
    if any(type(x) is type(value) and x == value for x in allowed):
        return value
    for kind in kinds:
        with suppress(TypeError):
            return _conform_list(value, kind)
    if getattr(value, "ndim", 1) == 0 and hasattr(value, "item"):  # a number of NumPy or torch
        return conform(value.item(), hint)
    raise TypeError


def _conform_list(values: object, kind: Any) -> object:
    """Values as the tuple or list that an annotation names, each as the type that it has there."""
    make, args = _LISTS.get(get_origin(kind) or kind), get_args(kind)
    if make is None or not isinstance(values, tuple | list):
        raise TypeError
    fixed = get_origin(kind) is tuple and args[1:] != (...,)
    if fixed and len(args) != len(values):
        raise TypeError
    each = args if fixed else (args or (Any,))[:1] * len(values)
    return make(conform(x, hint) for x, hint in zip(values, each, strict=True))


def hint_text(hint: Any) -> str:
    """An annotation in words if it has only numbers, texts, booleans and None, else as it is written.

    Example:
        >>> hint_text(float | None), hint_text(tuple[int, ...])
        ('a number or None', 'tuple[int, ...]')
    """
    if is_scalar(hint):
        kinds = _kinds(hint)
        return " or ".join(_SCALARS[kind] for kind in kinds if kind is not int or float not in kinds)
    named = isinstance(hint, type) and not get_args(hint)
    return hint.__name__ if named else str(hint).replace("typing.", "").replace("collections.abc.", "")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types in an annotation."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_scalar(hint: Any) -> bool:
    """Whether an annotation allows only numbers, texts, booleans and None."""
    return all(isinstance(kind, type) and kind in _SCALARS for kind in _kinds(hint))


@lru_cache(maxsize=1024)
def annotations_of(make: Callable[..., object], *, extras: bool = False) -> dict[str, Any]:
    """The annotations of a function, or of the constructor of a class; none if they name what does not exist.

    Args:
        make: the function or class.
        extras: whether to keep what `Annotated` adds to a type.
    """
    make = make.func if isinstance(make, partial) else make
    try:
        own = isinstance(make, type) and not is_dataclass(make)
        return get_type_hints(make.__init__ if own else make, include_extras=extras)
    except (NameError, TypeError, AttributeError):
        return {}


def literal_types(make: Callable[..., object], *without: str) -> dict[str, Any]:
    """The arguments of a function with their annotations, for texts and files; what cannot be checked becomes `Any`.

    Args:
        make: the function.
        without: arguments to leave out.

    Example:
        >>> def model(classes, width: int = 8, act: object = None, **others): ...
        >>> literal_types(model, "classes")
        {'width': <class 'int'>, 'act': typing.Any, '**': typing.Any}
    """
    hints, out = annotations_of(make), dict[str, Any]()
    for name, parameter in signature(make).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) or name in without:
            continue
        hint = hints.get(name, Any)
        known = all(is_scalar(kind) or (get_origin(kind) or kind) in _LISTS for kind in _kinds(hint))
        out[ANY if parameter.kind is parameter.VAR_KEYWORD else name] = hint if known else Any
    return out


def check_arguments(source: str, known: Mapping[str, Any], given: Mapping[str, object]) -> None:
    """Raise a `ValueError` if a named argument is unknown or not of its type.

    Args:
        source: what takes the arguments, for errors.
        known: name -> annotation; that of the key "**" is for all other names.
        given: name -> value.
    """
    for name, value in given.items():
        hint = known.get(name, known.get(ANY))
        if hint is None:
            raise ValueError(f"{source} has no argument {name!r}; it takes {', '.join(known) or 'no arguments'}")
        try:
            conform(value, hint)
        except TypeError:
            raise ValueError(f"{source}: {name} must be {hint_text(hint)}, got {value!r}") from None


def check_kinds(source: str, annotations: Mapping[str, Any], values: Mapping[str, object]) -> None:
    """Raise if a value from Python is not a number, a boolean, a text or None as its annotation has it.

    Values of other annotations pass. A fraction where a whole number belongs is a `ValueError`, all else a `TypeError`.

    Args:
        source: what takes the values, for errors.
        annotations: by name.
        values: by name.

    Example:
        >>> check_kinds("SAM", {"rho": float}, {"rho": "0.1"})
        Traceback (most recent call last):
        TypeError: SAM: rho must be a number, got '0.1'
    """
    for name, value in values.items():
        hint = annotations.get(name, Any)
        if not is_scalar(hint):
            continue
        try:
            conform(value, hint)
        except TypeError:
            error = ValueError if int in _kinds(hint) and isinstance(value, SupportsFloat) else TypeError
            raise error(f"{source}: {name} must be {hint_text(hint)}, got {value!r:.80}") from None


def check_rules(kind: type, values: Mapping[str, Any]) -> None:
    """Raise if a value is not one that its annotation allows: `Annotated[float, Field(gt=0)]` or `Literal["a", "b"]`.

    Run files whose tables are dataclasses are validated by the same annotations, in the same words.

    Args:
        kind: a dataclass.
        values: its fields by name.

    Example:
        >>> from undrift.core.local.settings import Local
        >>> check_rules(Local, vars(Local()) | {"lr": 0})
        Traceback (most recent call last):
        ValueError: Local: lr: input should be greater than 0, got 0
    """
    for name, rule in _rules(kind).items():
        value = values[name]
        if isinstance(rule, Range):
            continue  # `check_fields` has refused it before
        try:
            rule.validate_python(value.item() if hasattr(value, "item") else value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise ValueError(f"{kind.__name__}: {name}: {why[0].lower()}{why[1:]}, got {value!r:.80}") from None


@lru_cache(maxsize=1024)
def _rules(kind: type) -> dict[str, Any]:
    """What validates the fields of a dataclass whose annotations have rules."""
    found = annotations_of(kind, extras=True)
    marked = {name: {get_origin(one) for one in (hint, *get_args(hint))} for name, hint in found.items()}
    ruled = [name for name, kinds in marked.items() if kinds & {Annotated, Literal}]
    return {name: range_of(found[name]) or TypeAdapter(found[name]) for name in ruled}


def range_of(hint: Any) -> Range | None:
    """The range of numbers that an annotation names."""
    return next((x for x in getattr(hint, "__metadata__", ()) if isinstance(x, Range)), None)


def check_fields(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorates the `__post_init__` of a dataclass: the kinds and ranges of its fields are checked before it.

    Other rules are checked after it.
    """

    @wraps(own)
    def check(self: Any) -> None:
        kind: Any = type(self)
        if kind.__post_init__ is not check:  # called by that of a derived class, which checks all fields
            own(self)
            return
        check_kinds(kind.__name__, annotations_of(kind), vars(self))
        for name, rule in _rules(kind).items():
            if isinstance(rule, Range):
                rule.check(f"{kind.__name__}: {name}", getattr(self, name))
        own(self)
        check_rules(kind, vars(self))

    return check


def check_subclass_fields(kind: type) -> None:
    """Decorate a class's `__post_init__` if it has its own, or annotations with rules.

    For `__init_subclass__` of a base of dataclasses.
    """

    def inherited(self: Any) -> None:
        before = getattr(super(kind, self), "__post_init__", None)
        if before is not None:
            before()

    own = vars(kind).get("__post_init__")
    declared = [hint for base in kind.__mro__ for hint in vars(base).get("__annotations__", {}).values()]
    ruled = any(get_origin(hint) is Annotated for hint in declared)
    if own is not None or ruled:
        setattr(kind, "__post_init__", check_fields(own or inherited))  # noqa: B010  mypy refuses the assignment


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python's own and not a boolean.

    Args:
        value: what was received.

    Example:
        >>> is_whole(3), is_whole(True), is_whole(3.0)
        (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)
