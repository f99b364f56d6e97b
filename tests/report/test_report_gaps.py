"""Reports of measurements with gaps: nulls, parts that were skipped, runs of which only the first rounds are shown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.report import seen, theory, write_run
from undrift.report import Material, Section, collect, render, sections
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.runs.settings.config import Config

pytest.importorskip("plotly")
pytest.importorskip("jinja2")


def made(folder: Path, lens: dict[str, Any] | None = None, method: str = "fedavg", **values: Any) -> Material:
    """A report of one run with these measurements."""
    write_run(folder, Config.build({"method": method, "rounds": 4, "clients": 4, "cohort": 2, **values}), 0.2)
    if lens is not None:
        (folder / "lens.json").write_text(json.dumps({"skipped": {}, **lens}))
    return collect([folder])


def drawn(material: Material) -> dict[str, Any]:
    """All figures by name, each drawn for the page and for print."""
    for text in re.findall(r'<script type="application/json">(.*?)</script>', render(material)):
        assert "NaN" not in text and "Infinity" not in text
    figures = {figure.name: figure for part in sections(material) for figure in part.figures}
    for figure in figures.values():
        draw(figure)
    return figures


def part(material: Material, key: str) -> Section:
    return next(part for part in sections(material) if part.key == key)


def test_maps_and_planes_with_nulls_are_drawn(tmp_path: Path) -> None:
    """Features that are all the same, and clients that are not finite."""
    base = {"round": 4, "clients": [3, 17, 5]}
    points = [[0.0, 1.0], [None, 1.0], [2.0, 2.0], [1.0, 0.5]]
    joint = {"points": points, "labels": [0, 1, 0, 1], "models": [-1, -1, 3, 3], "apart": None, "separation": None}
    views = {
        "weights of a": [[1.0, 2.0, 3.0], [None, 0.0, 1.0], [3.0, 1.0, 0.0]],
        "weights of b": [[1.0], [2.0], [3.0]],
    }
    embedding = {
        "pca_update": {"points": points[:3], "clients": [3, 17, 5], "explained": [None, None]},
        "tsne_features": {"points": points[1:], "labels": [4, 5, 4]},
    }
    figures = drawn(made(tmp_path / "run", {**base, "joint": joint, "views": views, "embedding": embedding}))
    captions = [caption for caption, _ in figures["joint"].parts]
    assert captions == ["fedavg, separation -", "fedavg, apart -"]
    names = [name for mark in figures["pca-weights-of-a"].parts[0][1].marks for name in mark.names]
    assert names == ["fedavg, client 3", "fedavg, client 5"], "the client that has no place is left out, not renumbered"
    assert "pca-weights-of-b" not in figures, "one number has no plane"
    (dots,) = figures["updates"].parts[0][1].marks
    assert (
        list(dots.names) == ["client 3", "client 5"]
        and figures["updates"].parts[0][1].x.title == "direction 1 (no unit)"
    )
    labels = {mark.label: mark.x for mark in figures["features"].parts[0][1].marks}
    assert labels == {"class 4": [1.0], "class 5": [2.0]}


def test_tables_and_cells_with_nulls_are_drawn(tmp_path: Path) -> None:
    curvature = {"top": [7.5, None], "trace": None, "trace_error": None, "sharpness": None}
    spectrum = {"bands": 2, "update": {"layers": ["a"], "normalised": [[None, None]], "consensus": [None, 0.5]}}
    found = made(tmp_path / "run", {"round": 4, "clients": [0, 1], "curvature": curvature, "spectrum": spectrum})
    nothing = [{"round": 1, "heterogeneity": None}, {"round": 2, "heterogeneity": {"whole": {"gradient": 1.0}}}]
    (tmp_path / "run" / "lens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nothing))
    assert part(found, "landscape").tables[0].rows[0][1:3] == ["7.5, -", "-"]
    drawn(collect([tmp_path / "run"]))


def test_the_scale_of_a_random_surface_is_no_length(tmp_path: Path) -> None:
    whole = seen(0.2)
    eigen = drawn(made(tmp_path / "a", {**whole, "surface": {**whole["surface"], "directions": "top eigenvectors"}}))
    drawn_at = drawn(made(tmp_path / "b", {**whole, "surface": {**whole["surface"], "directions": "random"}}))
    assert eigen["landscape-contour"].parts[0][1].x.title == "first direction (weights)"
    assert drawn_at["landscape-contour"].parts[0][1].x.title == "first direction (norms of the filters)"


def test_what_was_measured_during_the_run_only(tmp_path: Path) -> None:
    """It is said of sections whose numbers are from the run's own rows, and of no others."""
    live = {"round": 2, "consensus": [0.9, 0.5], "heterogeneity": theory(0.2)}
    text = "Measured during the run only"

    def told(material: Material) -> list[str]:
        return [x.key for x in sections(material) if x.missing and (x.figures or x.tables)]

    one = made(tmp_path / "one")
    (tmp_path / "one" / "lens.jsonl").write_text(json.dumps(live) + "\n")
    assert told(one) == ["spectrum", "heterogeneity"] and render(one).count(text) == 2
    other = {key: x for key, x in seen(0.2).items() if key in ("round", "clients", "curvature")}
    two = made(tmp_path / "two", other)
    (tmp_path / "two" / "lens.jsonl").write_text(json.dumps(live) + "\n")
    assert told(two) == ["spectrum", "heterogeneity"], "the lens measured something else"
    assert part(two, "landscape").tables and not part(two, "landscape").missing, "a table without a figure"
    three = made(tmp_path / "three")
    (tmp_path / "three" / "lens").mkdir()
    (tmp_path / "three" / "lens" / "0000002.json").write_text(json.dumps({"round": 2, "heterogeneity": theory(0.2)}))
    assert part(three, "heterogeneity").figures and told(three) == [], "measured after an earlier round"
    assert text not in render(three)


