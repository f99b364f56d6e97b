"""How far a run is: a live line on a terminal, a plain line now and then elsewhere."""

from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

EVERY = 60.0  # seconds between two lines of a log


class Progress:
    """A bar with the round, the last accuracy and loss, and an estimate of the time left; a context manager.

    Where the output is no terminal but a log, it is a line a minute.

    Args:
        rounds: how many rounds there will be; None if it is not known yet.
        label: what is running.
    """

    def __init__(self, rounds: int | None, label: str = "round", console: Console | None = None) -> None:
        console = Console(stderr=True) if console is None else console
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.told = perf_counter()
        self.task = self.bar.add_task(label, total=rounds, told="starting")

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def row(self, row: dict[str, Any]) -> None:
        """Show the row of a round."""
        told = f"loss {row['train_loss']:.3f}"
        if "accuracy" in row:
            told = f"accuracy {row['accuracy']:.2%}  {told}"
        self.bar.update(self.task, completed=row["round"] + 1, told=told)
        self._log(row["round"] + 1, told)

    def _log(self, done: int, told: str) -> None:
        """A line for a log, if it is time."""
        if self.bar.disable and perf_counter() - self.told >= EVERY:
            self.told, task = perf_counter(), self.bar.tasks[0]
            of = f" of {task.total:.0f}" if task.total else ""
            self.bar.console.print(f"{task.description} {done}{of}  {told}", highlight=False)
