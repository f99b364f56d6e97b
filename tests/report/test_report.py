"""Reports: the runs' own numbers in tables and figures, nothing that leaves the page, nothing in it that runs."""
# ruff: noqa: F811  pytest finds fixtures by the names of arguments

import json
from dataclasses import replace
from math import nan
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
from PIL import Image

from support.report import folder, material, write_run  # noqa: F401  fixtures
from undrift.data.partitions.draw import partition
from undrift.report import Material, ReportError, collect, render, sections, write_partition, write_prints
from undrift.report.draw.description import (
    PALETTE,
    Axis,
    Box,
    Dots,
    Figure,
    Grid,
    Line,
    box_panel,
    grid_panel,
    line_panel,
    point_panel,
    slug,
    style,
)
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.report.panels.partition import partition_figure, thin
from undrift.report.panels.tables import curvature, reach, summary, targets
from undrift.report.panels.training import fairness, partitions, series
from undrift.runs.settings.config import Config
from undrift.runs.settings.targets import Target
from undrift.studies.statistics import cells, summarise

pytest.importorskip("plotly")
pytest.importorskip("jinja2")


def figure(material: Material, name: str) -> Figure:
    return next(figure for part in sections(material) for figure in part.figures if figure.name == name)


def grid(figure: Figure) -> Grid:
    first = figure.parts[0][1].grid
    assert first is not None
    return first


def test_runs_of_a_comparison_keep_its_labels(folder: Path) -> None:
    chosen = collect([folder / "even" / "sam-0.1" / f"seed-{seed}" for seed in (0, 1)])
    assert [(group.setting, group.label, len(group.runs)) for group in chosen.groups] == [("even", "sam-0.1", 2)]


def test_a_comparison_is_found_whole(material: Material) -> None:
    assert [(group.setting, group.label) for group in material.groups] == [
        (setting, label) for setting in ("even", "skewed") for label in ("fedavg", "sam-0.1")
    ]
    assert all([run.config.seed for run in group.runs] == [0, 1] for group in material.groups)
    assert [group.style for group in material.groups] == [0, 1, 0, 1]
    assert material.baseline == "fedavg" and len(material.runs) == 8
    assert material.notes == ("even/krum/seed-0 failed: ValueError: <i>too few</i>",)


def test_single_runs_are_put_together_by_what_they_differ_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [("fedavg", {}, 0, "iid"), ("fedavg", {}, 1, "iid"), ("fedprox", {"mu": 0.1}, 0, "dirichlet:0.1")]
    for n, (method, arguments, seed, split) in enumerate(made):
        values = {"method": method, "arguments": arguments, "seed": seed, "partition": split, "rounds": 2}
        write_run(tmp_path / f"run-{n}", Config.build(values), 0.1)
    found = collect([tmp_path, tmp_path / "run-0"])
    assert [(group.setting, group.label, len(group.runs)) for group in found.groups] == [
        ("partition iid", "fedavg", 2),
        ("partition dirichlet(0.1)", "fedprox(mu=0.1)", 1),
    ]
    assert [recipe.command for recipe in found.recipes][2] == "undrift run --config config.toml --out run-2"
    write_run(tmp_path / "deep" / "run-0", Config.build({"seed": 7}), 0.1)
    names = [run.name for run in collect([tmp_path / "run-0", tmp_path / "deep"]).runs]
    assert names == ["run-0", "deep/run-0"]
    alone = collect([tmp_path / "run-2"])
    assert alone.settings == [""] and alone.baseline == "fedprox(mu=0.1)"
    assert [part.missing for part in sections(alone) if part.key == "spectrum"] == ["undrift lens run-2"]
    assert "<code>undrift lens run-2</code>" in render(alone)


def test_runs_that_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"holds no run \(no config.toml or compare.toml"):
        collect([tmp_path])
    config = Config.build({"rounds": 3})
    for name in ("one", "two"):
        write_run(tmp_path / name, config, 0.1)
    with pytest.raises(ReportError, match=r"one and .*two are both fedavg with seed 0: leave one out"):
        collect([tmp_path])
    (tmp_path / "two" / "metrics.jsonl").unlink()
    lines = (tmp_path / "one" / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "one" / "metrics.jsonl").write_text("".join(lines[:2]))
    found = collect([tmp_path])
    assert found.notes == ("two has no round yet and is left out", "one has not ended: 2 of 3 rounds")
    (tmp_path / "one" / "lens.json").write_text("{")
    with pytest.raises(ReportError, match=r"lens.json: not valid JSON; delete the file"):
        render(found)


