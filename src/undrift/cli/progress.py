"""Progress of runs: a live bar on a terminal, lines of text in a log."""

import logging
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from undrift.runs.folder.judge import GLOBAL, config_judged_by, run_judged_by
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.studies.results_sheet import Trial
from undrift.util.steps import LOG

EVERY = 30.0  # seconds after which a log gets a line, whatever is going on
SLOW = 10.0, 3.0  # seconds of an evaluation, and how many times the training of its round, that are worth a hint


class Progress:
    """A bar with the round, the last accuracy and loss, and an estimate of the time left; a context manager.

    If the output is not a terminal, it prints lines instead: one with the first step, then one every 30 seconds, with
    what is being done (`undrift.util.steps`), so that a slow round is not silent.

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
        self.rounds, self.begun, self.logged = rounds, perf_counter(), -inf
        self.task = self.bar.add_task(label, total=rounds, status="starting")
        self.trial, self.done, self.accuracy, self.status, self.step = "", 0, "", "", ""
        self.hinted = False
        self._handler, self._before, self._ended = _Steps(self), (LOG.level, LOG.propagate), Event()
        self._beat = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Progress":
        LOG.addHandler(self._handler)
        LOG.setLevel(logging.DEBUG)
        LOG.propagate = False
        self.bar.start()
        if self.bar.disable:
            self._beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.bar.stop()
        LOG.removeHandler(self._handler)
        LOG.setLevel(self._before[0])
        LOG.propagate = self._before[1]

    def of(self, config: Config, folder: Path | None = None) -> Callable[[dict[str, Any]], None]:
        """What shows the rows of a run.

        Args:
            config: its settings.
            folder: the run's, whose settings say by what it is judged once it has begun; None takes the config's.
        """
        return lambda row: self.row(row, judged_in(folder, config))

    def begin(self, trial: str) -> None:
        """Begin one of several runs; how many rounds it has is known with its first row."""
        self.trial, self.done, self.accuracy, self.status, self.step = trial, 0, "", "", ""
        self.rounds = None
        self.bar.update(self.task, description=escape(trial))

    def starts(self, done: int, rounds: int) -> None:
        """Show that training starts after so many rounds of an earlier process; a bar of several runs waits for a row.

        Args:
            done: how many rounds are done.
            rounds: how many there are in all.
        """
        self.done, self.rounds, self.step = done, rounds, ""
        if not self.trial:
            self.bar.update(self.task, completed=done, total=rounds)
        if done:
            self.log(0)

    def row(self, row: dict[str, Any], judged_by: str = GLOBAL, *, rounds: int | None = None, before: int = 0) -> None:
        """Show the row of a round, with the accuracy by which its run is judged; it is not measured in every round.

        Args:
            row: the row.
            judged_by: the column of that accuracy.
            rounds: how many rounds this run has, if the bar counts those of several.
            before: how many rounds of other runs are done.
        """
        if judged_by in row:
            column = Column(judged_by)
            self.accuracy = f"{column.words} {column.text(row[column])}  "
        loss = f"loss {row['train_loss']:.3f}" if "train_loss" in row else "no client trained"
        self.done, self.status, self.step = row["round"], self.accuracy + loss, ""
        self.rounds = rounds or self.rounds
        at = f"{escape(self.trial)}, round {self.done} of {self.rounds}" if self.trial else None
        self.bar.update(self.task, completed=before + self.done, status=self.status, description=at)
        self.log(EVERY)
        self._hint(row.get("seconds", 0.0), row.get("evaluate_seconds", 0.0))

    def _hint(self, training: float, evaluation: float) -> None:
        """Print once how to evaluate less often if an evaluation takes much longer than the training of its round."""
        least, times = SLOW
        if not self.hinted and evaluation >= max(least, times * training):
            self.hinted = True
            hint = f"The evaluation took {evaluation:.0f} s, the training of the round {training:.0f} s: "
            hint += "--set output.evaluate_every=10 evaluates in every tenth round only."
            self.bar.console.print(hint, highlight=False, markup=False, soft_wrap=True)

    def show_step(self, step: str) -> None:
        """Show what is being done."""
        self.step = step
        self.bar.update(self.task, status="  ".join(filter(None, [self.status, escape(step)])))
        self.log(EVERY)

    def log(self, after: float) -> None:
        """Print a line if the output is a log and its last line is this many seconds old."""
        now = perf_counter()
        if self.bar.disable and now - self.logged >= after:
            self.logged, of = now, f" of {self.rounds}" if self.rounds else ""
            at = ", ".join(filter(None, [self.trial, f"{self.done}{of} rounds done" if self.rounds else ""]))
            line = "  ".join(filter(None, [at, self.status, self.step]))
            self.bar.console.print(f"{line}  ({now - self.begun:.0f} s)", highlight=False, markup=False, soft_wrap=True)

    def _watch(self) -> None:
        """Print lines while a step takes long."""
        while not self._ended.wait(1.0):
            self.log(EVERY)


class _Steps(logging.Handler):
    """Hands the steps of a run to its progress."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.progress.bar.console.print(record.getMessage(), highlight=False, markup=False, soft_wrap=True)
            return
        if hasattr(record, "rounds"):
            self.progress.starts(*record.rounds)
        (self.progress.begin if hasattr(record, "trial") else self.progress.show_step)(record.getMessage())


def judged_in(folder: Path | None, config: Config) -> Column:
    """By what a run is judged: as its folder says, or else its settings.

    Args:
        folder: the run's, which may not exist yet.
        config: its settings.
    """
    path = None if folder is None else folder / "config.toml"
    if folder is None or path is None or not path.is_file():
        return config_judged_by(config)
    return run_judged_by(folder, Config.read(path))


class Watching:
    """Shows the progress of many runs on one bar, which counts their rounds.

    Args:
        progress: the bar.
        tuned: the settings that the trials of a tuning share.
        out: the folder below which the runs are.
    """

    def __init__(self, progress: Progress, tuned: Config | None = None, out: Path | None = None) -> None:
        self.progress, self.tuned, self.before, self.out = progress, tuned, 0, out

    def comparison(self, trial: Trial, row: dict[str, Any] | None) -> None:
        """Show a row of one of the runs, or count a run that has ended (None)."""
        rounds = trial.config.rounds
        if row is None:
            self.before += rounds
            self.progress.bar.update(self.progress.task, completed=self.before)
        else:
            folder = None if self.out is None else self.out / trial.name
            self.progress.row(row, judged_in(folder, trial.config), rounds=rounds, before=self.before)

    def tuning(self, name: str, row: dict[str, Any]) -> None:
        """Show a row of a trial."""
        assert self.tuned is not None
        rounds = self.tuned.rounds
        folder = None if self.out is None else self.out / "trials" / name
        self.progress.row(row, judged_in(folder, self.tuned), rounds=rounds, before=self.before)
        self.before += rounds if row["round"] == rounds else 0
