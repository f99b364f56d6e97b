"""Whole runs on toys: the same bits on one and two workers and after a resume, folders that move, refusals."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.core.local.settings import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.audit import read_log
from undrift.runs.folder.files import RunError, RunFolder
from undrift.runs.folder.judge import rounds_to

pytestmark = pytest.mark.usefixtures("tiny")


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "rounds": 4, **changes})


@pytest.mark.quick
def test_a_run_explains_itself(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    seen: list[dict[str, Any]] = []
    outcome = start(settings(target=0.1, output={"track": ["tensorboard"]}), tmp_path / "run", seen.append)
    names = {path.name for path in outcome.folder.iterdir()}
    assert names >= {
        "config.toml", "environment.json", "partition.json", "metrics.jsonl", "metrics.parquet", "audit.jsonl",
        "checkpoints", "model.safetensors", "summary.json", "clients.json", "tensorboard",
    }  # fmt: skip
    assert [row["round"] for row in seen] == [1, 2, 3, 4]
    assert set(seen[0]) >= {
        "accuracy", "test_loss", "client_accuracy", "client_worst_tenth", "drift", "seconds", "bytes_up", "bytes_down",
        "train_loss", "gradients", "lr", "clients", "rejected",
    }  # fmt: skip
    result = json.loads((outcome.folder / "summary.json").read_text())
    assert result["rounds_to_target"] == rounds_to(seen, 0.1) and result["best_accuracy"] >= result["accuracy"] > 0.1
    assert result["bytes_up"] == 4 * 4 * 4 * result["parameters"]  # 4 rounds of 4 clients, 4 bytes a number
    assert len(read_log(outcome.folder / "audit.jsonl").hashes) == 3 + 4  # start, begin, four commits, end
    everything = "".join(p.read_text(errors="ignore") for p in outcome.folder.glob("*.*") if p.suffix != ".parquet")
    assert str(tmp_path) not in everything


def test_the_model_can_be_loaded(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    from undrift.models import build

    outcome = start(settings(rounds=1), tmp_path / "run")
    model = build("small-cnn", classes=10, channels=1, image=28)
    model.load_state_dict(load_file(outcome.folder / "model.safetensors"))


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("method", ["scaffold", "fedfft-d"])
def test_one_hash_whatever_happens(method: str, tmp_path: Path) -> None:
    """In one go; stopped, moved and resumed; with more rounds later; with rarer checkpoints."""
    whole = start(settings(method=method), tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise StopError

    with pytest.raises(StopError):
        start(settings(method=method, output={"checkpoint_every": 3}), tmp_path / "there", stop)
    shutil.move(tmp_path / "there", tmp_path / "here")
    moved = resume(tmp_path / "here")
    short = start(settings(method=method, rounds=2), tmp_path / "short")
    longer = resume(tmp_path / "short", rounds=4)
    assert short.sha256 != whole.sha256
    assert {whole.sha256, moved.sha256, longer.sha256, resume(tmp_path / "whole").sha256} == {whole.sha256}
    rows = [json.loads(line) for line in (tmp_path / "here" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]


@pytest.mark.sweep(every=4)
def test_damage_is_noted_and_survived(tmp_path: Path) -> None:
    whole = start(settings(method="feddyn"), tmp_path / "whole")
    broken = start(settings(method="feddyn", rounds=3), tmp_path / "broken").folder
    path = broken / "checkpoints" / "0000003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert resume(broken, rounds=4).sha256 == whole.sha256
    assert "0000003.safetensors: damaged" in (broken / "audit.jsonl").read_text()


def test_what_cannot_go_on_is_refused(tmp_path: Path) -> None:
    outcome = start(settings(rounds=1), tmp_path / "run")
    with pytest.raises(RunError, match="exists: name another folder"):
        start(settings(rounds=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"is not a run: it has no config.toml"):
        resume(tmp_path)
    with RunFolder.open(outcome.folder), pytest.raises(RunError, match="another process is running it"):
        resume(outcome.folder, rounds=2)
    result = json.loads((outcome.folder / "partition.json").read_text())
    (outcome.folder / "partition.json").write_text(json.dumps({**result, "sha256": "0" * 64}))
    with pytest.raises(RunError, match="differ from those the run was started with"):
        resume(outcome.folder, rounds=2)
    os.symlink(tmp_path / "elsewhere", tmp_path / "link")
    with pytest.raises(RunError, match="exists"):
        start(settings(rounds=1), tmp_path / "link")
    with pytest.raises(ConfigError, match="reads text data and these are image data; try 'small-cnn'"):
        start(settings(model="lstm"), tmp_path / "other")


def test_personal_models_are_measured(tmp_path: Path) -> None:
    from undrift.blocks import Private
    from undrift.runs.setup.prepare import prepare

    ready = prepare(settings(holdout=0.3))
    from dataclasses import replace

    private = replace(ready.algorithm, personalization=Private(("head.*",)))
    outcome = start(ready.config, tmp_path / "run", setup=replace(ready, algorithm=private))
    assert 0 < outcome.summary["personal_accuracy"] <= 1
    assert outcome.summary["bytes_up"] < 4 * 4 * 4 * outcome.summary["parameters"]


# The command line


def run_cli(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.quick
def test_run_and_resume_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = ["--clients", "8", "--cohort", "4", "--rounds", "2", "--partition", "dirichlet:1", "--batch-size", "10"]
    flags += ["--preset", "papers", "--epochs", "1", "--precision", "bf16"]
    done = run_cli("run", "fedsam", *flags, "--set", "rho=0.02", "--set", "local.decay=1", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "accuracy" in done.output and "sha256" in done.output
    assert Config.read(out / "config.toml").arguments == {"rho": 0.02}
    changed = {"decay": 1.0, "batch_size": 10, "epochs": 1, "precision": "bf16"}
    assert Config.read(out / "config.toml").local == Local.preset("papers", **changed)
    again = run_cli("resume", str(out), "--rounds", "3")
    assert again.exit_code == 0 and "3 rounds" in again.output
    refused = run_cli("run", "fedsam", *flags, "--out", str(out))
    assert refused.exit_code == 2 and "exists" in refused.output
    for arguments, message in (
        (["run", "fedsom"], "no algorithm is named 'fedsom'; did you mean"),
        (["run", "--set", "rho"], "write KEY=VALUE"),
        (["run", "--precision", "fp8"], "local.precision"),
        (["tune", "fedavg", "--grid", "lr=0.1,0.2", "--precision", "fp8"], "local.precision"),
        (["run", "--data", "fashion-mnits"], "did you mean"),
        (["resume", str(tmp_path)], "is not a run"),
        (["run", "--config", str(tmp_path / "none.toml")], "cannot be read"),
    ):
        failed = run_cli(*arguments)
        assert failed.exit_code == 2 and message in failed.output, failed.output


def test_a_file_and_flags_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(settings(rounds=1, seed=5).toml())
    done = run_cli("run", "scaffold", "--config", "run.toml", "--seed", "6")
    assert done.exit_code == 0, done.output
    found = Config.read(tmp_path / "runs" / "scaffold-fashion-mnist-seed6" / "config.toml")
    assert (found.method, found.seed, found.rounds) == ("scaffold", 6, 1)


def test_an_error_names_the_command_once() -> None:
    wrong = run_cli("run", "fedavgg")
    assert wrong.exit_code == 2
    assert wrong.stderr == "undrift run: no algorithm is named 'fedavgg'; did you mean 'fedavg'?\n"


def test_several_targets(tmp_path: Path) -> None:
    given = ["--target", "0.05", "--target", "1", "--rounds", "1", "--out", str(tmp_path / "run")]
    (tmp_path / "run.toml").write_text(settings().toml())
    shown = run_cli("run", "--config", str(tmp_path / "run.toml"), *given)
    assert shown.exit_code == 0, shown.stderr
    assert "target 5.00%: in round 1\ntarget 100.00%: not reached\n" in shown.stdout
    result = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert result["target"] == [0.05, 1.0] and result["rounds_to_target"] == [1, None]
    assert Config.read(tmp_path / "run" / "config.toml").target == (0.05, 1.0)


@pytest.mark.quick
def test_partition_and_doctor(tmp_path: Path) -> None:
    picture = tmp_path / "split.png"
    done = run_cli("partition", "--partition", "classes:2", "--clients", "10", "--out", str(picture))
    assert done.exit_code == 0 and picture.stat().st_size > 5000, done.output
    result = run_cli("doctor")
    assert result.exit_code == 0 and "fashion-mnist" in result.output and "engines: local" in result.output


def test_the_servers_examples_are_balanced_and_nobody_elses(tmp_path: Path) -> None:
    from undrift.runs.setup.prepare import prepare

    task = prepare(settings(proxy=35)).data_task
    targets = torch.cat([y for _, y in task.proxy()])
    assert len(targets) == 35 and set(torch.bincount(targets).tolist()) == {3, 4}
    owned = torch.cat([task.training(client) for client in range(task.population)])
    assert task.reserved is not None
    assert len(owned) == 600 - 35 and not set(owned.tolist()) & set(task.reserved.tolist())
    with pytest.raises(ValueError, match="no examples are reserved for the server"):
        prepare(settings()).data_task.proxy()
    with pytest.raises(
        ConfigError, match="proxy: 5000 examples at the server leave none for clients; set a smaller one"
    ):
        prepare(settings(proxy=5000))


def test_fewer_proxy_examples_than_asked_for_are_told(caplog: pytest.LogCaptureFixture) -> None:
    from undrift.runs.setup.prepare import prepare

    pytest.importorskip("sklearn")
    short = "proxy: 1429 examples, not 1437: some classes have fewer than their share"
    for count, told in ((100, []), (1437, [short])):
        caplog.clear()
        prepare(settings(data="digits", model=None, proxy=count))
        assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == told


def test_fewer_rounds_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "run"
    start(settings(), out)
    (out / "summary.json").unlink()  # it was killed before its result was written
    with pytest.raises(RunError, match="has 4 rounds already, 2 cannot take any back; give 4 or more"):
        resume(out, rounds=2)
    with pytest.raises(ConfigError, match="rounds"):
        resume(out, rounds=0)
    assert Config.read(out / "config.toml").rounds == 4 and resume(out).summary["rounds"] == 4


def test_a_metric_that_does_not_fit_is_named_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics: the first evaluation failed .*; do the metrics mae fit"):
        start(settings(metrics=["mae"]), tmp_path / "run")
    inputs, labels = torch.randn(12, 3), torch.arange(12) % 2

    def wrong(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return outputs - targets[:5]

    halves = [torch.arange(6), torch.arange(6, 12)]
    task = TensorTask(partial(torch.nn.Linear, 3, 2), inputs, labels, halves, test=(inputs, labels), metrics=[wrong])
    with pytest.raises(ConfigError, match="do the metrics wrong fit"):
        start(folder=tmp_path / "own", task=task, rounds=1)
