"""Figures of one kind from runs: looks at chosen rounds, through chosen filters, and what is drawn of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiment_support import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.experiment import Config, start
from undrift.experiment import inspect as look
from undrift.experiment.folder import RunError
from undrift.experiment.inspect import place
from undrift.report import KINDS, ReportError, collect, draw_kind, sections
from undrift.report.drawing import Line

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
    first = json.loads(place(runs[0], 1).read_text())
    assert by_round[0].y == first["spectrum"]["gradient"]["overall"]["distance"]
    assert json.loads(place(runs[0]).read_text())["round"] == 3


def test_what_has_been_seen_is_not_measured_again(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn("variance", runs, tmp_path)
    monkeypatch.setattr("undrift.report.single.look", None)
    assert drawn("variance", runs, tmp_path) == ["variance-perturbation"]


def test_layers_before_and_after_a_filter(runs: list[Path], tmp_path: Path) -> None:
    names = drawn("layers", runs, tmp_path)
    assert {"divergence-filtered-gradient", "divergence-filtered-relative", "divergence-update"} <= set(names)
    panel = dict(figures(runs)["divergence-filtered-gradient"].parts)["fedsam"]
    before, after = panel.marks
    assert isinstance(before, Line) and isinstance(after, Line)
    assert (before.label, after.label) == ("before", "after") and panel.y.labels == tuple(before.y)
    assert all(b <= a + 1e-12 for a, b in zip(before.x, after.x, strict=True))  # of a projection


def test_methods_in_the_same_plane(runs: list[Path], tmp_path: Path) -> None:
    names = drawn("pca", runs, tmp_path)
    assert len(names) == 3 and all(name.startswith("pca-") for name in names)
    figure = figures(runs)["pca-features-of-each-class"]
    clouds = figure.parts[0][1].marks
    assert [(dots.style, dots.label) for dots in clouds] == [(0, "fedsam"), (1, "fedfft(r=0.1)")]
    assert [len(dots.x) for dots in clouds] == [4, 4]
    assert "centre, in all directions, is: fedsam " in figure.reading


def test_the_filter_of_a_look_is_ones_own_choice(runs: list[Path]) -> None:
    asked = {"clients": 4, "parts": ["divergence"], "round": 2}
    told = look.look(runs[0], filter="gaussian(0.3)", **asked)
    assert told["divergence"]["filtered"]["filter"].startswith("gaussian(")
    assert "spectrum" not in told  # another filter is another look
    assert look.look(runs[1], **asked)["divergence"]["filtered"]["filter"] == "high_pass(r=0.1)"  # the method's own
    with pytest.raises(ValueError, match="filter"):
        look.look(runs[0], filter="sam(0.1)", **asked)


def test_looks_with_the_same_arguments_add_up(runs: list[Path]) -> None:
    asked = {"clients": 3, "seed": 5, "round": 2}
    one = look.look(runs[0], parts=["divergence"], **asked)
    two = look.look(runs[0], parts=["views"], **asked)
    assert two["divergence"] == one["divergence"] and set(two["seconds"]) == {"divergence", "views"}
    assert "divergence" not in look.look(runs[0], parts=["views"], **{**asked, "seed": 6})


def test_what_cannot_be_drawn_says_why(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match=r"no figure is named 'band'; did you mean 'bands'"):
        draw_kind("band", runs, tmp_path)
    with pytest.raises(RunError, match=r"round 7 was not kept; there are 1, 2, 3\. .*output.keep = 4"):
        look.look(runs[0], round=7)
    plain = start(Config.build({**RUN, "rounds": 1}), tmp_path / "plain").folder
    with pytest.raises(ReportError, match="nothing to draw for variance: a method that perturbs"):
        draw_kind("variance", [plain], tmp_path)


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


def test_what_a_look_lacks_is_measured_as_the_rest_of_it_was(tmp_path: Path) -> None:
    folder = start(Config.build({**RUN, "rounds": 1}), tmp_path / "run").folder
    before = look.look(folder, clients=3, seed=5, parts=["divergence"])
    draw_kind("cka", [folder], tmp_path / "figures", clients=4, seed=0)
    after = json.loads(place(folder).read_text())
    assert {"divergence", "alignment"} <= set(after)
    assert (after["clients"], after["asked"]) == (before["clients"], before["asked"])
