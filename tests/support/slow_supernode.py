"""A SuperNode that uploads the objects of a reply one at a time, with a pause before each after the first four.

python slow_supernode.py SECONDS <options of flower-supernode>
"""

import sys
from collections.abc import Callable
from time import sleep
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

FIRST = 4  # objects of an answer to a query, which is not delayed


def slow_uploads(pause: Callable[[], float | None]) -> None:
    """Let the SuperNode of this process upload slowly.

    Args:
        pause: the seconds before every object; None leaves an upload to Flower.
    """
    push = start_client_internal.push_object_contents_from_iterable

    def slowly(objects: Any, push_object_fn: Any, **options: Any) -> None:
        if pause() is None:
            push(objects, push_object_fn, **options)
            return
        for number, (key, content) in enumerate(objects):
            sleep((pause() or 0.0) if number >= FIRST else 0.0)
            push_object_fn(key, content)

    start_client_internal.push_object_contents_from_iterable = slowly  # type: ignore[assignment]


if __name__ == "__main__":
    SECONDS = float(sys.argv.pop(1))
    slow_uploads(lambda: SECONDS)
    flower_supernode()
