"""A SuperNode that uploads the objects of a reply one at a time, with a pause before each after the first four.

python slow_supernode.py SECONDS <options of flower-supernode>
"""

import sys
from time import sleep
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

FIRST = 4  # objects of an answer to a query, which is not delayed


def push(objects: Any, push_object_fn: Any) -> None:
    """Upload objects slowly."""
    for number, (key, content) in enumerate(objects):
        sleep(SECONDS if number >= FIRST else 0.0)
        push_object_fn(key, content)


if __name__ == "__main__":
    SECONDS = float(sys.argv.pop(1))
    start_client_internal.push_object_contents_from_iterable = push  # type: ignore[assignment]
    flower_supernode()
