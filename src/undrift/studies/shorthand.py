"""Short forms of a comparison's file: lists of arguments become rows, a grid becomes settings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from undrift.runs.settings.schema import ConfigError, merged


def expand(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A comparison's file with every row and every setting written out; what is no row or grid is left as it is.

    Args:
        values: the file.
        source: what to call it in errors.
    """
    out, methods, settings = dict(values), values.get("methods"), values.get("settings", {})
    try:
        if isinstance(methods, list | tuple) and all(isinstance(entry, Mapping) for entry in methods):
            out["methods"] = rows = expand_rows(methods)
            out["baseline"] = values.get("baseline") or (rows[0]["label"] if rows else "")
        if "grid" in values and isinstance(settings, Mapping):
            out["settings"] = expand_grid(out.pop("grid"), settings)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from None
    return out


def expand_rows(methods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with one value per argument; a row whose arguments are lists becomes one row for each combination.

    Args:
        methods: the rows of a file; without a label a row takes its method's name.

    Example:
        >>> rows = expand_rows([{"method": "fedsam", "arguments": {"rho": [0.05, 0.1]}}])
        >>> [(row["label"], row["arguments"]) for row in rows]
        [('fedsam-rho-0.05', {'rho': 0.05}), ('fedsam-rho-0.1', {'rho': 0.1})]
    """
    rows = []
    for entry in methods:
        label, arguments = entry.get("label") or entry.get("method", ""), entry.get("arguments")
        if not isinstance(label, str):
            raise ValueError(f"methods: method and label are texts, got {label!r:.80}")
        given = arguments if isinstance(arguments, Mapping) else {}
        lists = {name: values for name, values in given.items() if isinstance(values, list | tuple)}
        for chosen in _combinations(lists, f"arguments of {label}"):
            changed = {"arguments": {**given, **chosen}} if lists else {}
            rows.append({**entry, **changed, "label": "-".join([label, *_parts(chosen)])})
    return rows


def expand_grid(grid: Mapping[str, Any] | Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """One setting for each combination of values; with settings, each of them with each combination.

    Args:
        grid: key -> its values, where `local.epochs` is a key of a table and a single value counts as a list of one; or
            several of these, whose settings follow each other.
        settings: the settings of the file, by name.

    Example:
        >>> expand_grid({"local.epochs": [1, 5]}, {})
        {'epochs-1': {'local': {'epochs': 1}}, 'epochs-5': {'local': {'epochs': 5}}}
    """
    tables = [grid] if isinstance(grid, Mapping) else grid
    if not isinstance(tables, list | tuple) or not all(isinstance(table, Mapping) for table in tables):
        raise ValueError(f'grid: must be a table of keys and values, "local.epochs" = [1, 5], got {grid!r}')
    out: dict[str, Any] = {}
    for before, own in (settings or {"": {}}).items():
        for table in tables:
            for name, values in _settings(dict(flat(table))):
                full = f"{before}-{name}" if before and name else before or name
                if full in out:
                    raise ValueError(f"grid: two settings would be named {full!r}; write each value once")
                out[full] = merged(own, values)
    return out


def _settings(grid: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and values of every combination; a name has the last part of each key, or all of it if that is not enough.

    Args:
        grid: dotted key -> its values.
    """
    short = [key.rpartition(".")[2] for key in grid]
    names = short if len(set(short)) == len(short) else [key.replace(".", "-") for key in grid]
    for chosen in _combinations(grid, "grid"):
        yield "-".join(_parts(dict(zip(names, chosen.values(), strict=True)))), _nested(chosen)


def value_name(value: object) -> str:
    """A value as part of a folder's name.

    Example:
        >>> value_name(0.05), value_name("dirichlet:0.1"), value_name(True)
        ('0.05', 'dirichlet-0.1', 'true')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return re.sub(r"[^A-Za-z0-9.]+|\.(?![0-9])", "-", text).strip("-")


def _combinations(lists: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Every choice of one value per key, the last key changing fastest; one empty choice without keys."""
    values = {key: list(x) if isinstance(x, list | tuple) else [x] for key, x in lists.items()}
    for key, own in values.items():
        if not own:
            raise ValueError(f"{place}: {key} has no value: write at least one, {key} = [...], or leave it out")
    for chosen in product(*values.values()):
        yield dict(zip(values, chosen, strict=True))


def _parts(chosen: Mapping[str, Any]) -> list[str]:
    """The values as parts of a name."""
    return [f"{name}-{value_name(value)}" for name, value in chosen.items()]


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The keys of nested tables as dotted paths."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted paths as nested tables."""
    out: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        inner = out
        for table in tables:
            inner = inner.setdefault(table, {})
            if not isinstance(inner, dict):
                raise ValueError(
                    f"grid: {key!r} is inside {table!r}, which has values of its own; leave one of them out"
                )
        inner[name] = value
    return out
