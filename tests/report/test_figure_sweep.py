"""Sweeps: where a value is found, what makes a line and a frame, and the numbers that are drawn."""

from pathlib import Path
from statistics import stdev
from typing import Any

import pytest
from typer.testing import CliRunner

from support.report import write_run
from undrift.cli import app
from undrift.report import ReportError, collect, draw_sweep, sweep_figure
from undrift.report.draw.description import PALETTE, Figure, Line, Panel
from undrift.report.draw.plotly_figures import plotly
from undrift.report.draw.print_figures import draw
from undrift.runs.settings.config import Config
from undrift.studies.compare import Comparison

pytest.importorskip("plotly")
pytest.importorskip("jinja2")

BASE: dict[str, Any] = {"rounds": 2, "clients": 10, "cohort": 5, "model": "small-cnn"}


def write(folder: Path, gain: float = 0.1, **settings: Any) -> None:
    write_run(folder, Config.build({**BASE, **settings}), gain)


def swept(folder: Path, over: str, **options: Any) -> Figure:
    return sweep_figure(collect([folder]).runs, over=over, **options)


def lines(panel: Panel) -> dict[str, Line]:
    return {mark.label: mark for mark in panel.marks if isinstance(mark, Line)}


def parts(figure: Figure) -> dict[str, dict[str, Line]]:
    return {name: lines(panel) for name, panel in figure.parts}


