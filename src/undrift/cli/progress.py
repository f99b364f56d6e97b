"""Progress of a run: a live bar on a terminal, a line of text per minute in a log."""

from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from undrift.experiment.judge import GLOBAL, NAMES, Column

EVERY = 60.0  # seconds between two lines of a log


class Progress:
    """A bar with the round, the last accuracy and loss, and an estimate of the time left; a context manager.

    If the output is not a terminal, it prints one line per minute instead.

    Args:
        rounds: how many rounds there are; None if that is not known yet.
        label: the text before the bar.
        console: where to print; None is standard error.
    """

    def __init__(self, rounds: int | None, label: str = "round", console: Console | None = None) -> None:
        console = Console(stderr=True) if console is None else console
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.logged, self.accuracy = perf_counter(), ""
        self.task = self.bar.add_task(label, total=rounds, status="starting")

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def row(self, row: dict[str, Any], judged_by: Column = GLOBAL) -> None:
        """Show the row of a round, with the accuracy by which its run is judged; it is not measured in every round."""
        status = f"loss {row['train_loss']:.3f}"
        if judged_by in row:
            self.accuracy = f"{NAMES[judged_by]} {row[judged_by]:.2%}  "
        self.bar.update(self.task, completed=row["round"] + 1, status=self.accuracy + status)
        self._log(row["round"] + 1, self.accuracy + status)

    def _log(self, done: int, status: str) -> None:
        """Print a line to a log, at most once a minute."""
        if self.bar.disable and perf_counter() - self.logged >= EVERY:
            self.logged, task = perf_counter(), self.bar.tasks[0]
            of = f" of {task.total:.0f}" if task.total else ""
            self.bar.console.print(f"{task.description} {done}{of}  {status}", highlight=False)
