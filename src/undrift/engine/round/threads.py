"""How many threads torch uses while a simulation computes in this process.

Small models are slower with several threads, many times so on a busy machine, and the last bits of a result depend on
their number: Ray workers, Flower nodes and the command line use one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from undrift.util.steps import warn

SMALL = 1_000_000
"""A model with at most so many parameters is trained by one thread."""

_BEGAN_WITH = torch.get_num_threads()
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def choose_threads(parameters: int) -> int | None:
    """One thread for a small model, if torch has the number of threads that it starts with; None leaves it as it is.

    Args:
        parameters: of the model.
    """
    threads = torch.get_num_threads()
    own = any(os.environ.get(name) for name in _VARIABLES) or threads != _BEGAN_WITH or threads not in _usual_numbers()
    if own or parameters > SMALL or threads == 1:
        return None
    _notify(threads)
    return 1


@contextmanager
def use_threads(number: int | None) -> Iterator[None]:
    """Let torch use so many threads in a block; None leaves them as they are.

    Args:
        number: of threads.
    """
    before = torch.get_num_threads()
    if number is None or number == before:
        yield
        return
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _usual_numbers() -> set[int]:
    """The numbers of threads with which torch starts: the processors of this process or machine, or their cores."""
    counts = {os.cpu_count() or 1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1}
    return counts | {max(1, count // 2) for count in counts}


@cache
def _notify(before: int) -> None:
    """Report once that one thread is used."""
    warn(
        "torch uses 1 of its %d threads while a small model is trained here: faster, and with the bits of undrift run; "
        "Simulation(threads=%d) uses all",
        before,
        before,
    )
