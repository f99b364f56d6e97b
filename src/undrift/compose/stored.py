"""The methods as `make cards` has stored them in methods.json, to be read without torch; a test compares them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FAMILIES = ("sharpness", "spectral", "drift", "server", "weights", "robust", "personal", "adapters", "asynchronous")
"""The families of methods, in the order in which `undrift list` shows them."""

PATH = Path(__file__).with_name("methods.json")


@cache
def stored_methods() -> dict[str, dict[str, Any]]:
    """What `undrift list` and `undrift show` print about our own methods, by name, FedAvg first.

    Example:
        >>> stored_methods()["scaffold"]["family"]
        'drift'
    """
    methods: dict[str, dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return methods
