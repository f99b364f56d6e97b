"""Progress of a training in Python: a bar on a terminal and in a notebook, a few lines in a log.

In a notebook the bar is one output that is replaced, so it needs no widgets and leaves one line.
"""

import sys
from html import escape
from time import perf_counter
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY = 30.0  # seconds between two lines in a log
PAUSE = 0.2  # seconds between two updates in a notebook


class Bar:
    """Shows how many rounds are done; a context manager.

    Args:
        total: how many rounds there are.
        shown: False shows nothing.
        console: where to print; None is standard error, or the notebook's cell.
    """

    def __init__(self, total: int, shown: bool = True, console: Console | None = None) -> None:
        self.total, self.done, self.status = total, 0, "starting"
        self._begun = perf_counter()
        self._next, self._told = 0.0, 0
        self._cell = _cell() if shown and console is None else None
        self._console = console or Console(stderr=True)
        self._log = shown and self._cell is None and not self._console.is_terminal
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not shown or self._log or self._cell is not None,
        )
        self._task = self._bar.add_task("round", total=total, status=self.status)

    def __enter__(self) -> "Bar":
        self._bar.start()
        if self._cell is not None:
            self._cell.display(_Html(self._html()))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._bar.stop()
        self._show(ended=True)

    def update(self, done: int, status: str) -> None:
        """Show a round.

        Args:
            done: how many rounds are done.
            status: what to say about the last one.
        """
        self.done, self.status = done, status
        self._bar.update(self._task, completed=done, status=status)
        self._show()

    def _show(self, ended: bool = False) -> None:
        """Update the notebook's output or print a line, if it is time to."""
        now = perf_counter() - self._begun
        if not ended and now < self._next:
            return
        if self._cell is not None:
            self._next = now + PAUSE
            self._cell.update(_Html(self._html()))
        elif self._log and self.done > self._told:
            self._next, self._told = now + EVERY, self.done
            line = f"{self.done} of {self.total} rounds done  {self.status}  ({now:.0f} s)"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _html(self) -> str:
        """The bar of a notebook."""
        seconds = perf_counter() - self._begun
        left = f", {seconds / self.done * (self.total - self.done):.0f} s left" if 0 < self.done < self.total else ""
        text = escape(f"{self.done} of {self.total} rounds  {self.status}  ({seconds:.0f} s{left})")
        return f'<progress value="{self.done}" max="{self.total}"></progress> <span>{text}</span>'


class _Html:
    """An output of a notebook, with a text for those that show no HTML."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text.partition("<span>")[2].removesuffix("</span>")


def _cell() -> Any:
    """An output of the notebook that can be replaced; None outside a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import DisplayHandle

    return DisplayHandle()  # type: ignore[no-untyped-call]
