"""By which accuracy a run is judged, and what its rows say by that accuracy.

A personal method is judged by its personal models: the mean over clients of each client's own model on its own test.
All other methods are judged by the global model on the test set. Everything that ranks runs asks here.
"""

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any, Literal

from undrift.core.algorithm import Algorithm
from undrift.core.local import Local
from undrift.experiment.config import Config
from undrift.experiment.folder import read_summary

Column = Literal["accuracy", "personal_accuracy"]
Row = Mapping[str, Any]

GLOBAL: Column = "accuracy"
PERSONAL: Column = "personal_accuracy"

NAMES: Mapping[Column, str] = {GLOBAL: "accuracy", PERSONAL: "personal accuracy"}
"""How each of them is called in a text."""

_LAST: Mapping[Column, tuple[str, ...]] = {
    GLOBAL: ("accuracy", "clean_accuracy", "test_loss", "client_accuracy", "client_worst_tenth"),
    PERSONAL: ("personal_accuracy", "personal_worst_tenth"),
}
_TOTALS = ("seconds", "evaluate_seconds", "bytes_down", "bytes_up", "gradients")


def judged_by(algorithm: Algorithm, local: Local) -> Column:
    """The column of the rows by which a method is judged: "personal_accuracy" if clients have models of their own.

    Args:
        algorithm: the method.
        local: the settings of local training; `buffers = "keep"` gives clients models of their own with any method.

    Example:
        >>> judged_by(Algorithm(), Local()), judged_by(Algorithm(), Local(buffers="keep"))
        ('accuracy', 'personal_accuracy')
    """
    return PERSONAL if algorithm.personalized or algorithm.keeps_buffers(local) else GLOBAL


def config_judged_by(config: Config) -> Column:
    """The same for the settings of a run."""
    return judged_by(config.algorithm(), config.local.local())


def run_judged_by(folder: Path, config: Config) -> Column:
    """The same for a run in a folder: what its summary says or, if it has not ended, what its settings say.

    Summaries without the key `judged_by` are of runs that were judged by the global model.
    """
    summary = read_summary(folder)
    if summary is None:
        return config_judged_by(config)
    return PERSONAL if summary.get("judged_by") == PERSONAL else GLOBAL


def best(rows: Sequence[Row], judged_by: Column = GLOBAL) -> dict[str, Any]:
    """The summary of a run's rows: best accuracy by the given column, the last of all accuracies, and totals.

    Args:
        rows: of the rounds, in order; not every round is evaluated.
        judged_by: the column by which the run is judged.
    """
    summary: dict[str, Any] = {"rounds": len(rows), "judged_by": judged_by}
    judged = measured(rows, judged_by)
    if judged:
        top = max(judged, key=lambda row: row[judged_by])
        summary |= {"best_accuracy": top[judged_by], "best_round": top["round"]}
    for column, names in _LAST.items():
        for row in measured(rows, column)[-1:]:
            summary |= {name: row[name] for name in names if name in row}
            if column == GLOBAL:  # one for each type of corruption
                summary |= {name: value for name, value in row.items() if name.startswith("accuracy/")}
    summary |= {name: sum(row[name] for row in rows) for name in _TOTALS if rows}
    personal = [row["personal_seconds"] for row in rows if "personal_seconds" in row]
    return summary | ({"personal_seconds": sum(personal)} if personal else {})


def rounds_to(rows: Sequence[Row], target: float | None, judged_by: Column = GLOBAL) -> int | None:
    """After how many rounds a column first reached the target; None if it did not, or there is no target."""
    if target is None:
        return None
    return next((row["round"] for row in measured(rows, judged_by) if row[judged_by] >= target), None)


def measured(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows that have a number in a column."""
    return [row for row in rows if row.get(column) is not None and not isnan(row[column])]
