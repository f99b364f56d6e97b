"""A run that is ended at a round it has already evaluates it first, and one that has ended can be judged again."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.runs import Config, resume, start
from undrift.runs.folder.checkpoint import kept_rounds
from undrift.runs.folder.files import RunError
from undrift.runs.folder.verify import verify
from undrift.runs.loop.commit import judge_again
from undrift.util.storage.metrics import Metrics

pytestmark = pytest.mark.usefixtures("tiny")

OUTPUT = {"evaluate_every": 3, "lens_every": 0, "keep_best": True}


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "rounds": 6, "output": OUTPUT, **changes})


def stopped(folder: Path, **changes: Any) -> Path:
    """A run that was stopped after its fourth round."""

    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(settings(**changes), folder, stop)
    return folder


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.endswith("seconds")}


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize(
    "changes", [{}, {"method": "fedper", "output": {**OUTPUT, "evaluate_every": 1, "personal_every": 0}}]
)
def test_the_result_is_that_of_a_run_of_so_many_rounds(changes: dict[str, Any], tmp_path: Path) -> None:
    folder, whole = stopped(tmp_path / "cut", **changes), start(settings(rounds=4, **changes), tmp_path / "whole")
    outcome = resume(folder, rounds=4)
    assert untimed(outcome.summary) == untimed(whole.summary) and outcome.summary["best_round"] in (3, 4)
    rows, expected = (Metrics(one / "metrics.jsonl").rows() for one in (folder, whole.folder))
    assert list(map(untimed, rows)) == list(map(untimed, expected)) and list(rows[-1]) == list(expected[-1])
    assert kept_rounds(folder / "best") == [outcome.summary["best_round"]]
    assert not verify(folder).problems
    longer = start(settings(**changes), tmp_path / "longer")
    assert resume(folder, rounds=6).sha256 == longer.sha256 and not verify(folder).problems


@pytest.mark.parametrize("written", [False, True])
def test_a_kill_around_the_new_row_is_survived(written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, amend = stopped(tmp_path / "run"), Metrics.amend

    def killed(self: Metrics, *given: Any) -> None:
        if written:
            amend(self, *given)
        else:
            given[1]({"bytes": 1, "sha256": "0" * 64})
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "amend", killed)
        with pytest.raises(KeyboardInterrupt):
            resume(folder, rounds=4)
    assert not verify(folder).problems
    assert "accuracy" in json.loads((resume(folder, rounds=4).folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert not verify(folder).problems
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text().replace('"accuracy": 0.', '"accuracy": 0.9'))
    assert "rows were changed" in verify(folder).problems[0]


def test_a_run_that_has_ended_is_judged_by_the_goal_and_target_of_the_call(tmp_path: Path) -> None:
    folder = start(settings(rounds=2, output={"lens_every": 0}), tmp_path / "run").folder
    before = (folder / "summary.json").read_bytes()
    rows = Metrics(folder / "metrics.jsonl").rows()

    def again(**changes: Any) -> dict[str, Any]:
        return start(folder=folder, resume=True, **{**RUN, "output": {"lens_every": 0}, **changes}).summary

    assert again() == again(goal="accuracy") == json.loads(before)
    assert again(target=(0.01, 1.0))["rounds_to_target"] == [1, None]
    losses = [row["test_loss"] for row in rows]
    new = again(goal="test_loss", target=max(losses))
    assert (new["judged_by"], new["direction"], new["best"]) == ("test_loss", "min", min(losses))
    assert "best_accuracy" not in new and new["target"] == max(losses) and new["sha256"] == json.loads(before)["sha256"]
    assert new["rounds_to_target"] == 1
    with pytest.raises(RunError, match="did not measure mae, by which its settings judge it now"):
        judge_again(folder, settings(goal="mae"))
    assert (folder / "summary.json").read_bytes() == before
