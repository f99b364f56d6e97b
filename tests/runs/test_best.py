"""The best round is kept with its clients' states, in a run, over a resume and for the lens."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.engine.stores.store import copy_states
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.checkpoint import kept_rounds
from undrift.runs.folder.files import RunError
from undrift.runs.loop.metrics_row import Measure
from undrift.runs.reading.best_round import parse_round, resolve_round
from undrift.runs.reading.open_checkpoint import look, open_scene
from undrift.util.storage.metrics import Metrics

pytestmark = pytest.mark.usefixtures("tiny")

OUTPUT = {"keep_best": True, "keep": 1, "lens_every": 0}


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "rounds": 5, "output": OUTPUT, **changes})


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracies as measured, but the second round's is the best, and the third's is equal to it."""
    row = Measure.row

    def ranked(self: Measure, state: Any, *rest: Any) -> dict[str, Any]:
        scores = {1: 0.1, 2: 0.9, 3: 0.9}
        return {**row(self, state, *rest), self.judged_by: scores.get(state.round, 0.5)}

    monkeypatch.setattr(Measure, "row", ranked)


def files(folder: Path) -> dict[str, Any]:
    """The content of every file; of manifests without the hash of an event, which contains the time."""
    found: dict[str, Any] = {str(x.relative_to(folder)): x.read_bytes() for x in folder.rglob("*") if x.is_file()}
    for name in (name for name in found if name.endswith(".json")):
        found[name] = {key: x for key, x in json.loads(found[name]).items() if key not in ("log", "check")}
    return found


@pytest.mark.sweep(every=3)
@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedper"])
def test_the_best_round_is_kept_besides_the_last_ones(method: str, tmp_path: Path) -> None:
    whole = start(settings(method=method), tmp_path / "whole")
    assert kept_rounds(whole.folder / "checkpoints") == [5] and kept_rounds(whole.folder / "best") == [2]
    assert whole.summary["best_round"] == 2 == resolve_round(whole.folder, "best")
    assert (whole.folder / "best" / "clients-0000002").exists() == (method != "fedavg")
    plain = start(settings(method=method, output={**OUTPUT, "keep_best": False}), tmp_path / "plain")
    assert plain.sha256 == whole.sha256 and not (plain.folder / "best").exists()

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(settings(method=method), tmp_path / "cut", stop)
    assert resume(tmp_path / "cut").sha256 == whole.sha256
    assert files(tmp_path / "cut" / "best") == files(whole.folder / "best")


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("early")
def test_a_best_round_off_the_schedule_survives_a_rewind(tmp_path: Path) -> None:
    output = {**OUTPUT, "checkpoint_every": 4}
    whole = start(settings(method="scaffold", output=output), tmp_path / "whole")

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(settings(method="scaffold", output=output), tmp_path / "cut", stop)
    assert kept_rounds(tmp_path / "cut" / "checkpoints") == [] and kept_rounds(tmp_path / "cut" / "best") == [2]
    assert resume(tmp_path / "cut").sha256 == whole.sha256  # from the first round
    assert files(tmp_path / "cut" / "best") == files(whole.folder / "best")
    assert [row["round"] for row in Metrics(tmp_path / "cut" / "metrics.jsonl").rows()] == list(range(1, 6))


