"""By which metric a run is judged, and how good its rows are by that metric.

It is the accuracy unless the run has another goal. A personal method is judged by its personal models: the mean over
clients of each client's own model on its own test. All other methods are judged by the global model on the test set.
Everything that ranks runs uses this module.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from undrift.core.local.settings import Local
from undrift.core.method.algorithm import Algorithm
from undrift.runs.folder.files import RunError, read_summary
from undrift.runs.settings.config import Config
from undrift.runs.settings.goals import ACCURACY, PERSONAL_PREFIX, Column, GoalText
from undrift.util.storage.metrics import read_rows

Row = Mapping[str, Any]

GLOBAL = Column("accuracy")
PERSONAL = Column("personal_accuracy")

_FIRST = ("accuracy", "clean_accuracy", "test_loss", "client_accuracy", "client_worst_tenth")
_TOTALS = ("seconds", "evaluate_seconds", "bytes_down", "bytes_up", "gradients")


def judging_column(algorithm: Algorithm, local: Local, goal: str | None = None) -> Column:
    """The column of the rows by which a method is judged: "personal_accuracy" if clients have models of their own.

    Args:
        algorithm: the method.
        local: the settings of local training; `buffers = "keep"` gives clients models of their own with any method.
        goal: of the run's settings; None is the accuracy.

    Example:
        >>> judging_column(Algorithm(), Local()), judging_column(Algorithm(), Local(buffers="keep"))
        ('accuracy', 'personal_accuracy')
    """
    wanted = ACCURACY if goal is None else GoalText.parse(goal)
    return wanted.column(has_personal(algorithm, local))


def has_personal(algorithm: Algorithm, local: Local) -> bool:
    """Whether clients have models of their own.

    Args:
        algorithm: the method.
        local: the settings of local training.
    """
    return algorithm.personalized or algorithm.keeps_buffers(local)


def config_column(config: Config) -> Column:
    """The same for the settings of a run."""
    return judging_column(config.algorithm(), config.local, config.goal)


def run_column(folder: Path, config: Config) -> Column:
    """The same for a run in a folder: by the goal of the settings; without one by that of its summary.

    Summaries without the key `judged_by` are of runs that were judged by the global model. A run whose clients have no
    tests was judged by the global model, although its method is personal.
    """
    summary, wanted = read_summary(folder), config_column(config)
    if summary is None:
        return wanted
    there = result_column(summary)
    if config.goal is None:
        return there
    alike = (there.metric, there.direction) == (wanted.metric, wanted.direction)
    if alike and not any(wanted in row for row in read_rows(folder)):
        return there
    return wanted


def judged_rows(folder: Path, config: Config) -> tuple[list[Row], Column]:
    """All rows of a run and the column by which they are judged; raises if the run never measured it.

    Args:
        folder: the run's.
        config: the settings, as for `run_column`.
    """
    rows: list[Row] = [*read_rows(folder)]
    column = run_column(folder, config)
    if rows and not any(column in row for row in rows):
        raise RunError(
            f"{folder}: the run did not measure {column}, by which its settings judge it now; set goal as it was, "
            "or run it again in another folder"
        )
    return rows, column


def run_summary(rows: Sequence[Row], judged_by: str = GLOBAL) -> dict[str, Any]:
    """The summary of a run's rows: the best by the given column, the last of all metrics, and totals.

    `idle_rounds`, if there are any, is the number of rounds without an accepted upload.

    Args:
        rows: of the rounds, in order; not every round is evaluated.
        judged_by: the column by which the run is judged.
    """
    column = Column(judged_by)
    summary: dict[str, Any] = {"rounds": len(rows), "judged_by": column, **column.direction_entry}
    if (top := best_row(rows, column)) is not None:
        summary |= {column.best_key: top[column], "best_round": top["round"]}
    for row in measured_rows(rows, column.metric)[-1:]:
        others = [name for name in evaluated_columns(row) if name not in _FIRST]
        summary |= {name: row[name] for name in (*_FIRST, *others) if name in row}
    for row in measured_rows(rows, PERSONAL_PREFIX + column.metric)[-1:]:
        names = (PERSONAL_PREFIX + column.metric, "personal_worst_tenth")
        summary |= {name: row[name] for name in names if name in row}
    summary |= {name: sum(row[name] for row in rows) for name in _TOTALS if rows}
    personal = [row["personal_seconds"] for row in rows if "personal_seconds" in row]
    summary |= {"personal_seconds": sum(personal)} if personal else {}
    idle = sum(row.get("clients") == 0 for row in rows)
    return summary | ({"idle_rounds": idle} if idle else {})


def evaluated_columns(row: Row) -> list[str]:
    """The columns of a row that the evaluation of the global model gave: those between the two times."""
    names = list(row)
    if "seconds" not in row or "evaluate_seconds" not in row:
        return []
    inside = names[names.index("seconds") + 1 : names.index("evaluate_seconds")]
    return [name for name in inside if not name.startswith(PERSONAL_PREFIX)]


def rounds_to(rows: Sequence[Row], target: float | None, judged_by: str = GLOBAL) -> int | None:
    """After how many rounds a column first reached the target; None if it did not, or there is no target."""
    if target is None:
        return None
    column = Column(judged_by)
    return next((row["round"] for row in measured_rows(rows, column) if column.reaches(row[column], target)), None)


def lost_round(rows: Sequence[Row], judged_by: str = GLOBAL) -> int | None:
    """The round of the last evaluation if it gave no number, as after a divergence; None if it did, or there was none.

    Args:
        rows: of the rounds, in order; not every round is evaluated.
        judged_by: the column by which the run is judged.

    Example:
        >>> lost_round([{"round": 1, "mae": 0.5}, {"round": 2, "mae": float("nan")}, {"round": 3}], "mae")
        2
    """
    mark = "personal_seconds" if Column(judged_by).personal else judged_by
    last = [row for row in rows if judged_by in row or mark in row][-1:]
    return int(last[0]["round"]) if last and not measured_rows(last, judged_by) else None


class Plateau:
    """Counts the rounds since the best evaluation of a run; of equal evaluations the first is the best.

    Args:
        judged_by: the column by which the run is judged.
        rows: of the rounds so far, in order.

    Example:
        >>> Plateau("accuracy", [{"round": 1, "accuracy": 0.5}, {"round": 2}, {"round": 3, "accuracy": 0.5}]).stale
        2
    """

    def __init__(self, judged_by: str, rows: Sequence[Row] = ()) -> None:
        self.column, self.stale = Column(judged_by), 0
        self._best: Row = {"round": 0}
        for row in rows:
            self.take(row)

    def take(self, row: Row) -> None:
        """Count a round, if it was evaluated; an evaluation that gave no number is no better than any other."""
        if measured_rows([row], self.column):
            best = self._best.get(self.column)
            if best is None or self.column.better(row[self.column], best):
                self._best = row
        elif lost_round([row], self.column) is None:
            return
        self.stale = row["round"] - self._best["round"]


def best_row(rows: Sequence[Row], column: Column) -> Row | None:
    """The row with the best number in a column, of equal ones the first; None if no row has one."""
    found = measured_rows(rows, column)
    return (min if column.minimised else max)(found, key=lambda row: row[column], default=None)


def measured_rows(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows that have a number in a column."""
    return [row for row in rows if row.get(column) is not None and not isnan(row[column])]


def result_column(result: Mapping[str, Any]) -> Column:
    """The column by which a run is judged, from its result."""
    return Column(result.get("judged_by", GLOBAL), result.get("direction"))
