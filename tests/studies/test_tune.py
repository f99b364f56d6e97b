"""Tuning: a grid is widened until its best is inside, judged on held-out examples, and nothing runs twice."""

import json
import re
from math import inf, log, nan
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from support.runs import RUN, count_runs, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.core.local.settings import Local
from undrift.runs import Config, ConfigError
from undrift.runs.folder.files import RunError
from undrift.runs.loop.stall import StalledError
from undrift.runs.settings.schema import merge_settings
from undrift.studies.tune import RefusedValueError, Tuning, has_diverged, score, search, tune, value_beyond

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that are started or gone on with in a test."""
    return count_runs(monkeypatch)


def test_a_grid_is_widened_until_its_best_is_inside() -> None:
    asked = []

    def evaluate(point: tuple[float, ...]) -> float:
        asked.append(point)
        return -(log(point[0] / 0.9) ** 2) - (point[1] - 0.32) ** 2

    found = search({"lr": [0.05, 0.1, 0.2], "mu": [0.0, 0.1]}, evaluate)
    assert found.axes == {"lr": [0.05, 0.1, 0.2, 0.4, 0.8, 1.6], "mu": [0.0, 0.1, 0.2, 0.3, 0.4]}
    assert found.best == (0.8, 0.3)
    assert found.edges == {"lr": "inside", "mu": "inside"}
    assert len(asked) == len(set(asked)) == len(found.scores) == 30, "no point twice, none left out"


def test_downwards() -> None:
    found = search({"lr": [0.4, 0.8]}, lambda point: -abs(point[0] - 0.1))
    assert found.axes["lr"] == [0.05, 0.1, 0.2, 0.4, 0.8] and found.best == (0.1,)


def test_an_axis_ends_where_values_are_refused() -> None:
    def evaluate(point: tuple[float, ...]) -> float:
        if not 0 <= point[0] < 1:
            raise RefusedValueError("r must be a fraction in [0, 1)")
        return -point[0]

    found = search({"r": [0.0, 0.25]}, evaluate)
    assert found.axes["r"] == [0.0, 0.25] and found.best == (0.0,) and found.edges == {"r": "at its limit"}
    with pytest.raises(RefusedValueError):
        search({"r": [0.5, 2.0]}, evaluate)


def test_widenings_end() -> None:
    found = search({"lr": [1.0, 2.0]}, lambda point: point[0], widenings=3)
    assert found.axes["lr"] == [1, 2, 4, 8, 16] and found.edges == {"lr": "at the edge"}


def test_diverged_is_worst_and_all_diverged_goes_down() -> None:
    found = search({"lr": [4.0, 8.0]}, lambda point: nan if point[0] > 1 else -abs(point[0] - 0.5))
    assert found.best == (0.5,) and found.scores[(8.0,)] == -inf
    assert found.axes["lr"] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]


def test_of_equal_points_one_inside_wins() -> None:
    found = search({"lr": [0.1, 0.2, 0.4]}, lambda point: float(point[0] < 0.3))
    assert found.best == (0.2,) and len(found.scores) == 3


@pytest.mark.parametrize(
    ("values", "up", "expected"),
    [
        ([0.01, 0.05, 0.1, 0.15], True, 0.225),
        ([0.01, 0.05, 0.1, 0.15], False, 0.002),
        ([0.1, 0.3], True, 0.9),
        ([-1.0, 0.0, 0.5], True, 1.0),
        ([0.0, 0.5], False, -0.5),
        ([1, 2], False, 0),
        ([4, 5], True, 6),
    ],
)
def test_steps(values: list[float], up: bool, expected: float) -> None:
    assert value_beyond(values, up) == expected and isinstance(value_beyond(values, up), type(values[0]))


def test_scores() -> None:
    rows = [{"clients": 2, "train_loss": 1.0, "client_accuracy": x} for x in (0.2, 0.6, 0.5)]
    assert (score(rows), score(rows, "last")) == (0.6, 0.5)
    assert str(score([*rows, {"clients": 0, "rejected": 2, "client_accuracy": 0.9}])) == "nan"
    assert score([*rows, {"clients": 0, "rejected": 0, "client_accuracy": 0.9}]) == 0.9, "nobody was available"
    assert str(score([*rows, {"clients": 1, "train_loss": inf, "client_accuracy": 0.9}])) == "nan"


def test_a_run_without_clients_has_not_diverged() -> None:
    assert not has_diverged([{"clients": 0, "rejected": 0}]) and has_diverged([{"clients": 0, "rejected": 2}])


def tuning(**changes: Any) -> Tuning:
    base = merge_settings(RUN, {"rounds": 1, **changes.pop("base", {})})
    return Tuning.build({"method": "fedavg", "grid": {"lr": [0.1, 1]}, "widenings": 1, "base": base, **changes})


@pytest.mark.quick
def test_tune_judges_on_held_out_examples_and_runs_nothing_twice(tmp_path: Path, started: list[str]) -> None:
    result = tune(tuning(), tmp_path)
    assert json.loads((tmp_path / "tune.json").read_text()) == result and result["holdout"] == 0.2
    names = {f"lr-{trial['lr']}" for trial in result["trials"]}
    assert {path.name for path in (tmp_path / "trials").iterdir()} == names and len(started) == len(names) == 3
    for trial in result["trials"]:
        rows = json.loads((tmp_path / f"trials/lr-{trial['lr']}/metrics.jsonl").read_text())
        assert trial["score"] == rows["client_accuracy"] and not trial["diverged"]
    assert result["score"] == max(trial["score"] for trial in result["trials"])
    choice = Config.read(tmp_path / "choice.toml")
    assert choice.local.lr == result["choice"]["lr"] and choice.holdout == 0 and choice.rounds == 1
    started.clear()
    assert tune(tuning(), tmp_path) == result and started == []


def test_the_score_of_a_point_is_the_mean_over_seeds(tmp_path: Path, started: list[str]) -> None:
    result = tune(tuning(seeds=[3, 5], widenings=0), tmp_path)
    assert result["seeds"] == [3, 5] and len(result["trials"]) == 2 and len(started) == 4
    for trial in result["trials"]:
        folders = [tmp_path / f"trials/lr-{trial['lr']}/seed-{seed}" for seed in (3, 5)]
        assert [Config.read(folder / "config.toml").seed for folder in folders] == [3, 5]
        rows = [json.loads((folder / "metrics.jsonl").read_text()) for folder in folders]
        assert trial["score"] == pytest.approx((rows[0]["client_accuracy"] + rows[1]["client_accuracy"]) / 2)
    assert Config.read(tmp_path / "choice.toml").seed == RUN.get("seed", 0), "the choice keeps the seed of the base"
    alone = tune(tuning(base={"seed": 5}, widenings=0), tmp_path / "alone")
    assert alone["seeds"] == [5]
    rows = json.loads((tmp_path / "trials/lr-1.0/seed-5/metrics.jsonl").read_text())
    assert alone["trials"][1]["score"] == rows["client_accuracy"], "each seed has its own partition"
    started.clear()
    assert tune(tuning(seeds=[3, 5], widenings=0), tmp_path) == result and started == []


def test_a_rate_that_explodes_is_no_crash(tmp_path: Path) -> None:
    wild = tuning(grid={"lr": [0.1, 1e5]}, widenings=0, base={"local": {"clip": 1e6, "batch_size": 10, "epochs": 2}})
    result = tune(wild, tmp_path)
    assert result["choice"] == {"lr": 0.1} and result["trials"][1]["diverged"] and result["trials"][1]["score"] is None
    with pytest.raises(RunError, match=r"every trial diverged, down to lr-100000\.0: begin with smaller values"):
        tune(tuning(grid={"lr": [1e5, 2e5]}, widenings=0, base=wild.base), tmp_path / "all")


def test_a_trial_that_nobody_took_part_in_is_an_error(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps([[[1, 3]]] * RUN["clients"]))
    idle = {"rounds": 10, "availability": f"file:{trace}", "output": {"max_idle": 3}}
    with pytest.raises(StalledError, match="no upload was accepted in the last 3 rounds"):
        tune(tuning(base=idle), tmp_path / "out")


def test_a_new_goal_scores_the_trials_that_are_there(tmp_path: Path, started: list[str]) -> None:
    first = tune(tuning(widenings=0), tmp_path)
    second = tune(tuning(widenings=0, base={"goal": "client_accuracy"}), tmp_path)
    by_loss = tune(tuning(widenings=0, base={"goal": "test_loss"}), tmp_path)
    assert len(started) == 2, "no trial is run again"
    rows = [json.loads((tmp_path / f"trials/lr-{lr}/metrics.jsonl").read_text()) for lr in (0.1, 1.0)]
    assert [trial["score"] for trial in by_loss["trials"]] == [row["test_loss"] for row in rows]
    assert [trial["score"] for trial in second["trials"]] == [trial["score"] for trial in first["trials"]]
    with pytest.raises(RunError, match="did not measure perplexity, by which its settings judge it now; set goal as"):
        tune(tuning(widenings=0, base={"goal": "perplexity", "metrics": ["perplexity"]}), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"lr": [0.1]}}, r"grid\.lr: needs two values at least to widen from, got \[0\.1\]"),
        ({"grid": {"a": [1, 2], "b": [1, 2]}}, "grid: takes lr and at most one argument of the method, got a, b"),
        (
            {"grid": {"lr": ["a", 0.1]}},
            r"grid\.lr: values must be a list of numbers, as in lr = .*, got \"\['a', 0.1\]\"",
        ),
        ({"grid": {"lr": 0.1}}, r"grid\.lr: values must be a list of numbers, as in lr = .*, got '0.1'"),
        ({"base": {"method": "fedavg"}}, r"base\.method: write it at the top"),
        ({"base": {"holdout": 0.05}}, "holdout: trials are scored on it: 0.1 at least, got 0.05"),
        ({"seeds": [1, 1]}, r"seeds: each once, got \[1, 1\]"),
        ({"by": "first"}, "by: .*'best', 'last' or 'late'"),
        ({"gird": {}}, "gird: unknown key; did you mean 'grid'"),
        ({"grid": {"nu": [1, 2]}}, "nu: unknown setting, and fedavg takes no arguments"),
    ],
)
def test_tuning_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tuning(**changes)


@pytest.mark.sweep(every=3)
def test_the_command_tune(tmp_path: Path) -> None:
    runner, out = CliRunner(), tmp_path / "out"
    (tmp_path / "base.toml").write_text(tomli_w.dumps(RUN))
    flags = ["-c", str(tmp_path / "base.toml"), "--rounds", "1", "--widenings", "0", "--out", str(out)]
    flags += ["--preset", "papers"]
    shown = runner.invoke(app, ["tune", "fedprox", "--grid", "lr=0.1,0.2", "--grid", "mu=0.01,0.1", *flags])
    assert shown.exit_code == 0, shown.output
    assert "holdout was 0: 20% of every client's examples were held out" in shown.stdout
    assert f"Next: undrift run --config {out / 'choice.toml'}" in shown.stdout and "mu 0.01" in shown.stdout
    assert re.search(r"^always '.+' has accuracy \d+\.\d\d% on the test set$", shown.stdout, re.MULTILINE)
    assert Config.read(out / "choice.toml").local.weight_decay == Local.preset("papers").weight_decay
    file = {"method": "fedprox", "grid": {"lr": [0.1, 0.2], "mu": [0.01, 0.1]}, "widenings": 0}
    (tmp_path / "tune.toml").write_text(
        tomli_w.dumps({**file, "base": {**RUN, "rounds": 1, "local": {**RUN["local"], "preset": "papers"}}})
    )
    again = runner.invoke(app, ["tune", str(tmp_path / "tune.toml"), "--out", str(out), "--json"])
    assert again.exit_code == 0 and len(json.loads(again.stdout)["trials"]) == 4
    two = ["--seed", "1", "--seed", "2", "--out", str(tmp_path / "two"), "--json"]
    several = runner.invoke(app, ["tune", "fedprox", "--grid", "lr=0.1,0.2", *flags[:-4], *two])
    assert several.exit_code == 0 and json.loads(several.stdout)["seeds"] == [1, 2]
    (tmp_path / "tune.toml").write_text(
        tomli_w.dumps({"method": "fedavg", "grid": {"lr": [0.1, 0.2]}, "seeds": [3, 4], "widenings": 0, "base": RUN})
    )
    one = ["tune", str(tmp_path / "tune.toml"), "--rounds", "1", "--seed", "1", "--out", str(tmp_path / "1"), "--json"]
    assert json.loads(runner.invoke(app, one).stdout)["seeds"] == [1], "one --seed replaces the seeds of the file"
    wrong = runner.invoke(app, ["tune", "fedprox", "--grid", "lr"])
    assert wrong.exit_code == 2 and "--grid lr: write NAME=V1,V2,..." in wrong.stderr
