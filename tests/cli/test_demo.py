"""`undrift demo`: curves, run folders, a report, and what to try next."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from undrift.cli import app
from undrift.cli.training.demo import chart
from undrift.runs import load_run
from undrift.studies.demo import METHODS, accuracy_curves, demo_comparison

CURVES = {"fedavg": [(1.0, 0.2), (2.0, 0.4)], "feddyn": [(1.0, 0.2), (2.0, 0.6)]}


def test_the_tour_and_once_more(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    out = tmp_path / "demo"
    first = CliRunner().invoke(app, ["demo", "--out", str(out), "--rounds", "2"])
    assert first.exit_code == 0, first.output
    assert first.stdout.isascii() and "o fedavg" in first.stdout and "x feddyn" in first.stdout
    assert (out / "report.html").is_file()
    for method in METHODS:
        assert len(load_run(out / method / "seed-0").history) == 2
    following = [line.partition("  #")[0].strip() for line in first.stdout.partition("Try next:\n")[2].splitlines()]
    assert [line.split()[:2] for line in following] == [["undrift", name] for name in ("show", "run", "lens")]
    again = CliRunner().invoke(app, ["demo", "--out", str(out), "--rounds", "2", "--json"])
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["report"] == str(out / "report.html") and (found["rounds"], found["seed"]) == (2, 0)
    curves = accuracy_curves(demo_comparison(2), out)
    assert found["accuracy"] == {name: [y for _, y in points] for name, points in curves.items()}
    more = CliRunner().invoke(app, ["demo", "--out", str(out), "--rounds", "3", "--json"])  # goes on where it was
    assert json.loads(more.stdout)["accuracy"]["fedavg"][:2] == found["accuracy"]["fedavg"]


@pytest.mark.quick
def test_without_the_report_it_says_which_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import undrift.report

    def missing(*_: object) -> None:
        raise undrift.report.ReportError("a report needs plotly: pip install 'undrift[report]'")

    monkeypatch.setattr(undrift.report, "write_page", missing)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo"), "--rounds", "1"])
    assert done.exit_code == 0 and "pip install 'undrift[report]'" in done.stderr
    assert "Try next:" in done.stdout and "Open the report" not in done.stdout


def test_on_a_terminal_curves_are_lines_in_colours(tmp_path: Path) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    console = Console(file=stream, force_terminal=True, width=80, color_system="standard")
    console.print(chart(CURVES, console))
    stream.flush()
    shown = stream.buffer.getvalue().decode()
    assert "\x1b[33m" in shown and "\x1b[36m" in shown and "━━" in shown


def test_what_is_refused(tmp_path: Path) -> None:
    for arguments in (["--rounds", "0"], ["--seed", "-1"]):
        done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), *arguments])
        assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1


def test_a_better_method_is_visibly_better() -> None:
    trials = demo_comparison().trials()
    assert [trial.config.method for trial in trials] == list(METHODS)
    assert len({trial.config.partition for trial in trials}) == 1
