"""Progress of runs on the command line: the rows of their rounds, judged as each run is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from undrift.runs.folder.judge import GLOBAL, config_column, run_column
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import Column
from undrift.studies.results_sheet import Trial
from undrift.util.display.progress import Progress

SLOW = 10.0, 3.0  # seconds of an evaluation, and how many times the training of its round, that are worth a hint


class RunProgress(Progress):
    """The progress of one run, or of several whose rounds are counted together.

    Args:
        rounds: how many rounds there are; None if that is not known yet.
        out: the folder below which several runs are.
        console: where to print; None is standard error.
    """

    def __init__(self, rounds: int | None, out: Path | None = None, console: Console | None = None) -> None:
        super().__init__(rounds, console=Console(stderr=True) if console is None else console)
        self.out, self.ended, self.accuracy, self.hinted = out, 0, "", False

    def begin_trial(self, trial: str) -> None:
        """Begin one of several runs."""
        self.accuracy = ""
        super().begin_trial(trial)

    def of_run(self, config: Config, folder: Path) -> Callable[[dict[str, Any]], None]:
        """What shows the rows of a run.

        Args:
            config: its settings.
            folder: the run's, which may not exist yet.
        """
        return lambda row: self.show_row(row, judge_in(folder, config))

    def of_trial(self, trial: Trial, row: dict[str, Any] | None) -> None:
        """Show a row of one of the runs of a comparison, or count a run that has ended (None)."""
        rounds = trial.config.rounds
        if row is None:
            self.ended += rounds
            self.complete(self.ended)
        else:
            self.show_row(row, self._judge(trial.config, trial.name), rounds=rounds)

    def of_tuning(self, config: Config) -> Callable[[str, dict[str, Any]], None]:
        """What shows the rows of the trials of a tuning.

        Args:
            config: the settings that they share.
        """

        def show(name: str, row: dict[str, Any]) -> None:
            self.show_row(row, self._judge(config, f"trials/{name}"), rounds=config.rounds)
            self.ended += config.rounds if row["round"] == config.rounds else 0

        return show

    def show_row(self, row: dict[str, Any], judged_by: str = GLOBAL, *, rounds: int | None = None) -> None:
        """Show the row of a round, with the accuracy by which its run is judged; it is not measured in every round.

        Args:
            row: the row.
            judged_by: the column of that accuracy.
            rounds: how many rounds this run has, if it is one of several.
        """
        if judged_by in row:
            column = Column(judged_by)
            self.accuracy = f"{column.words} {column.text(row[column])}  "
        loss = f"loss {row['train_loss']:.3f}" if "train_loss" in row else "no client trained"
        self.update(row["round"], self.accuracy + loss, rounds=rounds, before=self.ended)
        self._hint(row.get("seconds", 0.0), row.get("evaluate_seconds", 0.0))

    def _judge(self, config: Config, name: str) -> Column:
        return judge_in(None if self.out is None else self.out / name, config)

    def _hint(self, training: float, evaluation: float) -> None:
        """Print once how to evaluate less often if an evaluation takes much longer than the training of its round."""
        least, times = SLOW
        if not self.hinted and evaluation >= max(least, times * training):
            self.hinted = True
            hint = f"The evaluation took {evaluation:.0f} s, the training of the round {training:.0f} s: "
            self.print(hint + "--set output.evaluate_every=10 evaluates in every tenth round only.")


def judge_in(folder: Path | None, config: Config) -> Column:
    """By what a run is judged: as recorded in its folder, or else by its settings.

    Args:
        folder: the run's, which may not exist yet.
        config: its settings.
    """
    if folder is None or not (folder / "config.toml").is_file():
        return config_column(config)
    return run_column(folder, Config.read(folder))
