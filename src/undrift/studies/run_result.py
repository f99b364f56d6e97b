"""The result of a run, from its folder: what comparisons and reports calculate with."""

from collections.abc import Sequence
from pathlib import Path

from undrift.runs.folder.files import read_summary
from undrift.runs.folder.judge import judged_rows, lost_round, rounds_to, run_summary
from undrift.runs.settings.config import Config
from undrift.runs.settings.targets import Target, read_targets
from undrift.studies.cost_to_target import curve
from undrift.studies.statistics import Result, late_mean


def result(folder: Path, config: Config, relative: Sequence[Target] = ()) -> Result:
    """The result of a finished run, cut to the comparison's number of rounds: the run may have more.

    Args:
        folder: the run's folder.
        config: its settings, with the rounds of the comparison and the targets that are numbers.
        relative: the targets that depend on the baseline.
    """
    rows, column = judged_rows(folder, config)
    rows = rows[: config.rounds]
    summary, stored = run_summary(rows, column), read_summary(folder) or {}
    target = config.target[0] if isinstance(config.target, tuple) else config.target
    points = curve(rows, column)
    spent = {name: summary[name] for name in ("rounds", "gradients", "seconds")}
    return {
        **summary,
        "seconds_per_round": summary["seconds"] / summary["rounds"],
        "traffic": stored.get("traffic"),
        "constant": stored.get("constant"),
        "lost": lost_round(rows, column),
        "rounds_to_target": rounds_to(rows, target, column),
        "targets": (*read_targets(config.target, free=True), *relative),
        "curve": points,
        "late": late_mean([point[column.kind] for point in points]),
        "gradient_ms": min((1e3 * row["seconds"] / row["gradients"] for row in rows if row["gradients"]), default=None),
        "spent": {**spent, "bytes": summary["bytes_up"] + summary["bytes_down"]},
    }
