"""Reports draw and list personal methods by their personal accuracy, and keep the global model as a thin line."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.report import write_run
from undrift.report import Material, collect
from undrift.report.draw.description import Axis, Figure, Line, line_panel
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.report.panels.tables import reach, summary, targets
from undrift.report.panels.training import learning
from undrift.runs.settings.config import Config
from undrift.runs.settings.targets import Target

PERSONAL = [None, 0.5, None, 0.9]


def folder(root: Path, method: str, old: bool = False) -> Path:
    """A run of four rounds whose global model gains 10 points a round; a personal method is measured every 2nd."""
    config = Config.build({"method": method, "rounds": 4, "clients": 4, "cohort": 2})
    path = root / method
    write_run(path, config, 0.1)
    if method == "fedavg":
        return path
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for row, value in zip(rows, PERSONAL, strict=True):
        row |= {} if value is None else {"personal_accuracy": value, "personal_seconds": 0.5}
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    known = {} if old else {"judged_by": "personal_accuracy"}
    (path / "summary.json").write_text(json.dumps({**json.loads((path / "summary.json").read_text()), **known}))
    return path


def curve(material: Material, across: str = "rounds") -> Figure:
    return next(figure for figure in learning(material) if figure.name == f"curve-accuracy-{across}")


def lines(figure: Figure) -> list[Line]:
    return [mark for mark in figure.parts[0][1].marks if isinstance(mark, Line)]


def test_both_kinds(tmp_path: Path) -> None:
    material = collect([folder(tmp_path, "fedavg"), folder(tmp_path, "fedper")])
    assert [group.judged_by for group in material.groups] == ["accuracy", "personal_accuracy"]
    drawn = curve(material)
    fedavg, fedper, thin = lines(drawn)
    assert (fedavg.label, fedper.label, thin.label) == ("fedavg, global", "fedper, personal", "fedper, global model")
    assert (fedper.x, fedper.y) == ([2, 4], [0.5, 0.9]) and not fedper.thin and not fedavg.thin
    assert thin.y == pytest.approx([0.1, 0.2, 0.3, 0.4]) and thin.thin and thin.style == fedper.style
    assert drawn.title == "Personal and global accuracy over rounds"
    assert "thin lines are the global models of personal methods" in drawn.reading
    assert lines(curve(material, "traffic"))[1].x == [8.0, 16.0], "the traffic of all rounds before"
    table = summary(material)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    assert [row["judged by"] for row in rows] == ["global", "personal"]
    assert [(row["best %"], row["last %"]) for row in rows] == [("40.00", "40.00"), ("90.00", "90.00")]
    assert rows[1]["last vs fedavg"].startswith("+50.00") and "Judged by personal" in table.reading
    assert targets(material.within("")) == (Target(0.4),)
    reached = [dict(zip(reach(material).headings, row, strict=True)) for row in reach(material).rows][:2]
    assert [row["rounds"] for row in reached] == ["4.0 (1/1)", "2.0 (1/1)"]
    assert [(row["speedup"], row["traffic"]) for row in reached] == [("1.00x", "1.00x"), ("2.00x", "0.50x")]
    assert "personal accuracy" in reach(material).reading


def test_one_kind(tmp_path: Path) -> None:
    alone = collect([folder(tmp_path / "a", "fedper")])
    assert curve(alone).title == "Personal accuracy over rounds" and lines(curve(alone))[0].label == "fedper"
    assert "own tests" in curve(alone).parts[0][1].y.title
    plain = collect([folder(tmp_path / "b", "fedavg")])
    assert curve(plain).title == "Accuracy over rounds" and len(lines(curve(plain))) == 1
    assert "judged by" not in summary(plain).headings and "personal" not in reach(plain).reading


def test_a_run_of_an_earlier_version_is_drawn_by_accuracy(tmp_path: Path) -> None:
    old = collect([folder(tmp_path, "fedper", old=True)])
    assert old.groups[0].judged_by == "accuracy" and curve(old).title == "Accuracy over rounds"
    assert lines(curve(old))[0].y == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_thin_lines_are_thin_on_the_page_and_in_print() -> None:
    shown = [Line("a", 0, [1, 2], [0.1, 0.2]), Line("b", 0, [1, 2], [0.1, 0.2], thin=True)]
    panel = line_panel(Axis("x"), Axis("y"), shown)
    widths: list[Any] = [trace["line"]["width"] for trace in plotly(panel)["data"]]
    printed = [line.get_linewidth() for line in draw(Figure("f", "F", "", (("", panel),))).axes[0].get_lines()]
    assert widths[1] < widths[0] and printed[1] < printed[0]
