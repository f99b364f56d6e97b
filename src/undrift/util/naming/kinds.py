"""The kinds of the values that dataclasses take: a text where a number belongs is refused by the field's name."""

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, SupportsFloat, SupportsIndex, TypeGuard, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from undrift.util.naming.literals import annotations_of

_KINDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text", NoneType: "None"}


def check_kinds(source: str, annotations: Mapping[str, Any], values: Mapping[str, object]) -> None:
    """Raise if a value is not of a kind that its annotation names: a number, true or false, a text or None.

    Values of other annotations pass. So do numbers of any kind, those of NumPy and torch too; see `check_whole`.

    Args:
        source: who takes the values, for errors.
        annotations: by name.
        values: by name.

    Example:
        >>> check_kinds("SAM", {"rho": float}, {"rho": "0.1"})
        Traceback (most recent call last):
        TypeError: SAM: rho must be a number, got '0.1'
    """
    for name, value in values.items():
        kinds = _scalar_kinds(annotations.get(name, Any))
        if kinds and not any(_fits(value, kind) for kind in kinds):
            wanted = " or ".join(_KINDS[kind] for kind in kinds if kind is not int or float not in kinds)
            raise TypeError(f"{source}: {name} must be {wanted}, got {value!r:.80}")


def check_whole(source: str, annotations: Mapping[str, Any], values: Mapping[str, object]) -> None:
    """Raise if a number that the annotation has as `int` is not whole.

    Args:
        source: who takes the values, for errors.
        annotations: by name.
        values: by name.

    Example:
        >>> check_whole("Local", {"batch_size": int}, {"batch_size": 1.5})
        Traceback (most recent call last):
        ValueError: Local: batch_size must be a whole number, got 1.5
    """
    for name, value in values.items():
        kinds = _scalar_kinds(annotations.get(name, Any))
        if int in kinds and float not in kinds and value is not None and not isinstance(value, SupportsIndex | str):
            raise ValueError(f"{source}: {name} must be a whole number, got {value!r:.80}")


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
        try:
            rule.validate_python(value.item() if hasattr(value, "item") else value)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise ValueError(f"{kind.__name__}: {name}: {why[0].lower()}{why[1:]}, got {value!r:.80}") from None


@lru_cache(maxsize=256)
def _rules(kind: type) -> dict[str, TypeAdapter[Any]]:
    """What validates the fields of a dataclass whose annotations have rules."""
    found = annotations_of(kind, extras=True)
    marked = {name: {get_origin(one) for one in (hint, *get_args(hint))} for name, hint in found.items()}
    return {name: TypeAdapter(found[name]) for name, kinds in marked.items() if kinds & {Annotated, Literal}}


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python's own and not a boolean.

    Args:
        value: what was received.

    Example:
        >>> is_whole(3), is_whole(True), is_whole(3.0)
        (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def kinds_checked(own: Callable[[Any], None]) -> Callable[[Any], None]:
    """Decorates the `__post_init__` of a dataclass: kinds are checked before it, whole numbers and rules after it."""

    @wraps(own)
    def checked(self: Any) -> None:
        kind: Any = type(self)
        if kind.__post_init__ is not checked:  # called by that of a derived class, which checks all fields
            own(self)
            return
        check_kinds(kind.__name__, annotations_of(kind), vars(self))
        own(self)
        check_whole(kind.__name__, annotations_of(kind), vars(self))
        check_rules(kind, vars(self))

    return checked


def check_own_kinds(kind: type) -> None:
    """Decorate a class's own `__post_init__`, if it has one; for `__init_subclass__` of a base of dataclasses."""
    own = vars(kind).get("__post_init__")
    if own is not None:
        setattr(kind, "__post_init__", kinds_checked(own))  # noqa: B010  mypy refuses the assignment


def _scalar_kinds(hint: Any) -> tuple[type, ...]:
    """The kinds that an annotation names; none if it names anything else."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return kinds if all(isinstance(kind, type) and kind in _KINDS for kind in kinds) else ()


def _fits(value: object, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, SupportsFloat)
    if kind is bool:
        return not isinstance(value, str) and value is not None
    return isinstance(value, kind)
