"""Strict settings: tables that reject unknown keys, errors that name every invalid key, and TOML files."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from math import copysign
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from undrift.util.naming.names import normalize_name, suggest

LONGEST = 100_000
"""The most characters that a text in settings may have."""


_COMMA = re.compile(r",\s*(?![^(]*\))")

LISTED = BeforeValidator(lambda value: tuple(_COMMA.split(value)) if isinstance(value, str) else value)
"""A list, which a text may stand for: "f1(label=1),auroc" has two names."""
"""Annotates a list of texts: one text is a list of one."""


class ConfigError(ValueError):
    """An invalid setting; the message names the key and what is valid."""


class Strict(BaseModel):
    """Immutable settings that reject unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    shorthands: ClassVar[tuple[str, ...]] = ()
    """Keys that stand for several fields, as "preset" or "local.preset"; they are expanded before validation."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that are no fields although users expect them here, and what to write instead."""


Model = TypeVar("Model", bound=Strict)


def validate(kind: type[Model], values: Mapping[str, Any], source: str) -> Model:
    """Validate a mapping with a pydantic model; its errors become one `ConfigError` that names every invalid key.

    Args:
        kind: the model.
        values: the mapping.
        source: what to call it in errors; an empty text leaves this out.
    """
    where = f"{source}: " if source else ""
    if (long := _longest(values)) > LONGEST:
        raise ConfigError(f"{where}a text of {long:,} characters is no setting; {LONGEST:,} are the most")
    if key := _minus_zero(values):
        raise ConfigError(f"{where}{key}: -0.0 is no setting; write 0.0")
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        complaints = [_complaint(kind, detail) for detail in error.errors(include_url=False)]
        raise ConfigError(where + "; ".join(dict.fromkeys(complaints))) from None
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}a text has a character that is none: {error.object[error.start]!r}") from None
    except (OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}a value is out of range: {error}") from None


def _longest(value: Any) -> int:
    """The length of the longest text in nested settings."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return max((_longest(x) for pair in value.items() for x in pair), default=0)
    return max(map(_longest, value), default=0) if isinstance(value, list | tuple) else 0


def _minus_zero(value: Any) -> str:
    """The key of a -0.0 in nested settings, which equals 0.0 but gives a run another identity; "" if there is none."""
    if not isinstance(value, Mapping):
        return ""
    for key, item in value.items():
        listed = item if isinstance(item, list | tuple) else (item,)
        if any(isinstance(x, float) and x == 0 and copysign(1, x) < 0 for x in listed):
            return str(key)
        if inner := _minus_zero(item):
            return f"{key}.{inner}"
    return ""


def merge_settings(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings overridden, table by table, by those that are given; None overrides nothing.

    A table that overrides a text adds arguments to that name, as `--set model.patch=16` does to `model = "vit-tiny"`.
    """
    out = dict(values)
    for key, value in given.items():
        if isinstance(value, Mapping):
            before = out.get(key)
            before = {"name": before} if isinstance(before, str) else before
            inner = merge_settings(before if isinstance(before, Mapping) else {}, value)
            if inner:
                out[key] = inner
        elif value is not None:
            out[key] = value
    return out


def read_toml(path: Path) -> dict[str, Any]:
    """The contents of a TOML file; raises `ConfigError` if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        others = [other.name for other in path.parent.glob("*.toml")]
        advice = f"; {suggest(path.name, others)}" if others else ""
        raise ConfigError(f"{path}: cannot be read: {error.strerror}{advice}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None


def find_setting(kind: type[Strict], name: str) -> str | None:
    """The setting that has a name, or one close to it, written with its table: "local.lr"; None if there is none.

    Args:
        kind: the settings.
        name: what may be a setting.
    """
    tables = ["", *(table for table in kind.model_fields if _table(kind, [table]) is not None)]
    paths = [f"{table}.{key}" if table else key for table in tables for key in _keys(kind, [table] if table else [])]
    known = {normalize_name(path.rpartition(".")[2]): path for path in reversed([*paths, *kind.elsewhere])}
    close = get_close_matches(normalize_name(name), known, n=1, cutoff=0.8)
    return known[close[0]] if close else None


def _complaint(kind: type[Strict], detail: Any) -> str:
    """One of pydantic's errors, with the key, the rule and the value."""
    names = [str(part) for part in detail["loc"]]
    key = ".".join(names) or "settings"
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key}: unknown key; {kind.elsewhere.get(key) or suggest(names[-1], _keys(kind, names[:-1]))}"
    if detail["type"] == "value_error":
        text = str(detail["ctx"]["error"])
        table = _table(kind, names)
        if is_dataclass(table):  # its own errors begin with its name, and those of a field with that of the field
            text = text.removeprefix(f"{table.__name__}: ")
            own = re.split(r"\W", text, maxsplit=1)[0] in _keys(kind, names)
            return f"{key}.{text}" if own else f"{key}: {text}"
        return text if not names or any(name in text for name in names) else f"{key}: {text}"
    if detail["type"] == "tuple_type":
        return f"{key}: input should be a list in brackets, [...], got {str(detail['input'])[:80]!r}"
    return f"{key}: {detail['msg'].lower()}, got {str(detail['input'])[:80]!r}"


def _table(kind: type, path: list[str]) -> type | None:
    """The table at a path in another, also in a list: a pydantic model or a dataclass; None if there is none."""
    found: type | None = kind
    for name in (name for name in path if not name.isdigit()):
        inner = getattr(found, "model_fields", {}).get(name)
        parts = () if inner is None else (inner.annotation, *get_args(inner.annotation))
        found = next((part for part in parts if hasattr(part, "model_fields") or is_dataclass(part)), None)
    return found


def _keys(kind: type[Strict], path: list[str]) -> list[str]:
    """The keys of the table at a path."""
    table = _table(kind, path)
    own = [field.name for field in fields(table)] if is_dataclass(table) else [*getattr(table, "model_fields", ())]
    places = [name.rpartition(".") for name in kind.shorthands]
    return [*own, *(name for place, _, name in places if place == ".".join(x for x in path if not x.isdigit()))]