def test_what_could_not_be_measured_says_why(tmp_path: Path) -> None:
    skipped = {
        "alignment": "Mine has no linear layer",
        "surface": "diverged",
        "curvature": "diverged",
        "tsne_features": "x",
    }
    without = {key: x for key, x in seen(0.2).items() if key not in skipped}
    found = made(tmp_path / "run", {**without, "heterogeneity": theory(0.2), "skipped": skipped})
    assert not part(found, "alignment").missing and part(found, "alignment").reason == "Mine has no linear layer"
    assert part(found, "landscape").reason == "diverged" and part(found, "plane").reason == "x"
    html = render(found)
    assert "Not measured: Alignment: Mine has no linear layer" in html and "Not measured: Landscape: diverged" in html
    assert "Left out: x" in html and "undrift lens" not in html


def test_rounds_that_a_comparison_does_not_show_are_in_no_figure(tmp_path: Path) -> None:
    """The run went on to 4 rounds; the comparison has 2 of them."""
    folder = tmp_path / "toys" / "fedavg" / "seed-0"
    write_run(folder, Config.build({"rounds": 4, "clients": 4, "cohort": 2}), 0.2, lens=True)
    rows = [{"round": n, "heterogeneity": theory(0.2)} for n in (1, 2, 3, 4)]
    (folder / "lens.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "toys" / "compare.toml").write_text(
        'seeds = [0]\nbase = { rounds = 2, clients = 4, cohort = 2 }\nmethods = [{ method = "fedavg" }]\n'
    )
    found = collect([tmp_path / "toys"])
    (run,) = found.runs
    assert (
        len(run.rows) == 2 and run.lens is None and run.looks == [] and len(run.stream) == 1
    )  # from 0: rounds 1, 2, ...
    assert not any(x.key == "clients" for x in sections(found)), "they are those after 4 rounds"
    assert any("fedavg/seed-0 has 4 rounds, of which the first 2 are shown" in note for note in found.notes)
    assert re.search(r"<td[^>]*>2 *</td><td[^>]*>cdcd\w+ *</td><td[^>]*>- *</td>", render(found))


def test_measurements_of_an_earlier_end_are_named(tmp_path: Path) -> None:
    found = made(tmp_path / "run", {**seen(0.2), "round": 2})
    assert "run was measured by the lens after 2 of its 4 rounds" in found.notes


def test_a_seed_without_measurements_costs_the_others_nothing(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"run-{seed}", Config.build({"rounds": 4, "seed": seed}), 0.2)
    path = tmp_path / "run-1" / "metrics.jsonl"
    path.write_text("".join(json.dumps({**json.loads(x), "drift": None}) + "\n" for x in path.read_text().splitlines()))
    figures = drawn(collect([tmp_path / "run-0", tmp_path / "run-1"]))
    (line,) = figures["curve-drift-rounds"].parts[0][1].marks
    assert list(line.y) == [0.1] * 4 and line.low is None


def test_cells_of_blocks_may_be_negative(tmp_path: Path) -> None:
    material = made(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    more = {"objective.score/a": -2.0, "objective.score/b": -1.0}
    path.write_text("".join(json.dumps({**json.loads(x), **more}) + "\n" for x in path.read_text().splitlines()))
    grid = drawn(collect([tmp_path / "run"]))["block-objective-score"].parts[0][1].grid
    assert (grid.low, grid.high) == (-2.0, 0.0) and material.groups


def test_single_values_before_and_after_a_filter_can_be_told_apart(tmp_path: Path) -> None:
    """A single value shows no dashes, so that its marker must differ; rounds are whole on the page, too."""
    figures = drawn(made(tmp_path / "run", {**seen(0.2), "heterogeneity": theory(0.2)}))
    page = plotly(figures["heterogeneity"].parts[0][1])
    assert [trace["marker"]["symbol"] for trace in page["data"]] == ["circle", "square"]
    sheet = draw(figures["heterogeneity"])
    assert [line.get_marker() for line in sheet.axes[0].lines] == ["o", "s"]
    assert plotly(figures["curve-accuracy-rounds"].parts[0][1])["layout"]["xaxis"]["dtick"] == 1
    assert "dtick" not in plotly(figures["curve-accuracy-traffic"].parts[0][1])["layout"]["xaxis"]
