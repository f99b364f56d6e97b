"""Runs that diverged: their last evaluation is no number, and no table, figure or index takes an earlier one for it."""

import json
import re
from math import nan
from pathlib import Path
from typing import Any

import pytest

from support.report import write_run
from undrift.report import collect, index_rows, render, render_index, sections, sweep_figure
from undrift.report.draw.description import Line
from undrift.runs.folder.judge import best_row, lost_round, run_summary
from undrift.runs.settings.goals import Column
from undrift.studies.compare import Comparison
from undrift.studies.tune import score

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

VALUES: dict[str, Any] = {
    "seeds": [0, 1],
    "base": {"rounds": 4, "clients": 4, "cohort": 2, "goal": "mae"},
    "methods": [
        {"method": "fedavg"},
        {"method": "fedsam", "label": "sam-0.1", "arguments": {"rho": 0.1}},
        {"method": "fedsam", "label": "sam-0.5", "arguments": {"rho": 0.5}},
    ],
}


def rows(folder: Path, values: list[float | None], **more: Any) -> None:
    """The rows of a run that is judged by the mean absolute error."""
    path = folder / "metrics.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for row, value in zip(found, values, strict=True):
        row.pop("accuracy")
        order = {"round": row.pop("round") + 1, "seconds": row.pop("seconds"), "mae": value, **row, **more}
        row.clear()
        row.update(order)
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    summary = {**run_summary(found, "mae"), "traffic": 1.0, "sha256": "ab" * 32}
    (folder / "summary.json").write_text(json.dumps(summary))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of two seeds of sam-0.1 diverged, in the last round; both of sam-0.5."""
    out = tmp_path_factory.mktemp("diverged") / "runs"
    comparison = Comparison.build(VALUES)
    for trial in comparison.trials():
        write_run(out / trial.name, trial.config, 0.1)
        lost = trial.label == "sam-0.5" or (trial.label, trial.config.seed) == ("sam-0.1", 1)
        value = 0.2 if trial.label == "sam-0.1" else 0.5
        rows(out / trial.name, [0.9, 0.8, value, nan if lost else value])
    (out / "compare.toml").write_text(comparison.toml())
    return out


def test_the_round_of_an_evaluation_without_a_number() -> None:
    done: list[dict[str, Any]] = [{"round": 1, "mae": 0.3}, {"round": 2, "mae": nan}, {"round": 3}]
    assert lost_round(done, "mae") == 2 and lost_round(done[:1], "mae") is None and lost_round([], "mae") is None
    assert lost_round([{"round": 1, "mae": None}], "mae") == 1
    personal: list[dict[str, Any]] = [
        {"round": 1, "personal_mae": 0.1, "personal_seconds": 1},
        {"round": 2, "personal_seconds": 1},
    ]
    assert lost_round(personal, "personal_mae") == 2, "no client's model had a number"
    tried = [{**row, "clients": 2, "rejected": 0} for row in done]
    assert score(tried, "best", "mae") == -0.3 and score(tried, "last", "mae") != score(tried, "last", "mae")


def test_the_table_says_that_a_run_diverged(folder: Path) -> None:
    table = sections(collect([folder]))[0].tables[0]
    column = table.headings.index("last")
    assert [row[column] for row in table.rows] == ["0.5 ± 0", "diverged (1/2)", "diverged (2/2)"]
    assert "last vs fedavg" not in table.headings, "no difference of the seed that survived"
    assert "sam-0.1: diverged, the evaluation after round 4 gave no number (seed 1)." in table.reading
    assert (0, column) not in table.best, "it is the only one left, and not the best of three"
    drawings = re.findall(r'<script type="application/json">(.*?)</script>', render(collect([folder])))
    assert drawings and not any("NaN" in drawing for drawing in drawings)


def test_the_index_says_that_a_run_diverged(folder: Path) -> None:
    found = {row.name: row for row in index_rows([folder])}
    assert found["sam-0.1/seed-1"].lost and found["sam-0.1/seed-1"].last is None
    assert not found["sam-0.1/seed-0"].lost and found["sam-0.1/seed-0"].last == 0.2
    html = render_index([found["sam-0.1/seed-1"]], "runs", folder, ".")
    assert '<td class="number" data-sort="">diverged</td>' in html


def test_a_sweep_has_no_point_of_runs_that_diverged(folder: Path) -> None:
    figure = sweep_figure(collect([folder]).runs, over="rho")
    (_, panel), *others = figure.parts
    line = next(mark for mark in panel.marks if isinstance(mark, Line) and mark.bars)
    assert not others and list(line.x) == [0.1] and list(line.y) == [0.2]
    assert "3 of 6 runs have no such number and are left out" in figure.reading


def test_rounds_without_an_upload_are_named(tmp_path: Path) -> None:
    comparison = Comparison.build({**VALUES, "seeds": [0], "methods": VALUES["methods"][:1]})
    (trial,) = comparison.trials()
    write_run(tmp_path / "run" / trial.name, trial.config, 0.1)
    rows(tmp_path / "run" / trial.name, [0.9, 0.8, 0.8, 0.8], clients=0)
    (tmp_path / "run" / "compare.toml").write_text(comparison.toml())
    reading = sections(collect([tmp_path / "run"]))[0].tables[0].reading
    assert "fedavg: no upload was accepted in 4 of 4 rounds (seed 0)." in reading


def test_the_best_row_is_the_first_of_equal_ones_and_has_a_number() -> None:
    rows = [{"round": n, "mae": x} for n, x in enumerate((0.5, float("nan"), 0.25, None, 0.25), 1)]
    assert best_row(rows, Column("mae")) == rows[2] and best_row(rows[1:2], Column("mae")) is None
    assert best_row(rows, Column("mae", "max")) == rows[0]
