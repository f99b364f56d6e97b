"""Values as JSON that every reader takes, without infinity and NaN; and objects read from files that may be damaged."""

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any


def jsonable(value: Any) -> Any:
    """Tensors, arrays, tuples and mappings as JSON values; numbers that are not finite become None.

    Args:
        value: what to write.

    Example:
        >>> jsonable({"best": float("inf"), "seeds": (0, 1)})
        {'best': None, 'seeds': [0, 1]}
    """
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def to_json(value: Any, indent: int | None = 2) -> str:
    """The text of a value as JSON.

    Args:
        value: what to write.
        indent: spaces of each level; None writes one line.
    """
    return json.dumps(jsonable(value), indent=indent, allow_nan=False)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """The object that a text is; empty if it is none.

    Args:
        text: perhaps damaged.

    Example:
        >>> parse_object('{"round": 3}'), parse_object('{"rou'), parse_object("3")
        ({'round': 3}, {}, {})
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is none, or it is damaged.

    Args:
        path: the file.
    """
    try:
        return parse_object(path.read_bytes())
    except OSError:
        return {}


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file of JSON lines, without lines that are damaged; none if there is no such file.

    Args:
        path: the file.
    """
    if path.is_file():
        with path.open("rb") as lines:
            yield from filter(None, map(parse_object, lines))
