"""Progress of training: a bar on a terminal, one output in a notebook, a few lines in a log.

In a notebook the output is replaced, so it needs no widgets and leaves one line.
"""

import logging
import re
import sys
from collections import Counter
from html import escape
from math import inf
from threading import Event, Thread
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from undrift.util.steps import LOG

GATE = logging.getLogger("undrift.core.server.gate")
"""Where rejected uploads are logged; a program's own handlers still get every record."""

EVERY = 30.0  # seconds after which a log gets a line, whatever is going on
PAUSE = 0.2  # seconds between two updates in a notebook


class Progress:
    """Shows how many rounds are done, the last numbers, and what is being done (`undrift.util.steps`).

    A context manager. A log gets a line with the first step, then one every 30 seconds, so that a slow round is not
    silent, and one with the last round.

    Args:
        total: how many rounds there are; None if that is not known yet.
        shown: False shows nothing.
        console: where to print; None is standard error, or the notebook's cell.
    """

    def __init__(self, total: int | None, shown: bool = True, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.trial, self.rounds, self.done, self.before = "", total, 0, 0
        self.status, self.step = "", "starting"
        self._shown, self._cell = shown, _notebook_cell() if shown and console is None else None
        self._log = shown and self._cell is None and not self.console.is_terminal
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not shown or self._log or self._cell is not None,
        )
        self._task = self._bar.add_task("round", total=total, status=self.step)
        self._begun, self._last, self._last_done = perf_counter(), -inf, 0
        self._steps, self._level = _Steps(self), (LOG.level, LOG.propagate)
        self._rejections = _Rejections(self)
        self._ended, self._beat = Event(), Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        if self._shown:
            LOG.addHandler(self._steps)
            LOG.setLevel(logging.DEBUG)
            LOG.propagate = False
            GATE.addHandler(self._rejections)
        self._bar.start()
        if self._cell is not None:
            self._cell.display(_Html(self._html()))
        if self._log:
            self._beat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ended.set()
        self._bar.stop()
        if self._cell is not None or self.done > self._last_done:
            self._show(0.0)
        if self._shown:
            LOG.removeHandler(self._steps)
            self._steps.close()
            LOG.setLevel(self._level[0])
            LOG.propagate = self._level[1]
            GATE.removeHandler(self._rejections)
            self._rejections.close()

    def update(self, done: int, status: str, *, rounds: int | None = None, before: int = 0) -> None:
        """Show a round.

        Args:
            done: how many rounds are done.
            status: the numbers of the last one.
            rounds: how many rounds this run has, if the bar counts those of several.
            before: how many rounds of other runs are done.
        """
        self.done, self.status, self.step, self.before = done, status, "", before
        self.rounds = rounds or self.rounds
        at = f"{self.trial}, round {done} of {self.rounds}" if self.trial else None
        self._bar.update(self._task, completed=before + done, status=status, description=at)
        self._show()

    def begin_trial(self, trial: str) -> None:
        """Begin one of several runs; how many rounds it has is known with its first row."""
        self.trial, self.done, self.status, self.step, self.rounds = trial, 0, "", "", None
        self._bar.update(self._task, description=trial)

    def begin_rounds(self, done: int, rounds: int) -> None:
        """Show that training begins; the bar of several runs waits for a row.

        Args:
            done: how many rounds an earlier process has done.
            rounds: how many there are in all.
        """
        self.done, self.rounds, self.step = done, rounds, ""
        if not self.trial:
            self._bar.update(self._task, completed=done, total=rounds)
        if done:
            self._show(0.0)

    def complete(self, done: int) -> None:
        """Show how many rounds of all runs are done, at the end of one of them."""
        self._bar.update(self._task, completed=done)

    def show_step(self, step: str) -> None:
        """Show what is being done."""
        self.step = step
        self._bar.update(self._task, status="  ".join(filter(None, [self.status, step])))
        self._show()

    def print(self, text: str) -> None:
        """Print a line above the bar, or in the log."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _show(self, after: float | None = None) -> None:
        """Update the notebook's output or print a line, if the last is this many seconds old."""
        now = perf_counter()
        if self._cell is not None and now - self._last >= (PAUSE if after is None else after):
            self._last = now
            self._cell.update(_Html(self._html()))
        elif self._log and now - self._last >= (EVERY if after is None else after):
            self._last, self._last_done = now, self.done
            self.print(f"{self._text()}  ({now - self._begun:.0f} s)")

    def _text(self) -> str:
        """The run, its rounds, the last numbers and the step."""
        rounds = f"{self.done} of {self.rounds} rounds done" if self.rounds else ""
        return "  ".join(filter(None, [", ".join(filter(None, [self.trial, rounds])), self.status, self.step]))

    def _html(self) -> str:
        """The bar of a notebook."""
        seconds, total = perf_counter() - self._begun, self._bar.tasks[0].total
        done = self.before + self.done
        left = f", {seconds / done * (total - done):.0f} s left" if total and 0 < done < total else ""
        limit = f' value="{done}" max="{total:.0f}"' if total else ""
        return f"<progress{limit}></progress> <span>{escape(self._text())} ({seconds:.0f} s{left})</span>"

    def _repeat(self) -> None:
        """Print lines while a step takes long."""
        while not self._ended.wait(1.0):
            self._show()


class _Steps(logging.Handler):
    """Hands the steps of a run to its progress; a warning is also handed to the handlers of a program."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress, self.warned = progress, Counter[tuple[int, str]]()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.INFO:
            self.warned[record.levelno, record.getMessage()] += 1
            if self.warned[record.levelno, record.getMessage()] == 1:
                self.progress.print(record.getMessage())
            if LOG.parent is not None and LOG.parent.hasHandlers():
                LOG.parent.handle(record)
            return
        if hasattr(record, "rounds"):
            self.progress.begin_rounds(*record.rounds)
        (self.progress.begin_trial if hasattr(record, "trial") else self.progress.show_step)(record.getMessage())

    def close(self) -> None:
        for (level, message), count in self.warned.items():
            if count > 1 and level >= logging.WARNING:
                self.progress.print(f"{count} times: {message}")
        self.warned.clear()
        super().close()


class _Rejections(logging.Handler):
    """Prints the first rejected upload of each kind, and at the end how many more there were."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self.progress, self.more = progress, Counter[str]()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        kind = re.sub(r"^round \d+, client \d+: ", "", message)
        if kind not in self.more:
            self.progress.print(message)
        self.more[kind] += 1

    def close(self) -> None:
        for kind, count in self.more.items():
            if count > 1:
                self.progress.print(f"{count} uploads were rejected: {kind}")
        self.more.clear()
        super().close()


class _Html:
    """An output of a notebook, with a text for those that show no HTML."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text.partition("<span>")[2].removesuffix("</span>")


def _notebook_cell() -> Any:
    """An output of the notebook that can be replaced; None outside a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import DisplayHandle

    return DisplayHandle()  # type: ignore[no-untyped-call]