@pytest.fixture(scope="module")
def radius(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison over rho and two partitions; accuracy is 2 (0.1 + rho + 0.01 seed), less by 0.05 for FedFFT."""
    out = tmp_path_factory.mktemp("sweep") / "radius"
    comparison = Comparison.build(
        {
            "seeds": [0, 1],
            "base": BASE,
            "methods": [
                {"method": "fedavg"},
                {"method": "fedsam", "grid": {"arguments.rho": [0.1, 0.01, 0.2]}},
                {"method": "feddyn + sam(rho=0.05)", "label": "dyn-0.05"},
                {"method": "feddyn + sam(0.2)", "label": "dyn-0.2"},
                {"method": "fedfft", "label": "fft", "grid": {"arguments.r": [0.01, 0.05]}},
            ],
            "grid": {"partition": ["dirichlet:0.1", "dirichlet:1"]},
        }
    )
    for trial in comparison.trials():
        rho = float(trial.label.rpartition("-")[2]) if "-" in trial.label and "-r-" not in trial.label else 0.0
        write_run(
            out / trial.name, trial.config, 0.1 + rho + 0.01 * trial.config.seed - 0.05 * (trial.label[:3] == "fft")
        )
    (out / "compare.toml").write_text(comparison.toml())
    return out


def test_an_argument_is_found_as_given_by_default_and_in_a_composition(radius: Path) -> None:
    figure = swept(radius, "rho")
    shown = parts(figure)
    assert list(shown) == ["partition dirichlet(0.1)", "partition dirichlet(1)"]
    frame = shown["partition dirichlet(0.1)"]
    assert list(frame) == ["fedavg", "fedsam", "dyn", "fft-r-0.01", "fft-r-0.05"]
    sam = frame["fedsam"]
    assert sam.x == [0.01, 0.1, 0.2] and sam.bars and sam.dots  # in order, though the rows are not
    assert sam.y == pytest.approx([2 * (0.105 + rho) for rho in (0.01, 0.1, 0.2)])
    half = stdev([0.2, 0.22])
    assert sam.low == pytest.approx([y - half for y in sam.y]) and sam.high == pytest.approx([y + half for y in sam.y])
    assert frame["dyn"].x == [0.05, 0.2]
    assert frame["fft-r-0.01"].x == [0.1], "its default radius"
    assert figure.name == "sweep-rho" and figure.title == "Last accuracy over rho"
    assert figure.parts[0][1].x.title == "rho" and figure.parts[0][1].y.title == "last accuracy on the test set (%)"


def test_a_method_without_the_value_is_a_dashed_level(radius: Path) -> None:
    panel = swept(radius, "rho").parts[0][1]
    level, sam = lines(panel)["fedavg"], lines(panel)["fedsam"]
    assert level.x == [0.01, 0.2] and level.y == pytest.approx([0.21, 0.21]) and not level.bars
    assert level.style == len(PALETTE) and sam.style == 1 and level.low and len(level.low) == 2
    over_r = parts(swept(radius, "r"))["partition dirichlet(1)"]
    assert over_r["fft"].x == [0.01, 0.05]
    assert {label for label, line in over_r.items() if not line.bars} == {
        "fedavg",
        "fedsam-rho-0.01",
        "fedsam-rho-0.1",
        "fedsam-rho-0.2",
        "dyn-0.05",
        "dyn-0.2",
    }


def test_over_a_setting_lines_keep_their_labels(radius: Path) -> None:
    figure = swept(radius, "partition")
    ((name, panel),) = figure.parts
    assert name == "" and panel.x.title == "partition dirichlet(x)" and not panel.x.log
    assert list(lines(panel))[:3] == ["fedavg", "fedsam-rho-0.1", "fedsam-rho-0.01"]
    assert all(line.x == [0.1, 1.0] for line in lines(panel).values())


def test_all_settings_in_one_frame(radius: Path) -> None:
    ((_, panel),) = swept(radius, "r", together=True).parts
    labels = list(lines(panel))
    assert "fft, partition dirichlet(0.1)" in labels and "fedavg, partition dirichlet(1)" in labels
    assert len({line.style for line in lines(panel).values()}) == len(labels)


def test_differences_are_taken_seed_by_seed(radius: Path) -> None:
    figure = swept(radius, "rho", minus="fedavg")
    frame = parts(figure)["partition dirichlet(1)"]
    assert "fedavg" not in frame
    assert frame["fedsam"].y == pytest.approx([0.02, 0.2, 0.4])
    assert frame["fedsam"].low == pytest.approx(frame["fedsam"].y), "the seeds differ alike"
    assert figure.parts[0][1].y.title == "last accuracy on the test set, minus fedavg (points)"
    assert figure.name == "sweep-rho-minus-fedavg"
    (merged,) = parts(swept(radius, "r", minus="fedavg", together=True)).values()
    assert merged["fft, partition dirichlet(1)"].y == pytest.approx([-0.1, -0.1])
    with pytest.raises(ReportError, match="no line is labelled 'fedav'; did you mean 'fedavg'"):
        swept(radius, "rho", minus="fedav")


def test_other_numbers_of_a_run(radius: Path, tmp_path: Path) -> None:
    time = swept(radius, "rho", by="seconds_per_round")
    assert set(parts(time)["partition dirichlet(1)"]["fedsam"].y) == {2.0}
    assert time.parts[0][1].y.title == "seconds per round" and time.title == "Seconds per round over rho"
    assert swept(radius, "rho", by="client_worst_tenth").parts[0][1].y.percent
    with pytest.raises(ReportError, match="no run has a number 'beste'; did you mean 'best'"):
        swept(radius, "rho", by="beste")
    write(tmp_path / "a", gain=-0.1, method="fedsam", arguments={"rho": 0.1})  # falls: the first round is the best
    write(tmp_path / "b", gain=-0.1, method="fedsam", arguments={"rho": 0.2})
    assert lines(swept(tmp_path, "rho", by="best").parts[0][1])["fedsam"].y == [-0.1, -0.1]
    assert lines(swept(tmp_path, "rho").parts[0][1])["fedsam"].y == [-0.2, -0.2]


def test_over_methods_compositions_stand_beside_what_they_extend(tmp_path: Path) -> None:
    for n, method in enumerate(("fedavg", "scaffold", "fedavg + sam(rho=0.1)", "scaffold + sam(rho=0.1)")):
        write(tmp_path / str(n), gain=0.1 + 0.01 * n, method=method)
    ((_, panel),) = swept(tmp_path, "method").parts
    assert panel.x.labels == ("fedavg", "scaffold")
    assert list(lines(panel)) == ["alone", "+ sam(rho=0.1)"]
    assert lines(panel)["+ sam(rho=0.1)"].y == pytest.approx([0.24, 0.26])
    assert draw(swept(tmp_path, "method")).axes[0].get_lines()[0].get_linestyle() == "None"
    alone = sweep_figure(collect([tmp_path / "0", tmp_path / "1"]).runs, over="method")
    assert list(lines(alone.parts[0][1])) == [""]


def test_an_attribute_that_several_blocks_have_needs_its_slot(tmp_path: Path) -> None:
    for n, rho in enumerate((0.1, 0.2)):
        write(tmp_path / str(n), method=f"fedavg + sam(rho={rho}) + highpass(0.1) + gradient:highpass(0.2)")
    with pytest.raises(ReportError, match=r"spectral.perturbation.r and spectral.gradient.r are all named r; .*--over"):
        swept(tmp_path, "r")
    assert lines(swept(tmp_path, "perturbation.rho").parts[0][1]).popitem()[1].x == [0.1, 0.2]
    assert lines(swept(tmp_path, "spectral.gradient.r").parts[0][1])
    with pytest.raises(ReportError, match=r"no run has a value named 'local.epoch'; did you mean 'local.epochs'"):
        swept(tmp_path, "local.epoch")


def test_axes_fit_the_values(tmp_path: Path) -> None:
    for n, rho in enumerate((0.001, 0.01, 1.0)):
        write(tmp_path / "log" / str(n), method="fedsam", arguments={"rho": rho})
    figure = swept(tmp_path / "log", "rho")
    axis = draw(figure).axes[0]
    assert axis.get_xscale() == "log" and [tick.get_text() for tick in axis.get_xticklabels()] == ["0.001", "0.01", "1"]
    assert plotly(figure.parts[0][1])["layout"]["xaxis"]["type"] == "log"
    for n, partition in enumerate(("iid", "dirichlet:0.1")):
        write(tmp_path / "text" / str(n), partition=partition)
    panel = swept(tmp_path / "text", "partition").parts[0][1]
    assert panel.x.labels == ("iid", "dirichlet(0.1)") and plotly(panel)["data"][0]["mode"] == "markers"


def test_the_page_draws_bars_too(radius: Path) -> None:
    traces = {trace["name"]: trace for trace in plotly(swept(radius, "rho").parts[0][1])["data"]}
    half = 100 * stdev([0.2, 0.22])
    assert traces["fedsam"]["error_y"]["array"] == pytest.approx([half] * 3, rel=1e-3)


def test_a_cohort_that_grows_with_the_clients_is_one_frame(tmp_path: Path) -> None:
    for clients in (20, 50, 100):
        write(tmp_path / f"n{clients}", clients=clients, cohort=clients // 10)
    ((name, panel),) = swept(tmp_path, "clients").parts
    assert name == "" and lines(panel)["fedavg"].x == [20, 50, 100]
    write(tmp_path / "epochs", clients=100, cohort=10, local={"epochs": 5})
    (name,) = parts(swept(tmp_path, "clients"))  # the frame with one value is left out
    assert name == "local.epochs 1"
    (name,) = parts(swept(tmp_path, "local.epochs"))
    assert name == "clients 100, cohort 10"


def test_tuned_methods_share_a_frame_and_twins_are_refused(tmp_path: Path) -> None:
    for n, (method, lr) in enumerate([("fedavg", 0.1), ("scaffold", 0.05)]):
        for clients in (10, 20):
            write(tmp_path / f"{n}-{clients}", method=method, clients=clients, local={"lr": lr})
    assert list(parts(swept(tmp_path, "clients"))) == [""]
    write(tmp_path / "twin", method="fedsam", arguments={"rho": 0.1})
    write(tmp_path / "default", method="fedsam")
    with pytest.raises(ReportError, match=r"are both fedsam with rho 0.1: leave one out"):
        swept(tmp_path, "rho")


@pytest.mark.quick
def test_the_command(radius: Path, tmp_path: Path) -> None:
    cli = CliRunner()
    done = cli.invoke(app, ["figure", "sweep", str(radius), "--over", "rho", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "sweep-rho.png").stat().st_size > 10_000 and "sweep-rho.pdf" in done.stdout
    assert draw_sweep([radius], tmp_path, over="r", by="best")[0].name == "sweep-r-best.png"
    for arguments, message in (
        (["sweep", str(radius)], "--over rho"),
        (["sweep", str(radius), "--over", "rho", "--round", "1"], "--round: sweep does not show one measured round"),
        (["drift", str(radius), "--over", "rho"], "only for undrift figure sweep"),
    ):
        failed = cli.invoke(app, ["figure", *arguments, "--out", str(tmp_path)])
        assert failed.exit_code == 2 and message in failed.stderr


def test_a_sweep_of_the_rounds_to_the_target(tmp_path: Path) -> None:
    for number, gain in enumerate((0.1, 0.3)):  # accuracies after two rounds: 0.1 and 0.2, 0.3 and 0.6
        write(tmp_path / str(number), gain, method="fedprox", arguments={"mu": gain}, target=0.2)
    (line,) = parts(swept(tmp_path, "mu", by="rounds_to_target"))[""].values()
    assert sorted(line.y) == [1.0, 2.0], line
