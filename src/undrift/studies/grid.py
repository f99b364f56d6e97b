"""The key `grid` of a comparison's file: lists of values, of which each combination makes a row or a setting.

A row, a setting and the file itself may have one; that of the file applies to every setting. A grid is a table of keys
and lists, or a list of such tables, whose combinations follow each other.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import product
from typing import Any

from undrift.runs.settings.schema import ConfigError, merge_settings

GRID = "grid"
"""The key."""


def expand(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A comparison's file with every row and every setting written out; what is none of these stays as it is.

    Args:
        values: the file.
        source: what to call it in errors.
    """
    out, methods, settings = dict(values), values.get("methods"), values.get("settings", {})
    top = {GRID: out.pop(GRID)} if GRID in values else {}
    try:
        if isinstance(methods, list | tuple) and all(isinstance(entry, Mapping) for entry in methods):
            out["methods"] = rows = [row for entry in methods for row in _rows(entry)]
            out["baseline"] = values.get("baseline") or (rows[0]["label"] if rows else "")
        if isinstance(settings, Mapping) and (settings or top):
            out["settings"] = _settings(settings or {"": {}}, top)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    return out


def _rows(entry: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows that an entry of the file stands for, with labels; without a label a row has its method's name."""
    label = entry.get("label") or entry.get("method", "")
    if not isinstance(label, str):
        raise ValueError(f"methods: method and label are texts, got {label!r:.80}")
    for name, row in variants(label, _with_grid(entry)):
        yield {**row, "label": name}


def _with_grid(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with a grid in place of lists of arguments, the form of earlier versions."""
    arguments = entry.get("arguments")
    given = arguments if isinstance(arguments, Mapping) else {}
    lists = {key: value for key, value in given.items() if isinstance(value, list | tuple)}
    if not lists:
        return entry
    warnings.warn(
        f"lists in a row's arguments are deprecated: write grid.arguments.{next(iter(lists))} = [...] in the row",
        DeprecationWarning,
        stacklevel=2,
    )
    return merge_settings(entry, {GRID: {"arguments": lists}})


def _settings(settings: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting with every combination of its own grid and of the file's."""
    out: dict[str, Any] = {}
    for before, own in settings.items():
        for name, values in variants(before, own) if isinstance(own, Mapping) else [(before, own)]:
            for full, combined in variants(name, {**values, **top}) if top else [(name, values)]:
                if full in out:
                    raise ValueError(f"grid: two settings would be named {full!r}; write each value once")
                out[full] = combined
    return out


def variants(name: str, table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and values of a row or setting or, if it has a grid, of each combination of the grid's values.

    A name ends with the last part of each key and its value, or with the whole key if two keys end alike.

    Args:
        name: of the row or setting; may be empty.
        table: its values; `grid` is a table in which a key may be written `local.epochs` and a single value counts as a
            list of one, or a list of such tables.

    Example:
        >>> list(variants("sam", {"method": "fedsam", "grid": {"arguments": {"rho": [0.05, 0.1]}}}))[1]
        ('sam-rho-0.1', {'method': 'fedsam', 'arguments': {'rho': 0.1}})
    """
    own, grid = {key: value for key, value in table.items() if key != GRID}, table.get(GRID, {})
    tables = [grid] if isinstance(grid, Mapping) else grid
    place = f"{name}: grid" if name else "grid"
    if not tables or not isinstance(tables, list | tuple) or not all(isinstance(one, Mapping) for one in tables):
        raise ValueError(f"{place}: must be a table of keys and values, local.epochs = [1, 5], got {grid!r}")
    for one in tables:
        lists = {key: list(x) if isinstance(x, list | tuple) else [x] for key, x in flatten(one)}
        if empty := [key for key, values in lists.items() if not values]:
            key = empty[0]
            raise ValueError(f"{place}: {key} has no value: write at least one, {key} = [...], or leave it out")
        short = [key.rpartition(".")[2] for key in lists]
        names = short if len(set(short)) == len(short) else [key.replace(".", "-") for key in lists]
        for chosen in product(*lists.values()):
            parts = [f"{key}-{value_name(value)}" for key, value in zip(names, chosen, strict=True)]
            values = reduce(merge_settings, map(_nest, lists, chosen), own)
            yield "-".join(filter(None, [name, *parts])), values


def value_name(value: object) -> str:
    """A value as part of a folder's name.

    Example:
        >>> value_name(0.05), value_name("dirichlet:0.1"), value_name(True)
        ('0.05', 'dirichlet-0.1', 'true')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^A-Za-z0-9.]+|\.(?![0-9])", "-", text).strip("-")


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of nested tables as dotted paths."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _nest(path: str, value: Any) -> dict[str, Any]:
    """A value in nested tables."""
    key, _, rest = path.partition(".")
    return {key: _nest(rest, value) if rest else value}