def test_the_summary_is_that_of_a_comparison(material: Material) -> None:
    runs = {group.label: group.results for group in material.within("even")}
    rows = [{"setting": "even", **row} for row in summarise(runs, "fedavg")]
    table = summary(material)
    assert list(table.rows[:2]) == cells(rows)[1] and table.keys == 2
    assert table.headings[table.headings.index("best %")] == "best %" and table.rows[0][3] == "84.00 ± 5.66"


def test_rounds_and_traffic_to_a_target(material: Material) -> None:
    """FedAvg gains 20 and 22 points a round and needs 3 of them for 50 %; the other gains 10 and 12 and stays below."""
    even = material.within("even")
    assert targets(even) == (Target(0.5),)
    table = reach(material)
    rows = {tuple(line[: table.keys]): dict(zip(table.headings, line, strict=True)) for line in table.rows}
    assert list(rows)[:4] == [("even", t, m) for t in ("50 %", "whole run") for m in ("fedavg", "sam-0.1")]
    fedavg, sam = rows["even", "50 %", "fedavg"], rows["even", "50 %", "sam-0.1"]
    assert [fedavg[name] for name in ("rounds", "speedup", "traffic/run", "MB", "s")] == [
        "3.0 (2/2)",
        "1.00x",
        "0.75x",
        "12",
        "6",
    ]
    assert (sam["rounds"], sam["speedup"], sam["MB"], sam["MB up a round"]) == ("- (0/2)", "-", "-", "1")
    whole = rows["skewed", "whole run", "sam-0.1"]
    assert (whole["rounds"], whole["time"], whole["MB"], whole["MB down a round"]) == ("4.0 (2/2)", "1.00x", "16", "3")
    open_ended = [
        replace(g, runs=tuple(replace(r, config=r.config.model_copy(update={"target": None})) for r in g.runs))
        for g in even
    ]
    assert targets(open_ended) == (Target(0.4),)


def test_curves_are_means_with_bands(material: Material) -> None:
    group = material.within("even")[0]
    line = series(group, "accuracy", "traffic")
    assert line is not None and line.low is not None and line.high is not None
    assert line.x == [4.0, 8.0, 12.0, 16.0] and line.y == pytest.approx([0.21 * n for n in (1, 2, 3, 4)])
    assert line.high[3] - line.y[3] == pytest.approx(stdev([0.8, 0.88])) == line.y[3] - line.low[3]
    assert series(group, "accuracy", "seconds").x == [2.0, 4.0, 6.0, 8.0]  # type: ignore[union-attr]
    assert series(replace(group, runs=group.runs[:1]), "accuracy", "rounds").low is None  # type: ignore[union-attr]
    assert series(group, "personal_accuracy", "rounds") is None


def test_curves_have_the_rounds_that_all_seeds_have(material: Material) -> None:
    group = material.within("even")[0]
    short, whole = replace(group.runs[0]), group.runs[1]
    short.__dict__["rows"] = [*whole.rows[:2], {**whole.rows[2], "accuracy": nan}]
    line = series(replace(group, runs=(short, whole)), "accuracy", "rounds")
    assert line is not None and line.x == [1, 2] and line.y == pytest.approx([0.22, 0.44])


def test_partition_and_clients(material: Material) -> None:
    counts = grid(next(partitions(material)))
    assert counts.high == 12 and counts.values == [[3, None, 1, 2], [None, 12, 1, 2]]
    boxes = next(fairness(material)).parts[0][1]
    assert boxes.y.labels == ("fedavg", "sam-0.1") and isinstance(boxes.marks[0], Box)
    assert list(boxes.marks[0].values) == pytest.approx([0.2, 0.2, 0.2, 0.22, 0.8, 0.8])
    assert thin(5, 9).tolist() == [0, 1, 2, 3, 4] and thin(9, 3).tolist() == [0, 4, 8]


