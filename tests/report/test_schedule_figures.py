"""The figures of runs in virtual time, of a trace whose numbers are easy to check."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.report import write_run
from undrift.core.tasks.durations import SECOND
from undrift.report import collect, sections
from undrift.report.draw.description import Dots, Figure, Line
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.runs.settings.config import Config

pytest.importorskip("plotly")


def write_timed_run(folder: Path, **values: Any) -> None:
    """A run of four steps, each with two uploads of the fast client 1 and, every second step, one of the slow 2."""
    write_run(folder, Config.build({"rounds": 4, "clients": 4, "cohort": 2, **values}), 0.2)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = [row | {"round": step, "virtual_seconds": 2.0 * step, "in_flight": 2} for step, row in enumerate(rows, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in timed))
    with (folder / "arrivals.jsonl").open("w") as file:
        for step in range(4):
            tasks = [(1, 0, 2 * step, 2 * step + 1, "accepted"), (1, 0, 2 * step + 1, 2 * step + 2, "accepted")]
            tasks += [(2, 1, 2 * step - 2, 2 * step + 2, "accepted" if step == 1 else "stale")] if step % 2 else []
            ended = [
                {"client": client, "age": age, "begun": begun * SECOND, "end": end * SECOND, "result": result}
                for client, age, begun, end, result in tasks
            ]
            file.write(json.dumps({"round": step + 1, "arrivals": ended}) + "\n")


def figures_of(*folders: Path) -> dict[str, Figure]:
    """The figures of the section, and that of accuracy over virtual time, each drawn for the page and for print."""
    parts = {part.key: part for part in sections(collect(folders))}
    shown = [*parts["schedule"].figures, *parts["curves"].figures]
    for figure in shown:
        draw(figure)
        for _, panel in figure.parts:
            plotly(panel)
    return {figure.name: figure for figure in shown}


def test_figures_have_the_numbers_of_the_trace(tmp_path: Path) -> None:
    write_timed_run(tmp_path / "run", method="fedbuff")
    found = figures_of(tmp_path / "run")
    (points,) = found["participation"].parts[0][1].marks
    assert isinstance(points, Dots) and (list(points.x), list(points.y)) == ([1.0, 4.0], [8.0, 1.0])
    (ages,) = found["ages"].parts[0][1].marks
    assert isinstance(ages, Line) and ages.y == pytest.approx([8 / 9, 1 / 9]) and list(ages.x) == [0, 1]
    (flying,) = found["clients-in-flight"].parts[0][1].marks
    assert isinstance(flying, Line) and (flying.x, flying.y) == ([2.0, 4.0, 6.0, 8.0], [2.0] * 4)
    panel = found["time-line"].parts[0][1]
    assert panel.y.labels == ("1", "2"), "the fastest client is at the top"
    bars = {mark.label: mark for mark in panel.marks if isinstance(mark, Line)}
    assert list(bars) == ["accepted", "rejected or too old"]
    assert bars["rejected or too old"].x[:2] == [4.0, 8.0] and set(bars["rejected or too old"].y) == {"2"}
    (line,) = found["curve-accuracy-virtual-time"].parts[0][1].marks
    assert isinstance(line, Line) and line.x == [2.0, 4.0, 6.0, 8.0] and line.y == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_stale_displacements_are_drawn_where_the_lens_measured_them(tmp_path: Path) -> None:
    write_timed_run(tmp_path / "run", method="fedbuff")
    found = {"clients": [0, 1], "ages": [1, 3], "agreement": [0.9, 0.25], "ratio": [1.0, 2.0], "reading": "..."}
    (tmp_path / "run" / "lens.json").write_text(json.dumps({"round": 4, "clients": [0, 1], "staleness": found}))
    figures = figures_of(tmp_path / "run")
    for name, values in (("stale-agreement", [0.9, 0.25]), ("stale-ratio", [1.0, 2.0])):
        (line,) = figures[name].parts[0][1].marks
        assert isinstance(line, Line) and list(line.x) == [0.25, 0.75] and list(line.y) == values


def test_runs_that_differ_in_their_schedule_are_in_one_frame(tmp_path: Path) -> None:
    write_timed_run(tmp_path / "a", method="scaffold", durations=1.0)
    write_timed_run(tmp_path / "b", method="scaffold", durations=1.0, schedule="buffered(2)")
    marks = figures_of(tmp_path / "a", tmp_path / "b")["curve-accuracy-virtual-time"].parts[0][1].marks
    assert [mark.label for mark in marks if isinstance(mark, Line)] == ["scaffold", "scaffold + buffered(size=2)"]


def test_runs_without_a_clock_have_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path / "run", Config.build({"method": "fedavg", "rounds": 4, "clients": 4, "cohort": 2}), 0.2)
    parts = {part.key: part for part in sections(collect([tmp_path / "run"]))}
    assert "schedule" not in parts and "curve-accuracy-virtual-time" not in {
        one.name for one in parts["curves"].figures
    }
