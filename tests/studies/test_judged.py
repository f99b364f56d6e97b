"""Personal methods are tuned, compared, targeted and drawn by the accuracy of their personal models."""

import io
import json
import tomllib
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import make
from undrift.cli import app
from undrift.cli.progress import RunProgress
from undrift.core.local.settings import Local
from undrift.runs import Config, start
from undrift.runs.folder.judge import config_column, judging_column, measured_rows, rounds_to, run_column, run_summary
from undrift.runs.loop.metrics_row import POINTS, TUNED_POINTS, Measure, personal_every
from undrift.runs.settings.schema import merge_settings
from undrift.runs.setup.open_simulation import open_simulation
from undrift.runs.setup.prepare import prepare
from undrift.studies.compare import Comparison, compare
from undrift.studies.run_result import result
from undrift.studies.statistics import MIXED, cells, judging_note, summarise, to_markdown
from undrift.studies.tune import Tuning, tune

SKEWED: dict[str, Any] = merge_settings(RUN, {"partition": "dirichlet:0.3,min_size=10", "rounds": 3})


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("method", "local", "column"),
    [
        ("fedavg", {}, "accuracy"),
        ("scaffold", {}, "accuracy"),
        ("fedavg", {"buffers": "keep"}, "personal_accuracy"),
        ("fedper", {}, "personal_accuracy"),
        ("fedavg-ft", {}, "personal_accuracy"),
        ("fedfsa", {}, "personal_accuracy"),
        ("fedavg + fedper", {}, "personal_accuracy"),
    ],
)
def test_one_place_says_by_what_a_run_is_judged(method: str, local: dict[str, Any], column: str) -> None:
    assert config_column(Config.build({"method": method, "local": local})) == column
    if method in ("fedavg", "fedper"):
        assert judging_column(make(method), Local(**local)) == column


@pytest.mark.parametrize(
    ("rounds", "evaluate", "chosen", "every", "tuned"),
    [
        (4, 1, None, 1, 1),
        (20, 1, None, 2, 5),
        (11, 1, None, 2, 3),
        (200, 5, None, 20, 50),
        (30, 50, None, 50, 50),
        (20, 1, 0, 0, 0),
        (9, 1, 4, 4, 4),
    ],
)
def test_personal_models_are_measured_now_and_then(
    rounds: int, evaluate: int, chosen: int | None, every: int, tuned: int
) -> None:
    config = Config.build({"rounds": rounds, "output": {"evaluate_every": evaluate, "personal_every": chosen}})
    for method, expected, most in (("fedper", every, POINTS), ("fedavg-ft", tuned, TUNED_POINTS)):
        assert personal_every(config, make(method)) == expected
        after = {round for round in range(1, rounds + 1) if expected and round % expected == 0} | {rounds}
        assert chosen is not None or len(after) <= most
    assert Config.build(tomllib.loads(config.toml())).output.personal_every == chosen


ROWS: list[dict[str, Any]] = [
    {"round": 1, "accuracy": 0.5},
    {"round": 2, "accuracy": 0.2, "personal_accuracy": 0.8, "personal_seconds": 1.0},
    {"round": 3, "accuracy": 0.3, "test_loss": 2.0, "client_accuracy": 0.35},
    {"round": 4, "accuracy": nan, "personal_accuracy": 0.7, "personal_worst_tenth": 0.1, "personal_seconds": 2.0},
]
for row in ROWS:
    row |= {"seconds": 1.0, "evaluate_seconds": 3.0, "bytes_down": 1, "bytes_up": 1, "gradients": 5}


def test_best_and_rounds_to_a_target_are_of_the_judged_column() -> None:
    ours, theirs = run_summary(ROWS, "personal_accuracy"), run_summary(ROWS)
    assert (ours["judged_by"], ours["best_accuracy"], ours["best_round"]) == ("personal_accuracy", 0.8, 2)
    assert (theirs["judged_by"], theirs["best_accuracy"], theirs["best_round"]) == ("accuracy", 0.5, 1)
    for summary in (ours, theirs):  # the last of each, whichever of them judges
        assert (summary["accuracy"], summary["client_accuracy"], summary["test_loss"]) == (0.3, 0.35, 2.0)
        assert (summary["personal_accuracy"], summary["personal_worst_tenth"]) == (0.7, 0.1)
        assert (summary["seconds"], summary["evaluate_seconds"], summary["personal_seconds"]) == (4.0, 12.0, 3.0)
    assert rounds_to(ROWS, 0.4) == 1 and rounds_to(ROWS, 0.6) is None
    assert rounds_to(ROWS, 0.4, "personal_accuracy") == 2 and rounds_to(ROWS, None, "personal_accuracy") is None
    assert "best_accuracy" not in run_summary(ROWS[:1], "personal_accuracy") and "personal_seconds" not in run_summary(
        ROWS[:1]
    )
    assert [row["round"] for row in measured_rows(ROWS, "accuracy")] == [1, 2, 3]


