"""Figures of one kind from runs: looks at chosen rounds, through chosen filters, and what is drawn of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.report import KINDS, ReportError, collect, draw_kind, sections, single
from undrift.report.draw.description import Line
from undrift.runs import Config, start
from undrift.runs.folder.files import RunError
from undrift.runs.reading import open_checkpoint as look
from undrift.runs.reading.open_checkpoint import lens_file

pytestmark = pytest.mark.usefixtures("tiny")

KEPT = {"checkpoint_every": 1, "keep": 3, "lens_every": 0}


@pytest.fixture(scope="module")
def runs(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:  # noqa: F811
    """A method with perturbations, one with filtered ones, three rounds of both kept."""
    out = tmp_path_factory.mktemp("runs")
    methods = {"fedsam": {}, "fedfft": {"r": 0.1}}
    configs = {
        name: Config.build({**RUN, "method": name, "arguments": given, "output": KEPT, "rounds": 3})
        for name, given in methods.items()
    }
    return [start(config, out / name).folder for name, config in configs.items()]


def drawn(kind: str, runs: list[Path], folder: Path) -> list[str]:
    return sorted({path.stem for path in draw_kind(kind, runs, folder, clients=4)})


def figures(runs: list[Path]) -> dict[str, Any]:
    return {figure.name: figure for part in sections(collect(runs)) for figure in part.figures}


@pytest.mark.sweep(every=0)
def test_bands_of_every_round_that_was_kept(runs: list[Path], tmp_path: Path) -> None:
    assert drawn("bands", runs, tmp_path) == [
        f"bands-{what}" for what in ("filtered", "gradient", "perturbation", "update")
    ]
    assert (tmp_path / "bands-gradient.png").stat().st_size > 10_000
    parts = dict(figures(runs)["bands-gradient"].parts)
    assert list(parts) == [
        f"{m}, {what}" for m in ("fedsam", "fedfft(r=0.1)") for what in ("distance of pairs", "its deviation")
    ]
    by_round = parts["fedsam, distance of pairs"].marks
    assert [line.label for line in by_round] == ["round 1", "round 2", "round 3"]
    first = json.loads(lens_file(runs[0], 1).read_text())
    assert by_round[0].y == first["spectrum"]["gradient"]["overall"]["distance"]
    assert json.loads(lens_file(runs[0]).read_text())["round"] == 3


@pytest.mark.sweep(every=4)
def test_what_has_been_seen_is_not_measured_again(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn("variance", runs, tmp_path)
    monkeypatch.setattr("undrift.report.single.look", None)
    assert drawn("variance", runs, tmp_path) == ["variance-perturbation"]


@pytest.mark.sweep(every=4)
def test_layers_before_and_after_a_filter(runs: list[Path], tmp_path: Path) -> None:
    names = drawn("layers", runs, tmp_path)
    assert {"divergence-filtered-gradient", "divergence-filtered-relative", "divergence-update"} <= set(names)
    panel = dict(figures(runs)["divergence-filtered-gradient"].parts)["fedsam"]
    before, after = panel.marks
    assert isinstance(before, Line) and isinstance(after, Line)
    assert (before.label, after.label) == ("before", "after") and panel.y.labels == tuple(before.y)
    assert all(b <= a + 1e-12 for a, b in zip(before.x, after.x, strict=True))  # of a projection


@pytest.mark.sweep(every=4)
def test_methods_in_the_same_plane(runs: list[Path], tmp_path: Path) -> None:
    names = drawn("pca", runs, tmp_path)
    assert len(names) == 3 and all(name.startswith("pca-") for name in names)
    figure = figures(runs)["pca-features-of-each-class"]
    clouds = figure.parts[0][1].marks
    assert [(dots.style, dots.label) for dots in clouds] == [(0, "fedsam"), (1, "fedfft(r=0.1)")]
    assert [len(dots.x) for dots in clouds] == [4, 4]
    assert "centre, in all directions, is: fedsam " in figure.reading


@pytest.mark.sweep(every=4)
def test_the_filter_of_a_look_is_ones_own_choice(runs: list[Path]) -> None:
    asked: dict[str, Any] = {"clients": 4, "parts": ["divergence"], "round": 2}
    result = look.look(runs[0], filter="gaussian(0.3)", **asked)
    assert result["divergence"]["filtered"]["filter"].startswith("gaussian(")
    assert "spectrum" not in result  # another filter is another look
    assert look.look(runs[1], **asked)["divergence"]["filtered"]["filter"] == "high_pass(r=0.1)"  # the method's own
    with pytest.raises(ValueError, match="filter"):
        look.look(runs[0], filter="sam(0.1)", **asked)


def test_looks_with_the_same_arguments_add_up(runs: list[Path]) -> None:
    asked: dict[str, Any] = {"clients": 3, "seed": 5, "round": 2}
    one = look.look(runs[0], parts=["divergence"], **asked)
    two = look.look(runs[0], parts=["views"], **asked)
    assert two["divergence"] == one["divergence"] and set(two["seconds"]) == {"divergence", "views"}
    assert "divergence" not in look.look(runs[0], parts=["views"], **{**asked, "seed": 6})


@pytest.mark.sweep(every=2)
def test_what_cannot_be_drawn_says_why(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no figure is named 'band'; did you mean 'bands'"):
        draw_kind("band", runs, tmp_path)
    with pytest.raises(RunError, match=r"round 7 was not kept; there are 1, 2, 3\. .*output.keep = 4"):
        look.look(runs[0], round=7)
    plain = start(Config.build({**RUN, "rounds": 1}), tmp_path / "plain").folder
    with pytest.raises(ReportError, match="nothing to draw for variance: a method that perturbs"):
        draw_kind("variance", [plain], tmp_path)


@pytest.mark.sweep(every=4)
def test_heterogeneity_of_every_round_that_was_kept(runs: list[Path], tmp_path: Path) -> None:
    assert drawn("heterogeneity", runs, tmp_path) == ["heterogeneity", "heterogeneity-dissimilarity"]
    panels = dict(figures(runs)["heterogeneity"].parts)
    assert list(panels) == ["squared norm of the gradient", "variance between clients", "variance within clients"]
    lines = panels["variance between clients"].marks
    labels = [f"{name}{after}" for name in ("fedsam", "fedfft(r=0.1)") for after in ("", ", after high_pass(r={})")]
    assert [line.label for line in lines] == [text.format(r) for text, r in zip(labels, (0, 0.05, 0, 0.1), strict=True)]
    assert [list(line.x) for line in lines] == [[1, 2, 3]] * 4
    first = json.loads(lens_file(runs[0], 1).read_text())["heterogeneity"]
    assert lines[0].y[0] == first["whole"]["between"] >= lines[1].y[0] == first["kept"]["between"]
    part = next(part for part in sections(collect(runs)) if part.key == "heterogeneity")
    assert len(part.tables[0].rows) == 6 and not part.missing


@pytest.mark.sweep(every=4)
def test_what_was_measured_during_a_run_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = {"lens_every": 1, "lens": ["heterogeneity"]}
    folder = start(Config.build({**RUN, "rounds": 2, "output": output}), tmp_path / "run").folder
    monkeypatch.setattr("undrift.report.single.look", None)
    drawn("heterogeneity", [folder], tmp_path)
    whole, kept = figures([folder])["heterogeneity"].parts[2][1].marks
    assert list(whole.x) == [1, 2] and kept.label == "fedavg, after high_pass(r=0.05)"


@pytest.mark.sweep(every=4)
def test_a_kept_round_is_drawn_instead_of_the_last(runs: list[Path], tmp_path: Path) -> None:
    paths = draw_kind("variance", runs, tmp_path, clients=4, round=1)
    assert [path.name for path in paths] == [f"variance-perturbation-round-1.{end}" for end in ("png", "pdf")]
    first = json.loads(lens_file(runs[0], 1).read_text())
    assert first["round"] == 1 and "spectrum" in first
    material = single._at_round(collect(runs), 1)
    assert [run.lens["round"] for run in material.runs] == [1, 1]
    with pytest.raises(RunError, match="round 7 was not kept"):
        draw_kind("variance", runs, tmp_path, clients=4, round=7)
    with pytest.raises(RunError, match=r"its best round was not kept; set output.keep_best = true"):
        draw_kind("variance", runs, tmp_path, clients=4, round="best")
    for kind in ("drift", "bands"):
        with pytest.raises(ReportError, match=f"--round: {kind} does not show one measured round; .*variance"):
            draw_kind(kind, runs, tmp_path, round=1)


@pytest.mark.sweep(every=4)
def test_settings_in_one_frame(runs: list[Path], tmp_path: Path) -> None:
    other = start(
        Config.build({**RUN, "method": "fedsam", "partition": "iid", "output": KEPT}), tmp_path / "iid"
    ).folder
    both = [runs[0], other]
    assert len(drawn("variance", both, tmp_path / "apart")) == 2
    paths = draw_kind("variance", both, tmp_path / "one", clients=4, together=True)
    assert [path.name for path in paths] == ["variance-perturbation.png", "variance-perturbation.pdf"]
    one = single._join_settings(collect(both))
    assert one.settings == [""] and [group.style for group in one.groups] == [0, 1]
    assert one.labels == ["partition dirichlet(1)", "partition iid"]
    three = single._join_settings(collect([*runs, other]))
    assert three.labels[0] == "fedsam, partition dirichlet(1)" and len(three.labels) == 3
    assert [path.stem for path in draw_kind("drift", both, tmp_path / "one", together=True)][::2] == [
        "curve-drift-rounds",
        "curve-client-distance-rounds",
    ]
    with pytest.raises(ReportError, match="--together: partitions of different settings"):
        draw_kind("partition", both, tmp_path, together=True)


@pytest.mark.sweep(every=0)
def test_clients_and_the_global_model_in_one_map(runs: list[Path], tmp_path: Path) -> None:
    assert drawn("joint", runs, tmp_path) == ["joint"]
    joint = json.loads(lens_file(runs[0]).read_text())["joint"]
    rows = len(joint["points"])
    assert rows == len(joint["labels"]) == len(joint["models"]) and joint["models"].count(-1) == rows // 5
    assert joint["apart"] > 0 and 0 < joint["separation"] < 1
    figure = figures(runs)["joint"]
    names = [name for name, _ in figure.parts]
    assert names[0] == f"fedsam, separation {joint['separation']:.0%}" and names[1].startswith("fedfft(r=0.1), separ")
    assert names[2] == f"fedsam, apart {joint['apart']:.2g}" and len(names) == 4
    clients, own = figure.parts[2][1].marks
    assert (clients.label, own.label) == ("clients' models", "global model") and len(clients.x) == 4 * len(own.x)


@pytest.mark.sweep(every=8)
def test_what_blocks_report(tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    configs = {
        f"{name}-{seed}": Config.build({**RUN, "method": name, "seed": seed, "rounds": 2, "output": {"lens_every": 0}})
        for name, seed in (("fedscam", 0), ("fedscam", 1), ("fedfsa", 0))
    }
    runs = [start(config, tmp_path / name).folder for name, config in configs.items()]
    assert drawn("blocks", runs, tmp_path) == [
        "block-aggregation-weight",
        "block-momentum-norm",
        *(f"block-perturbation-{x}" for x in ("agreement", "chosen", "chosen-share", "radius", "steepness")),
    ]
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in runs]
    (line,) = figures(runs)["block-perturbation-radius"].parts[0][1].marks
    key = "perturbation.radius"
    means = [(one[key] + two[key]) / 2 for one, two in zip(rows[0], rows[1], strict=True)]
    half = [(one[f"{key}_std"] + two[f"{key}_std"]) / 2 for one, two in zip(rows[0], rows[1], strict=True)]
    assert line.label == "fedscam" and line.y == pytest.approx(means)
    most = [(one[f"{key}_max"] + two[f"{key}_max"]) / 2 for one, two in zip(rows[0], rows[1], strict=True)]
    assert line.high == pytest.approx([min(m + h, x) for m, h, x in zip(means, half, most, strict=True)])
    ((label, panel),) = figures(runs)["block-perturbation-chosen"].parts
    assert label == "fedfsa" and panel.grid.columns == [1, 2]
    member = panel.y.labels[0]
    assert panel.grid.values[0] == [row[f"perturbation.chosen/{member}"] for row in rows[2]]
    plain = start(Config.build({**RUN, "rounds": 1}), tmp_path / "plain").folder
    with pytest.raises(ReportError, match="nothing to draw for blocks: a method whose blocks report scalars"):
        draw_kind("blocks", [plain], tmp_path)


@pytest.mark.quick
def test_the_command(runs: list[Path], tmp_path: Path) -> None:
    cli = CliRunner()
    listed = cli.invoke(app, ["figure", "list"])
    assert listed.exit_code == 0 and all(name in listed.stdout for name in KINDS)
    done = cli.invoke(app, ["figure", "drift", *map(str, runs), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert "curve-client-distance-rounds.pdf" in done.stdout and "curve-drift-rounds.png" in done.stdout
    loss = cli.invoke(app, ["figure", "loss", *map(str, runs), "--out", str(tmp_path)])
    assert "curve-test-loss-rounds.pdf" in loss.stdout
    assert cli.invoke(app, ["figure", "nothing", str(runs[0])]).exit_code == 2


@pytest.mark.sweep(every=4)
def test_what_a_look_lacks_is_measured_as_the_rest_of_it_was(tmp_path: Path) -> None:
    folder = start(Config.build({**RUN, "rounds": 1}), tmp_path / "run").folder
    before = look.look(folder, clients=3, seed=5, parts=["divergence"])
    draw_kind("cka", [folder], tmp_path / "figures", clients=4, seed=0)
    after = json.loads(lens_file(folder).read_text())
    assert {"divergence", "alignment"} <= set(after)
    assert (after["clients"], after["asked"]) == (before["clients"], before["asked"])
