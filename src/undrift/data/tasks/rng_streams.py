"""Seeded replacements of the global random generators of Python, NumPy and torch, from which transforms draw."""

import random
from types import TracebackType
from typing import Any

import numpy as np
import torch


class Streams:
    """A context in which code that draws from the global generators draws from seeded streams; it can be entered again.

    Inside, Python's, NumPy's and torch's global generators continue where they were when it was last left; outside
    they are as if nothing had been drawn.

    Args:
        seed: where the streams begin.

    Example:
        >>> def draw(streams):
        ...     with streams:
        ...         return random.random()
        >>> one, two = Streams(1), Streams(1)
        >>> draw(one) == draw(two), draw(one) == draw(two), draw(one) == draw(Streams(1))
        (True, True, False)
    """

    def __init__(self, seed: int) -> None:
        self._inside: tuple[Any, ...] = (
            random.Random(seed).getstate(),  # noqa: S311
            np.random.RandomState(seed % 2**32).get_state(),
            torch.Generator().manual_seed(seed).get_state(),
        )
        self._outside: tuple[Any, ...] | None = None

    def __enter__(self) -> "Streams":
        self._outside = _states()
        _set(self._inside)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._outside is not None
        self._inside = _states()
        _set(self._outside)
        self._outside = None


def _states() -> tuple[Any, ...]:
    """The states of the global generators."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def _set(states: tuple[Any, ...]) -> None:
    """Set the states of the global generators."""
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
