"""A round evaluated while the next one trains on other processes."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import torch

Row = dict[str, Any]


class Behind:
    """Evaluates rounds in a thread, one at a time, and stores each before the next one is evaluated.

    Rounds are stored in order. A run that is killed in between resumes from the round before, to the same bits. If the
    block is left by an error, the round that is being evaluated is stored first.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "evaluation", initializer=torch.set_num_threads, initargs=(1,))
        self._pending: tuple[Future[Row], Callable[[Row], None]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.finish()
        finally:
            self._thread.shutdown()

    def begin(self, evaluate: Callable[[], Row], store: Callable[[Row], None]) -> None:
        """Evaluate a round from now on.

        Args:
            evaluate: gives its row; called in the thread.
            store: called with the row by `finish`, in the thread that calls it.
        """
        self.finish()
        self._pending = self._thread.submit(evaluate), store

    def finish(self) -> None:
        """Wait for the round that is being evaluated, if there is one, and store it."""
        if self._pending is not None:
            (found, store), self._pending = self._pending, None
            store(found.result())
