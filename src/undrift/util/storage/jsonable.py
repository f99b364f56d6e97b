"""Values as JSON that every reader takes: JSON has no infinity and no NaN."""

import json
from collections.abc import Mapping
from math import isfinite
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