@pytest.mark.usefixtures("tiny")
def test_held_out_examples_judge_personal_models(tmp_path: Path) -> None:
    """By hand: each client's model, tuned without the held-out examples, on those of its own."""
    config = Config.build(
        merge_settings(SKEWED, {"method": "fedavg-ft", "arguments": {"epochs": 1}, "holdout": 0.2, "rounds": 1})
    )
    setup = prepare(config)
    with open_simulation(setup, tmp_path) as simulation:
        state = simulation.run(1)
        assert setup.partition is not None
        measure, by_hand = Measure(setup, simulation), []
        task = setup.data_task
        train = task.dataset.train
        for client in range(task.population):
            held = task.own(client)
            assert len(held) and not set(held.tolist()) & set(task.training(client).tolist())
            assert set(held.tolist()) < set(setup.partition.clients[client].tolist())
            module = simulation.personal(state, client).eval()
            with torch.no_grad():
                right = module(task.prepare(train.inputs[held])).argmax(1) == train.targets[held]
            by_hand.append(float(right.double().mean()))
        assert measure.judged_by == "personal_accuracy"
        assert measure.personal(state).tolist() == pytest.approx(by_hand)


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("method", ["fedper", "fedavg-ft"])
def test_measuring_changes_no_bit_and_its_cost_is_shown(method: str, tmp_path: Path) -> None:
    hashes = set()
    for every in (None, 0):
        config = Config.build(merge_settings(SKEWED, {"method": method, "output": {"personal_every": every}}))
        outcome = start(config, tmp_path / str(every))
        rows, seldom = rows_of(outcome.folder), every == 0
        assert ["personal_accuracy" in row for row in rows] == [not seldom, not seldom, True]
        assert all(row["evaluate_seconds"] >= row.get("personal_seconds", 0) for row in rows)
        assert outcome.summary["personal_seconds"] == sum(row.get("personal_seconds", 0) for row in rows) > 0
        assert outcome.summary["judged_by"] == "personal_accuracy"
        assert outcome.summary["best_accuracy"] == max(row.get("personal_accuracy", 0) for row in rows)
        hashes.add(outcome.sha256)
    assert len(hashes) == 1


@pytest.mark.sweep(every=2)
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(("by", "pick"), [("best", max), ("last", lambda values: values[-1])])
def test_a_personal_method_is_tuned_by_its_personal_models(by: str, pick: Any, tmp_path: Path) -> None:
    values = {"method": "fedper", "grid": {"lr": [0.05, 0.2]}, "widenings": 0, "by": by, "base": SKEWED}
    summary = tune(Tuning.build(values), tmp_path)
    for trial in summary["trials"]:
        rows = rows_of(tmp_path / f"trials/lr-{trial['lr']}")
        assert trial["score"] == pick([row["personal_accuracy"] for row in rows])
        assert trial["score"] != pick([row["client_accuracy"] for row in rows]), "not the global model's"
    assert summary["judged_by"] == "personal_accuracy"