def test_many_clients_are_ordered_and_thinned(material: Material, tmp_path: Path) -> None:
    run = replace(material.runs[0], folder=tmp_path)
    histogram = [[n % 3 == c and n + 1 for c in range(3)] for n in range(600)]
    (tmp_path / "partition.json").write_text(json.dumps({"histogram": np.array(histogram, dtype=int).tolist()}))
    found = next(partitions(replace(material, groups=(replace(material.groups[0], runs=(run,)),))))
    panel, counts = found.parts[0][1], grid(found)
    assert len(counts.columns) == 400 and "400 of 600 clients" in found.reading
    assert counts.columns[0] == "597" and panel.x.labels == counts.columns
    assert plotly(panel)["layout"]["xaxis"]["categoryarray"] == list(counts.columns)


@pytest.mark.parametrize(("clients", "ending"), [(6, "png"), (1000, "pdf")])
def test_a_partition_is_drawn_as_in_a_report(tmp_path: Path, clients: int, ending: str) -> None:
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 600))
    split = partition("dirichlet-client:0.5", labels, clients)
    names = [f"class {c}" for c in range(10)]
    path = write_partition(split, tmp_path / f"map.{ending}", names=names, data="toys")
    assert path == tmp_path / f"map.{ending}" and path.read_bytes().startswith((b"\x89PNG", b"%PDF"))
    drawn = partition_figure(split.histogram, "map", "Map", None, names, numbers=True)
    assert drawn.parts[0][1].y.labels == tuple(names) and grid(drawn).numbers is (clients == 6)
    assert clients > 6 or grid(drawn).texts[0][0] == str(split.histogram[0, 0] or "")
    assert ("texttemplate" in plotly(drawn.parts[0][1])["data"][0]) is (clients == 6)
    with pytest.raises(ValueError, match="names must be those of the 10 classes, got 2"):
        write_partition(split, path, names=["a", "b"])
    with pytest.raises(ReportError, match=r"written as \.png or \.pdf"):
        write_partition(split, tmp_path / "map.gif")


def test_what_the_lens_saw(material: Material) -> None:
    apart = figure(material, "distance-update-even").parts[0][1].marks[0]
    assert isinstance(apart, Line) and apart.dots and apart.x == [0.25, 0.75] and apart.y == [0.6, 0.8]
    pairs = grid(figure(material, "cka-even"))
    assert pairs.columns == ["3", "17"] and pairs.values[0][1] == 0.25
    layers = figure(material, "cka-layers-even").parts[0][1]
    assert isinstance(layers.marks[0], Line) and layers.marks[0].x == [0.9, 0.25] and layers.y.labels == ("conv", "fc")
    rounds = grid(figure(material, "divergence-rounds-even"))
    assert rounds.columns == [1, 2] and rounds.values == [[0, 1], [1, 1], [None, None]]
    classes = figure(material, "features-even").parts[0][1].marks
    assert all(isinstance(dots, Dots) for dots in classes)
    assert [(dots.style, dots.label, dots.names) for dots in classes if isinstance(dots, Dots)] == [
        (n, f"class {n}", [f"class {n}"]) for n in (0, 1, 9)
    ]
    table = curvature(material)
    assert table is not None and list(table.rows[0][:4]) == ["even", "fedavg", "7.5, 4.25", "52 ± 3"]


def test_landscapes_share_one_scale(material: Material) -> None:
    drawn = figure(material, "landscape-contour-even")
    grids = [panel.grid for _, panel in drawn.parts if panel.grid]
    assert [caption for caption, _ in drawn.parts] == ["fedavg", "sam-0.1"]
    assert [(grid.low, grid.high) for grid in grids] == [(1.0, pytest.approx(2.2))] * 2  # type: ignore[comparison-overlap]
    assert grids[0].values[0][2] == pytest.approx(1 + 0.2 * (1 - 2 + 3))  # x is the first direction, y the second
    surface = figure(material, "landscape-surface-even")
    assert grid(surface).limits == grids[0].limits and surface.parts[0][1].solid and not drawn.parts[0][1].solid


def test_every_figure_has_axes_and_one_sentence(material: Material) -> None:
    found = [figure for part in sections(material) for figure in part.figures]
    assert len({figure.name for figure in found}) == len(found) > 20
    for one in found:
        assert one.reading.endswith(".") and one.reading.count(". ") == 0, one.name
        for _, panel in one.parts:
            assert panel.x.title and panel.y.title, one.name