@pytest.mark.usefixtures("early")
def test_a_best_round_that_a_resumed_run_does_not_reach_is_deleted(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise KeyboardInterrupt

    run = settings(method="scaffold", output={**OUTPUT, "checkpoint_every": 4})
    with pytest.raises(KeyboardInterrupt):
        start(run, tmp_path / "run", stop)
    assert kept_rounds(tmp_path / "run" / "best") == [2]
    assert resume(tmp_path / "run", rounds=1).summary["best_round"] == 1
    assert {x.name for x in (tmp_path / "run" / "best").iterdir()} == {
        *("0000001.json", "0000001.safetensors", "clients-0000001")
    }


@pytest.mark.usefixtures("early")
@pytest.mark.sweep(every=2)
def test_the_lens_measures_clients_as_they_were(tmp_path: Path) -> None:
    """The states of the best round are those of a run that ended there."""
    long = start(settings(method="scaffold", cohort=8), tmp_path / "long").folder
    short = start(settings(method="scaffold", cohort=8, rounds=2), tmp_path / "short").folder
    best = look(long, parts=["divergence"], clients=3, round="best")
    assert best["round"] == 2 and (long / "lens" / "0000002.json").is_file() and not (long / "lens.json").exists()
    assert best["divergence"] == look(short, parts=["divergence"], clients=3)["divergence"]
    with open_scene(long, round=2) as scene, open_scene(short) as there:
        assert scene.updates.equal(there.updates)


def stopped(folder: Path, after: int, **changes: Any) -> Path:
    """A run that was stopped after a round."""

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(settings(**changes), folder, stop)
    return folder


def again(folder: Path, **changes: Any) -> dict[str, Any]:
    """The result of a run that goes on with other settings."""
    return start(folder=folder, resume=True, **{**RUN, "rounds": 5, "output": OUTPUT, **changes}).summary


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("early")
def test_a_best_round_from_before_it_was_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The state of the last checkpoint can be kept; for another the run warns, and nothing else is called the best."""
    off = {"output": {**OUTPUT, "keep_best": False}}
    folder = stopped(tmp_path / "now", 2, **off)
    assert again(folder)["best_round"] == 2 == resolve_round(folder, "best") and "was not kept" not in caplog.text
    folder = stopped(tmp_path / "late", 3, **off)
    assert again(folder)["best_round"] == 2 and kept_rounds(folder / "best") == [4]
    assert "the best round so far (2) was not kept; the best of the next rounds will be" in caplog.text
    with pytest.raises(
        RunError, match=r"its best round \(2\) was not kept, as keep_best .* later; round 4 was: --round 4"
    ):
        resolve_round(folder, "best")


def test_a_best_round_by_another_goal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, scores = Measure.row, {"accuracy": (0.1, 0.9, 0.2, 0.3, 0.4), "test_loss": (0.9, 0.8, 0.1, 0.5, 0.5)}

    def ranked(self: Measure, state: Any, *rest: Any) -> dict[str, Any]:
        return row(self, state, *rest) | {name: values[state.round - 1] for name, values in scores.items()}

    monkeypatch.setattr(Measure, "row", ranked)
    folder = stopped(tmp_path / "run", 4, goal="test_loss")
    assert kept_rounds(folder / "best") == [3] and resolve_round(folder, "best") == 3
    assert again(folder, goal="accuracy")["best_round"] == 2 and kept_rounds(folder / "best") == [5]
    assert "the best round so far (2) was not kept" in caplog.text
    with pytest.raises(RunError, match=r"its best round \(2\) was not kept, .*; round 5 was: --round 5"):
        resolve_round(folder, "best")


def test_the_commands(tmp_path: Path) -> None:
    run = start(settings(rounds=2), tmp_path / "run").folder
    cli = CliRunner()
    done = cli.invoke(app, ["lens", str(run), "--round", "best", "--parts", "divergence", "--clients", "3"])
    best = json.loads((run / "summary.json").read_text())["best_round"]
    assert done.exit_code == 0 and f"lens/{best:07d}.json" in done.stdout.replace("\n", "")
    plain = start(settings(rounds=1, output={"lens_every": 0}), tmp_path / "plain").folder
    failed = cli.invoke(app, ["lens", str(plain), "--round", "best"])
    assert failed.exit_code == 2 and "set output.keep_best = true" in failed.stderr
    with pytest.raises(RunError, match="best round was not kept"):
        resolve_round(plain, "best")
    with pytest.raises(ConfigError, match="--round last: write a number of rounds, or best"):
        parse_round("last")


def test_states_are_linked_or_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "states" / "1" / "1000").mkdir(parents=True)
    (tmp_path / "states" / "1" / "1000" / "4").write_bytes(b"state")
    accepted = {1000: 4, 7: 3}  # that of client 7 is lost
    copy_states(tmp_path / "states", accepted, tmp_path / "links")
    link = tmp_path / "links" / "1" / "1000" / "4"
    assert link.stat().st_nlink == 2

    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    copy_states(tmp_path / "states", accepted, tmp_path / "links")
    assert link.read_bytes() == b"state" and link.stat().st_nlink == 1