@pytest.fixture(scope="module")
def done(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:  # noqa: F811
    """A comparison of a global and a personal method, and its table."""
    out = tmp_path_factory.mktemp("judged") / "out"
    methods = [{"method": "fedavg"}, {"method": "fedper"}]
    base = merge_settings(SKEWED, {"target": 0.5})
    return out, compare(Comparison.build({"name": "toys", "seeds": [0, 1], "base": base, "methods": methods}), out)


@pytest.mark.sweep(every=4)
def test_a_personal_method_is_compared_by_its_personal_models(done: tuple[Path, dict[str, Any]]) -> None:
    out, table = done
    fedavg, fedper = table["rows"]
    own = {seed: [row["personal_accuracy"] for row in rows_of(out / f"fedper/seed-{seed}")] for seed in (0, 1)}
    theirs = {seed: [row["accuracy"] for row in rows_of(out / f"fedavg/seed-{seed}")] for seed in (0, 1)}
    assert fedper["last"] == pytest.approx((own[0][-1] + own[1][-1]) / 2)
    assert fedper["best"] == pytest.approx((max(own[0]) + max(own[1])) / 2)
    assert fedavg["last"] == pytest.approx((theirs[0][-1] + theirs[1][-1]) / 2)
    gaps = [own[seed][-1] - theirs[seed][-1] for seed in (0, 1)]
    assert fedper["last_difference"] == pytest.approx(sum(gaps) / 2)
    reached = [next((n + 1 for n, x in enumerate(own[seed]) if x >= 0.5), None) for seed in (0, 1)]
    known = [n for n in reached if n is not None]
    assert fedper["reached"] == len(known) > 0 and fedper["rounds_to_target"] == pytest.approx(sum(known) / len(known))


@pytest.mark.sweep(every=2)
def test_the_table_says_by_what_each_method_is_judged(done: tuple[Path, dict[str, Any]]) -> None:
    out, table = done
    headings, texts = cells(table["rows"])
    rows = [dict(zip(headings, row, strict=True)) for row in texts]
    assert [row["judged by"] for row in rows] == ["global", "personal"]
    assert rows[0]["global %"] == "-" and rows[1]["global %"] != rows[1]["last %"] and "personal %" not in headings
    note = judging_note(table["rows"])
    assert "their own tests" in note and "A difference between the two kinds" in note and MIXED.title() not in note
    assert (out / "table.md").read_text() == to_markdown(table["rows"]) and note in to_markdown(table["rows"])
    assert "difference" not in judging_note(table["rows"][1:]).split("tests.")[1]
    assert judging_note(table["rows"][:1]) == "" and "judged by" not in cells(table["rows"][:1])[0]


def test_a_run_of_an_earlier_version_is_judged_by_accuracy(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    new = done[0] / "fedper/seed-0"
    config = Config.read(new / "config.toml")
    (tmp_path / "metrics.jsonl").write_text((new / "metrics.jsonl").read_text())
    assert run_column(tmp_path, config) == "personal_accuracy", "without a summary the settings say it"
    summary = json.loads((new / "summary.json").read_text())
    assert summary.pop("judged_by") == "personal_accuracy"
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert run_column(tmp_path, config) == "accuracy"
    old = result(tmp_path, config)
    assert old["best_accuracy"] == max(row["accuracy"] for row in rows_of(tmp_path))
    (row,) = summarise({"fedper": {0: old, 1: result(new, config)}}, "fedper")
    assert row["judged_by"] == MIXED and "Mixed: " in judging_note([row]) and cells([row])[1][0][1] == MIXED


def test_the_command_line_shows_the_judged_accuracy(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    file, runner = tmp_path / "toys.toml", CliRunner(env={"COLUMNS": "80"})
    file.write_text((done[0] / "compare.toml").read_text())
    shown = runner.invoke(app, ["compare", str(file), "--out", str(done[0])])
    assert shown.exit_code == 0 and "judged by" in shown.stdout and "Judged by personal" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines()[:-1])
    summary = json.loads((done[0] / "fedper/seed-0/summary.json").read_text())
    lines = runner.invoke(app, ["resume", str(done[0] / "fedper/seed-0")]).stdout.splitlines()
    best = f"(best {summary['best_accuracy']:.2%} in round {summary['best_round']})"
    assert lines[0].startswith(f"personal accuracy {summary['personal_accuracy']:.2%} {best}, worst tenth")
    assert lines[1].startswith(f"global model: accuracy {summary['accuracy']:.2%}, clients")
    assert lines[2].startswith("always ")  # what a constant answer reaches
    assert f"({summary['personal_seconds']:.0f} s for personal models)" in lines[4]
    lines = runner.invoke(app, ["resume", str(done[0] / "fedavg/seed-0")]).stdout.splitlines()
    assert lines[0].startswith("accuracy ") and "personal" not in "".join(lines)
    (tmp_path / "base.toml").write_text(Config.build(merge_settings(SKEWED, {"rounds": 1})).toml())
    flags = [
        "--grid",
        "lr=0.1,0.2",
        "-c",
        str(tmp_path / "base.toml"),
        "--widenings",
        "0",
        "--out",
        str(tmp_path / "tune"),
    ]
    tuned = runner.invoke(app, ["tune", "fedper", *flags])
    assert tuned.exit_code == 0 and "personal accuracy on held-out examples" in tuned.stdout


def test_the_progress_line_shows_the_judged_accuracy() -> None:
    with RunProgress(3, console=Console(file=io.StringIO())) as shown:
        status: list[Any] = []
        for row in ({"accuracy": 0.1}, {"accuracy": 0.2, "personal_accuracy": 0.9}, {"accuracy": 0.3}):
            shown.show_row({"round": len(status) + 1, "train_loss": 0.5, **row}, "personal_accuracy")
            status.append(shown.status)
    measured_once = "personal accuracy 90.00%  loss 0.500"
    assert status == ["loss 0.500", measured_once, measured_once]
