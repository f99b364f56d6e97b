"""Runs with a schedule: settings, resume in the middle of a buffer, columns."""

import json
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import Local, TensorTask
from undrift.cli import app
from undrift.core.client.visit import ClientError
from undrift.engine.worker.worker import Worker
from undrift.runs import Config, Outcome, replay, resume, start, verify
from undrift.runs.folder.files import RunError
from undrift.runs.settings.schema import ConfigError
from undrift.util.storage.metrics import Metrics

SETTINGS: dict[str, Any] = {**RUN, "method": "scaffold", "rounds": 5, "durations": "log-normal(1, sd=1.5)"}


def test_settings_of_a_schedule() -> None:
    plain = Config.build(RUN)
    one = Config.build({**RUN, "schedule": "buffered(3)"})
    other = Config.build({**RUN, "schedule": {"name": "buffered", "size": 3}})
    assert one.schedule == other.schedule == "buffered(size=3)" and one.identity() == other.identity()
    assert one.identity() != plain.identity() != Config.build({**RUN, "durations": 2}).identity()
    assert one.algorithm().schedule.enough(1) == 3
    assert Config.build({**RUN, "durations": [1, 2.5]}).durations == (1.0, 2.5)
    for bad, message in (
        ({"schedule": "buffered(0)"}, "schedule: .*size"),
        ({"schedule": {"size": 3}}, 'schedule: write name = "buffered"'),
        ({"schedule": "sam"}, "schedule"),
        ({"durations": "gamma(2)"}, "durations: no distribution is named 'gamma'"),
        ({"durations": -1}, "durations must be a positive number"),
        ({"method": "scaffnew", "schedule": "buffered"}, "use drift:scaffold"),
    ):
        with pytest.raises(ConfigError, match=message):
            Config.build({**RUN, **bad})


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
def test_a_run_that_is_stopped_in_the_middle_of_a_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.build({**SETTINGS, "schedule": "buffered(3)"})
    whole = start(config, tmp_path / "whole")
    served, serve = 0, Worker.serve

    def stop(self: Worker, *arguments: Any) -> Any:
        nonlocal served
        served += 1
        if served == 8:
            raise KeyboardInterrupt
        return serve(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "serve", stop)
        with pytest.raises(KeyboardInterrupt):
            start(config, tmp_path / "stopped")
    again = resume(tmp_path / "stopped")
    assert again.sha256 == whole.sha256
    assert again.summary["virtual_seconds"] > 0


@pytest.mark.usefixtures("tiny")
def test_a_synchronous_run_has_virtual_time(tmp_path: Path) -> None:
    timed = start(Config.build({**SETTINGS, "rounds": 2}), tmp_path / "timed")
    plain = start(Config.build({**SETTINGS, "rounds": 2, "durations": None}), tmp_path / "plain")
    assert timed.summary["accuracy"] == plain.summary["accuracy"]
    assert timed.summary["virtual_seconds"] > 0 and "virtual_seconds" not in plain.summary


def network() -> nn.Module:
    """A network with one hidden layer."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def small_task() -> TensorTask:
    """Six clients with twelve points each."""
    inputs = torch.randn(72, 6, generator=torch.Generator().manual_seed(0))
    return TensorTask(network, inputs, inputs[:, :3].argmax(dim=1), list(torch.arange(72).split(12)))


def begin(folder: Path, schedule: str | None = "buffered(3)", method: str = "scaffold", cohort: int = 4) -> Outcome:
    """A run of five steps."""
    return start(
        task=small_task(),
        folder=folder,
        method=method,
        rounds=5,
        cohort=cohort,
        local=Local(lr=0.05, batch_size=4),
        durations="log-normal(1, sd=1.5)",
        **({} if schedule is None else {"schedule": schedule}),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("schedule", ["buffered(3)", "over-selected(1.5)", "asynchronous", None])
def test_a_run_is_replayed_from_its_arrivals(tmp_path: Path, schedule: str | None) -> None:
    whole = begin(tmp_path / "run", schedule)
    rows = Metrics(tmp_path / "run" / "arrivals.jsonl").rows()
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(one["age"] >= 0 and one["begun"] < one["end"] for row in rows for one in row["arrivals"])
    found = replay(tmp_path / "run", task=small_task())
    assert found.same and found.sha256 == whole.sha256 and found.steps == 5
    assert found.uploads == sum(one["result"] == "accepted" for row in rows for one in row["arrivals"])
    checked = verify(tmp_path / "run")
    assert checked.intact and checked.steps == 5


def test_replay_on_the_command_line(tmp_path: Path) -> None:
    folder, task = tmp_path / "run", "undrift.testing.projected:blobs"
    whole = start(task=task, folder=folder, method="fedbuff(2)", rounds=2, cohort=3)
    result = CliRunner().invoke(app, ["replay", str(folder)])
    assert result.exit_code == 0 and f"2 steps, 4 uploads  sha256 {whole.sha256[:16]}" in result.stdout, result.output
    text = (folder / "arrivals.jsonl").read_text()
    (folder / "arrivals.jsonl").write_text(text.replace('"sha256": "', '"sha256": "0'))
    result = CliRunner().invoke(app, ["replay", str(folder), "--json"])
    assert result.exit_code == 1 and json.loads(result.stdout)["differs"] == 1
    result = CliRunner().invoke(app, ["replay", str(folder), "--workers", "2"])
    assert result.exit_code == 2 and "the local engine has one" in result.output


def test_a_trace_that_was_changed_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(folder)
    before = (folder / "arrivals.jsonl").read_text().splitlines()
    row = json.loads(before[2])
    row["arrivals"].pop()
    (folder / "arrivals.jsonl").write_text("\n".join([*before[:2], json.dumps(row), *before[3:]]) + "\n")
    assert "arrivals.jsonl: steps are missing that audit.jsonl has committed" in verify(folder).problems[0]
    assert replay(folder / "arrivals.jsonl", task=small_task()).differs == 3
    (folder / "arrivals.jsonl").unlink()
    assert not verify(folder).intact
    with pytest.raises(RunError, match="no trace of arrivals"):
        replay(folder)


def test_a_failed_task_is_not_trained_in_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, calls = Worker._train, 0

    def fail(self: Worker, *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls % 4 == 1:
            raise ClientError("the disk of the client is full")
        return train(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_train", fail)
        whole = begin(tmp_path / "run", "buffered(4)", cohort=5)
    rows = Metrics(tmp_path / "run" / "arrivals.jsonl").rows()
    assert sum(one["result"] == "failed" for row in rows for one in row["arrivals"]) == 5
    assert replay(tmp_path / "run", task=small_task()).sha256 == whole.sha256


@pytest.mark.sweep(every=4)
def test_stops_at_random_moments_end_with_the_same_hash_and_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, random, serve = begin(tmp_path / "whole"), Random(0), Worker.serve
    trace = (tmp_path / "whole" / "arrivals.jsonl").read_bytes()
    for number in range(10):
        folder, left, stops = tmp_path / str(number), random.randrange(1, 12), 0

        def stop(self: Worker, *arguments: Any) -> Any:
            nonlocal left, stops
            left -= 1
            if left == 0:
                left, stops = random.randrange(3, 12), stops + 1
                raise KeyboardInterrupt
            return serve(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Worker, "serve", stop)
            ended = None
            while ended is None:
                with suppress(KeyboardInterrupt):
                    there = (folder / "config.toml").is_file()
                    ended = resume(folder, task=small_task()) if there else begin(folder)
        assert stops and ended.sha256 == whole.sha256 and (folder / "arrivals.jsonl").read_bytes() == trace
