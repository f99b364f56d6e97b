"""One numbering of rounds: from 1, the number of completed rounds, in everything that is written or printed."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.audit import chained, earlier
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.cli.training.run import settings as settings_of
from undrift.runs import Config, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.loop.stall import StalledError, idle_rounds, stall_error
from undrift.studies import Comparison, compare
from undrift.studies.tune import Tuning, tune
from undrift.util.storage.metrics import Metrics, read_rows

pytestmark = pytest.mark.usefixtures("tiny")
LENS = {"lens_every": 2, "lens": ["spectrum"], "lens_clients": 2}


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "rounds": 4, **changes})


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def older(folder: Path) -> None:
    """Turn the files of a run into those of a version that counted rounds from 0."""
    for name in ("metrics.jsonl", "lens.jsonl"):
        path = folder / name
        before = [{**row, "round": row["round"] - 1} for row in rows(path)]
        path.write_text("".join(json.dumps(row) + "\n" for row in before))


@pytest.mark.quick
def test_every_file_counts_from_one(tmp_path: Path) -> None:
    outcome = start(settings(target=0.01, output={**LENS, "keep_best": True}), tmp_path / "run")
    folder, summary = outcome.folder, outcome.summary
    metrics = rows(folder / "metrics.jsonl")
    assert [row["round"] for row in metrics] == [1, 2, 3, 4]
    assert [row["round"] for row in rows(folder / "lens.jsonl")] == [2, 4]
    audit = rows(folder / "audit.jsonl")
    assert [event["round"] for event in audit if event["event"] == "commit"] == [1, 2, 3, 4]
    assert sorted(path.stem for path in (folder / "checkpoints").glob("*.json")) == ["0000003", "0000004"]
    top = max(metrics, key=lambda row: row["accuracy"])["round"]
    assert summary["rounds"] == 4 and summary["rounds_to_target"] == 1 and summary["best_round"] == top
    assert [path.stem for path in (folder / "best").glob("*.json")] == [f"{top:07d}"]
    assert [event["round"] for event in audit if event["event"] == "best"][-1] == top


@pytest.mark.sweep(every=4)
def test_a_run_that_counted_from_zero_is_read_and_resumed(tmp_path: Path) -> None:
    whole = start(settings(output=LENS), tmp_path / "whole")
    old = start(settings(rounds=3, output=LENS), tmp_path / "old").folder
    older(old)
    chained(old, earlier(old))
    assert [row["round"] for row in Metrics(old / "metrics.jsonl").rows()] == [1, 2, 3]
    assert [row["round"] for row in Metrics(old / "lens.jsonl").rows()] == [2]
    assert resume(old, rounds=4).sha256 == whole.sha256
    assert [row["round"] for row in rows(old / "metrics.jsonl")] == [1, 2, 3, 4]
    assert [row["round"] for row in rows(old / "lens.jsonl")] == [2, 4]


@pytest.mark.quick
def test_a_run_of_which_every_upload_is_rejected_ends_with_an_error(tmp_path: Path) -> None:
    config = settings(rounds=9, bound=1e-9, output={"max_idle": 3})
    with pytest.raises(StalledError, match=r"no upload was accepted in the last 3 rounds \(\w+\), so the model does"):
        start(config, tmp_path / "run")
    assert [row["clients"] for row in rows(tmp_path / "run" / "metrics.jsonl")] == [0, 0, 0]
    with pytest.raises(RunError, match="in the last 3 rounds"):  # it is tried again, from where it stopped
        resume(tmp_path / "run")
    assert len(rows(tmp_path / "run" / "metrics.jsonl")) == 6
    assert config.identity() == settings(rounds=9, bound=1e-9).identity()


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("no client replied", "change: check availability, probability and quarantine; audit.jsonl has"),
        ("empty", "change: the clients have no examples: check data, partition and proxy; audit.jsonl has"),
        ("idle", "change: the clients make no step: check local.epochs, local.steps"),
        ("finite", "change: try a smaller local.lr or set local.clip; audit.jsonl has"),
        ("failed", "change: audit.jsonl has the reason of every client"),
    ],
)
def test_the_advice_fits_the_reason(reason: str, advice: str, tmp_path: Path) -> None:
    text = str(stall_error(tmp_path, [reason], 3))
    assert f"({reason})" in text and advice in text


def test_a_stop_does_not_reset_the_idle_rounds(tmp_path: Path) -> None:
    values = {**RUN, "rounds": 9, "bound": 1e-9, "output": {"max_idle": 3}}

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(Config.build(values), tmp_path / "run", stop)
    assert idle_rounds(read_rows(tmp_path / "run")) == 2
    with pytest.raises(StalledError, match="in the last 3 rounds"):
        start(folder=tmp_path / "run", resume=True, **values)
    assert len(rows(tmp_path / "run" / "metrics.jsonl")) == 3


def test_a_comparison_that_stalled_fails_again_and_one_with_idle_rounds_says_so(tmp_path: Path) -> None:
    def comparison(max_idle: int) -> Comparison:
        base = {**RUN, "method": "fedavg", "rounds": 4, "bound": 1e-9, "output": {"max_idle": max_idle}}
        del base["method"]
        return Comparison.build({"methods": [{"method": "fedavg"}], "seeds": [0], "base": base})

    for _ in range(2):
        (failure,) = compare(comparison(2), tmp_path / "stalled")["failures"]
        assert "no upload was accepted in the last 2 rounds" in failure["error"]
    assert not compare(comparison(5), tmp_path / "idle")["failures"]
    text = (tmp_path / "idle" / "table.md").read_text()
    assert "fedavg: no upload was accepted in 4 of 4 rounds (seed 0)." in text


def test_a_trial_that_stalls_has_diverged(tmp_path: Path) -> None:
    base = {**RUN, "rounds": 4, "bound": 1e-9, "output": {"max_idle": 2}}
    tuning = Tuning.build({"method": "fedavg", "grid": {"lr": [0.1, 0.2]}, "widenings": 0, "base": base})
    with pytest.raises(RunError, match="every trial diverged"):
        tune(tuning, tmp_path)


# The command line


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def test_settings_without_a_table_and_json(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(settings(rounds=1).toml())
    flags = ["--config", str(tmp_path / "run.toml"), "--out", str(tmp_path / "run"), "--json"]
    done = run("run", "fedprox", *flags, "--set", "clients=6", "--set", "cohort=2", "--set", "arguments.mu=0.5")
    assert done.exit_code == 0, done.output
    found, summary = Config.read(tmp_path / "run" / "config.toml"), json.loads(done.stdout)
    assert (found.clients, found.cohort, found.arguments) == (6, 2, {"mu": 0.5})
    assert summary["folder"] == str(tmp_path / "run") and summary["rounds"] == 1 and len(summary["sha256"]) == 64
    finished = run("resume", str(tmp_path / "run"), "--json")
    assert finished.exit_code == 0 and json.loads(finished.stdout) == summary
    said = (
        f"{tmp_path / 'run'} is finished: all 1 rounds are done; for more: undrift resume {tmp_path / 'run'} --rounds 2"
    )
    assert said in finished.stderr
    more = run("resume", str(tmp_path / "run"), "--rounds", "2", "--json")
    assert json.loads(more.stdout)["rounds"] == 2 and "is finished" not in more.stderr


def test_a_name_and_its_arguments_can_both_be_set() -> None:
    expected = {"model": {"name": "vit-tiny", "patch": 16}}
    assert settings_of(["model=vit-tiny", "model.patch=16"]) == expected
    assert settings_of(["rho=0.1", "arguments.clients=3", "clients=4"]) == {
        "arguments": {"rho": 0.1, "clients": 3},
        "clients": 4,
    }


def test_a_stalled_run_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(settings(bound=1e-9).toml())
    done = run(
        "run", "--config", str(tmp_path / "run.toml"), "--set", "output.max_idle=1", "--out", str(tmp_path / "x")
    )
    assert done.exit_code == 2 and "no upload was accepted in the last 1 rounds" in done.stderr.splitlines()[-1]


def test_partition_in_json(tmp_path: Path) -> None:
    done = run("partition", "--clients", "5", "--partition", "iid", "--out", str(tmp_path / "p.png"), "--json")
    result = json.loads(done.stdout)
    assert result["figure"] == str(tmp_path / "p.png") and (tmp_path / "p.png").is_file() and result["clients"] == 5