def test_plotly_takes_every_figure(material: Material) -> None:
    from plotly.graph_objects import Figure as Checked

    for part in sections(material):
        for one in part.figures:
            for _, panel in one.parts:
                drawn = plotly(panel)
                json.dumps(drawn, allow_nan=False)
                layout = {**drawn["layout"], "plot_bgcolor": "white"}  # ours is a name of the page's style
                Checked({"data": drawn["data"], "layout": layout})


def test_colours_and_texts_of_figures() -> None:
    count = len(PALETTE)
    looks = [style(n) for n in range(4 * count)]
    assert (
        len({(look.colour, look.dash) for look in looks}) == len({(look.colour, look.marker) for look in looks}) == 28
    )
    line = Line("<b>a</b>", 1, [1.0, nan], [0.5, None])
    drawn = plotly(line_panel(Axis("x"), Axis("y (%)", percent=True), [line]))
    assert drawn["data"][0]["name"] == "&lt;b&gt;a&lt;/b&gt;"
    assert drawn["data"][0]["x"] == [1.0, None] and drawn["data"][0]["y"] == [50.0, None]
    assert drawn["data"][0]["hovertemplate"] == "%{x:.4~g}, %{y:.2f} %"
    assert slug("A b", "", "c=0.1/../x") == "a-b-c-0-1-x"


def test_page_and_print_follow_one_description() -> None:
    """Limits, levels, colours, hover texts and heights are those of the description."""
    flat = Grid([0, 1], [0, 1], [[2.0, 2.0], [2.0, 2.0]], "loss", 2.0, 2.0, "contour")
    assert flat.limits == (2.0, 3.0) and flat.ticks == {}
    panel = grid_panel(Axis("a"), Axis("b"), flat)
    trace = plotly(panel)["data"][0]
    assert (trace["zmin"], trace["zmax"], trace["contours"]["size"]) == (2.0, 3.0, 1 / 16)
    assert trace["hovertemplate"] == "a %{x}<br>b %{y}<br>%{z:.4~g} loss<extra></extra>"
    sheet = draw(Figure("flat", "Flat", "", (("", panel),)))
    assert sheet.get_size_inches().tolist() == [6.5, 0.5 + panel.inches[0]]
    assert sheet.axes[1].get_ylim() == (2.0, 3.0) and sheet.axes[1].get_ylabel() == "loss"  # the bar of colours
    roots = Grid(["0"], ["0"], [[16]], "examples", 0, 16, root=True)
    assert roots.ticks == {"0": 0.0, "1": 1.0, "4": 2.0, "9": 3.0, "16": 4.0}
    boxes = box_panel(Axis("x"), "method", [Box("a", 0, [0.1]), Box("b", 1, [0.2])])
    assert boxes.y == Axis("method", ("a", "b")) and not boxes.legend
    dots = point_panel((Axis("x"), Axis("y")), [[0, 1], [2, 3], [4, 5]], ["p", "q", "r"], [1, 0, 1], {1: "one"})
    assert dots.legend and dots.marks == (Dots("", 0, [2], [3], ["q"]), Dots("one", 1, [0, 4], [1, 5], ["p", "r"]))


@pytest.mark.sweep(every=4)
def test_prints(material: Material, tmp_path: Path) -> None:
    names = ("curve-accuracy-rounds-even", "partition-even", "clients-even", "landscape-contour-even", "updates-even")
    chosen = [replace(figure(material, name), title="costs $5 and $6") for name in names]
    written = write_prints([*chosen, figure(material, "landscape-surface-even")], tmp_path / "figures")
    assert [path.name for path in written[:2]] == [f"{names[0]}.png", f"{names[0]}.pdf"] and len(written) == 12
    with Image.open(written[0]) as picture:
        assert picture.size[0] == 1950 and picture.info["dpi"][0] == pytest.approx(300, abs=0.1)
    assert written[1].read_bytes().startswith(b"%PDF")


def test_a_line_with_one_value_has_a_marker() -> None:
    none, nan = None, float("nan")
    assert Line("a", 0, [1, 2, 3], [none, nan, 0.5]).marked
    assert not Line("a", 0, [1, 2], [0.1, 0.5]).marked and Line("a", 0, [1, 2], [0.1, 0.5], dots=True).marked
