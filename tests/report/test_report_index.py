"""The index of many runs, damaged runs in reports, titles, commands, and the scripts that copy, filter and sort."""
# ruff: noqa: F811  pytest finds fixtures by the names of arguments

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.report import folder, material, write_run  # noqa: F401  fixtures
from undrift.cli import app
from undrift.report import Material, ReportError, collect, index_rows, is_collection, page, render, sections
from undrift.report.draw.description import Axis, Figure, Line, line_panel
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.report.kinds import KINDS, command_for
from undrift.report.loaded import from_here
from undrift.report.panels.overview import differences, setup
from undrift.report.panels.tables import summary
from undrift.runs.settings.config import Config

pytest.importorskip("plotly")
pytest.importorskip("jinja2")


def shelf(root: Path) -> Path:
    """Runs of every state; the names of some need quoting."""
    made = {"done": "fedavg", "has rounds left": "fedprox", "cut": "fedavg", "lost": "fedavg", "odd": "fedper"}
    for name, method in made.items():
        write_run(root / name, Config.build({"method": method, "rounds": 4, "clients": 4, "cohort": 2}), 0.1)
        summary = {"rounds": 4, "judged_by": "accuracy", "best_accuracy": 0.4, "accuracy": 0.4}
        (root / name / "summary.json").write_text(json.dumps(summary))
    (root / "has rounds left" / "summary.json").unlink()
    lines = (root / "cut" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (root / "has rounds left" / "metrics.jsonl").write_text("".join(lines[:3]))
    (root / "cut" / "metrics.jsonl").write_text(lines[0] + '{"round": 1, "acc\n' + "".join(lines[2:]))
    (root / "lost" / "config.toml").write_text("<b> = [")
    (root / "odd" / "summary.json").write_text("{")
    return root


@pytest.mark.quick
def test_every_run_has_a_row(tmp_path: Path) -> None:
    rows = {row.name: row for row in index_rows([shelf(tmp_path / "runs")])}
    states = {name: (row.state, row.done, row.rounds) for name, row in rows.items()}
    assert states["done"] == ("done", 4, 4) and states["has rounds left"] == ("unfinished", 3, 4)
    assert [rows[name].state for name in ("cut", "lost", "odd")] == ["damaged"] * 3
    assert rows["cut"].problem == "metrics.jsonl: line 2 is no row of a round" and rows["cut"].method == "fedavg"
    assert rows["lost"].problem.startswith("config.toml: ") and rows["odd"].problem == "summary.json: not valid JSON"
    one = rows["done"]
    assert (one.data, one.partition, one.seed, one.text(one.best)) == (Config().data, Config().partition, 0, "40.00%")
    left = rows["has rounds left"]
    assert left.best == pytest.approx(0.3) == left.last and left.text(None) == ""
    with pytest.raises(ReportError, match="no run in it or below"):
        index_rows([tmp_path / "nothing"])


def test_runs_of_a_comparison_have_its_labels_in_the_index(folder: Path) -> None:
    rows = index_rows([folder.parent])
    assert {(row.method, row.full) for row in rows} == {("fedavg", ""), ("sam-0.1", "fedsam(rho=0.1)")}
    assert rows[0].name == "toys/even/fedavg/seed-0" and len(rows) == 8
    assert not is_collection(folder) and not is_collection(folder.parent), "a comparison is one report"


def test_the_index_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shelf(tmp_path / "runs")
    result = CliRunner().invoke(app, ["report", "runs"])
    assert result.exit_code == 0 and "report.html  index of 5 runs" in result.output, result.output
    html = Path("report.html").read_text()
    assert len(html) < 60_000 and 'data-path="runs/done"' in html and "&#39;runs/has rounds left&#39;" in html
    assert "undrift report runs --each" in html and str(tmp_path) not in html and 'href="runs' not in html
    result = CliRunner().invoke(app, ["report", "runs", "--each", "--out", "pages/index.html"])
    assert result.exit_code == 0 and "is damaged and left out" in result.output, result.output
    html = Path("pages/index.html").read_text()
    assert 'href="../runs/done/report.html"' in html and 'href="../runs/has%20rounds%20left/report.html"' in html
    assert Path("runs/done/report.html").is_file() and not Path("runs/lost/report.html").exists()
    result = CliRunner().invoke(app, ["report", "runs", "--index", "--figures", "figures"])
    assert result.exit_code == 2 and "an index has none" in result.output
    result = CliRunner().invoke(app, ["report", "runs", "--no-index", "--out", "one.html"])
    assert result.exit_code == 0 and "1 files" not in result.output and "one.html  " in result.output


def test_a_damaged_run_is_left_out_of_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = collect([shelf(tmp_path / "runs")])
    assert [run.name for run in found.runs] == ["done", "has rounds left"]
    notes = {note.partition(" ")[0]: note for note in found.notes if "damaged" in note}
    assert set(notes) == {"cut", "lost", "odd"} and "metrics.jsonl: a line is no row" in notes["cut"]
    assert all(str(tmp_path) not in note for note in notes.values())
    with pytest.raises(ReportError, match="no run with a round in it; cut is damaged"):
        collect([tmp_path / "runs" / "cut"])


def test_titles(folder: Path, tmp_path: Path) -> None:
    assert collect([folder]).title.startswith("toys <script>")
    runs = shelf(tmp_path / "runs")
    assert collect([runs / "done"]).title == "done" and collect([runs]).title == "runs"
    assert collect([runs / "done", runs / "has rounds left"]).title == "done, has rounds left"
    assert collect([folder, runs / "done"]).title == "1 comparison and 1 run"
    named = (folder / "compare.toml").read_text()
    other = tmp_path / "by-file"
    shutil.copytree(folder, other)
    (other / "compare.toml").write_text(re.sub(r"(?m)^name = .*\n", "", named))
    assert collect([other]).title == "by-file"


def test_a_run_that_is_given_twice_counts_once(folder: Path) -> None:
    both = collect([folder, folder / "even" / "fedavg" / "seed-0"])
    assert len(both.runs) == 8 and both.labels == ["fedavg", "sam-0.1"]


def test_commands_work_from_here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = shelf(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    assert from_here(runs / "has rounds left") == "'runs/has rounds left'"
    monkeypatch.chdir(runs / "done")
    assert from_here(runs / "cut") == "../cut"
    monkeypatch.chdir(tmp_path)
    found = collect([runs / "has rounds left"])
    missing = {part.missing for part in sections(found)} - {""}
    assert missing == {"undrift lens 'runs/has rounds left'"}
    html = render(found)
    line = "Not measured: Spectrum, Layers, Heterogeneity, Alignment, Landscape, Plane."
    assert html.count("Not measured") == 1 and line in html and 'id="spectrum"' not in html
    assert "undrift figure accuracy &#39;runs/has rounds left&#39;" in html
    monkeypatch.chdir(folder.parent)
    command = next(part.missing for part in sections(collect([folder / "skewed"])) if part.missing)
    assert command == ('for run in toys/skewed/fedavg/seed-0 toys/skewed/sam-0.1/seed-0; do undrift lens "$run"; done')


def test_every_figure_has_a_command(material: Material) -> None:
    names = [figure.name for part in sections(material) for figure in part.figures]
    commands = {name: command_for(material, name) for name in names}
    kinds = {command.split()[2] for command in commands.values() if command.startswith("undrift figure ")}
    assert {"accuracy", "cka", "layers", "landscape", "partition", "clients"} <= kinds <= set(KINDS)
    assert commands["differences"].endswith("--figures figures")


def test_settings_and_differences(material: Material) -> None:
    table = setup(material)
    rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    assert [(row["setting"], row["partition"], row["clients"], row["rounds"]) for row in rows] == [
        ("even", "iid", "4", "4"),
        ("skewed", "dirichlet(0.1)", "4", "4"),
    ]
    (figure,) = differences(material)
    assert [caption for caption, _ in figure.parts] == ["even", "skewed"]  # in one panel they would hide each other
    (even,) = (mark for mark in figure.parts[0][1].marks if isinstance(mark, Line))
    assert even.x == ["sam-0.1"] and even.y == pytest.approx([-0.4]) and even.low is not None and even.bars
    one = collect([material.runs[0].folder])
    assert list(differences(one)) == [] and "setting" not in setup(one).headings
    bold = summary(material).best
    best = list(summary(material).headings).index("best %")
    assert {row for row, column in bold if column == best} == {0, 2}, "fedavg in both settings"


def test_a_single_point_is_drawn() -> None:
    line = Line("tuned", 0, [10], [0.5], [0.4], [0.6])
    panel = line_panel(Axis("round"), Axis("accuracy (%)", percent=True), [line])
    (trace,) = plotly(panel)["data"]
    assert trace["mode"] == "lines+markers" and trace["error_y"]["array"] == pytest.approx([10.0])
    axes = draw(Figure("f", "F", "", (("", panel),))).axes[0]
    assert axes.get_lines()[0].get_marker() == "o" and len(axes.collections) == 1


COPY = """
(() => {
  const out = document.createElement("pre");
  out.id = "test";
  document.addEventListener("copied", (event) => { out.textContent += `${event.detail}\\n=====\\n`; });
  document.body.append(out);
  VISIT
})();
"""


def visited(html: Path, fragment: str = "") -> str:
    """The page after its scripts ran, as the browser sees it."""
    flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    flags += f"--disable-component-update --disable-sync --virtual-time-budget=3000 --user-data-dir={html.parent}/user"
    command = ["chromium", *flags.split(), "--dump-dom", html.as_uri() + fragment]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.sweep(every=2)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_filter_sort_and_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter in the address; a click on a heading; the table in three formats; the command for what is shown."""
    visit = """
      document.querySelectorAll("#runs thead button")[5].click();
      document.querySelectorAll("#runs thead button")[5].click();
      document.querySelectorAll(".copies button").forEach((button) => button.click());
      document.getElementById("together").click();
    """
    read = page.asset
    script = COPY.replace("VISIT", visit)
    monkeypatch.setattr("undrift.report.index.asset", lambda name: read(name) + (script if name == "index.js" else ""))
    monkeypatch.chdir(tmp_path)
    shelf(tmp_path / "runs")
    result = CliRunner().invoke(app, ["report", "runs"])
    assert result.exit_code == 0, result.output
    dom = visited(tmp_path / "report.html", "#words=fed%20-damaged")
    assert "2 of 5" in dom and len(re.findall(r'<th [^>]*aria-sort="descending"', dom)) == 1
    found = re.search(r'<pre id="test">(.*?)</pre>', dom, flags=re.DOTALL)
    assert found is not None
    text = found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
    markdown, csv, latex, command, _ = text.split("\n=====\n")
    assert markdown.splitlines()[0].startswith("| run | method | data | partition | seed | rounds |")
    assert markdown.splitlines()[1] == "|---|---|---|---|---:|---:|---:|---:|---|---|"
    assert [line.split(" | ")[0] for line in markdown.splitlines()[2:]] == ["| done", "| has rounds left"]
    assert csv.splitlines()[1].startswith("done,fedavg,") and csv.splitlines()[2].endswith(",unfinished")
    assert "\\begin{tabular}{llllrrrrll}" in latex and "40.00\\% & accuracy & done \\\\" in latex
    assert command == "undrift report runs/done 'runs/has rounds left'"
