"""Values of a sweep that no axis of numbers has, and runs that cannot share an axis."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from support.report import write_run
from undrift.report import ReportError, collect, sweep_figure
from undrift.report.draw.description import Line
from undrift.report.draw.print_figures import draw
from undrift.runs.settings.config import Config


def written(folder: Path, n: int, **values: Any) -> Path:
    write_run(folder / f"run-{n}", Config.build({"rounds": 2, "clients": 4, "cohort": 2, **values}), 0.1 * (n + 1))
    return folder / f"run-{n}"


def test_infinity_is_a_name_on_the_axis(tmp_path: Path) -> None:
    given = [{"method": f"fedsam + gradient:clip-coordinates({kappa})"} for kappa in (1.0, 3.0, inf)]
    runs = collect([written(tmp_path, n, **values) for n, values in enumerate(given)]).runs
    figure = sweep_figure(runs, over="kappa")
    panel = figure.parts[0][1]
    assert panel.x.labels == ("1.0", "3.0", "inf") and not panel.x.log
    draw(figure)


def test_runs_that_are_judged_by_different_metrics_share_no_axis(tmp_path: Path) -> None:
    folders = [written(tmp_path, 0, local={"epochs": 1}), written(tmp_path, 1, local={"epochs": 2}, goal="test_loss")]
    summary = json.loads((folders[1] / "summary.json").read_text())
    changed = {**summary, "judged_by": "test_loss", "direction": "min"}
    (folders[1] / "summary.json").write_text(json.dumps(changed))
    runs = collect(folders).runs
    with pytest.raises(ReportError, match=r"judged by different metrics, accuracy and test_loss.*--by"):
        sweep_figure(runs, over="local.epochs")
    draw(sweep_figure(runs, over="local.epochs", by="test_loss"))


def test_a_single_value_of_zero_has_room_for_levels(tmp_path: Path) -> None:
    folders = [written(tmp_path, 0, method="fedprox", arguments={"mu": 0.0}), written(tmp_path, 1, method="fedavg")]
    figure = sweep_figure(collect(folders).runs, over="mu")
    level = next(mark for mark in figure.parts[0][1].marks if isinstance(mark, Line) and not mark.bars)
    assert level.x[0] < 0 < level.x[1]
