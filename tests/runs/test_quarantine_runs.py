"""Quarantine in a run: its events in the audit log, and a resumed run that leaves out the same clients."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from undrift import TensorTask
from undrift.runs import resume, start
from undrift.runs.folder.audit import past_rejections
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError

RULE = {"after": 2, "rounds": 2}


def task() -> TensorTask:
    """Six clients; the data of client 2 are so large that its displacement exceeds the bound."""
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 3, generator=draw)
    inputs[20:30] *= 50
    return TensorTask(lambda: torch.nn.Linear(3, 2), inputs, torch.arange(60) % 2, list(torch.arange(60).split(10)))


def run(folder: Path, rounds: int, **settings: Any) -> Any:
    local = {"lr": 0.1, "batch_size": 10}
    given = {"method": "scaffold", "rounds": rounds, "cohort": 6, "local": local, "bound": 2.0, **settings}
    return start(task=task(), folder=folder, **given)


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, (folder / "audit.jsonl").read_text().splitlines())
    return [event for event in found if event["event"] == kind]


def test_a_resumed_run_leaves_out_the_same_clients(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", 9, quarantine=RULE)
    run(tmp_path / "parts", 3, quarantine=RULE)  # ends in the middle of the quarantine
    resume(tmp_path / "parts", task=task(), rounds=5)
    again = resume(tmp_path / "parts", task=task(), rounds=9)
    assert again.summary["sha256"] == whole.summary["sha256"]
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        result = [(e["round"], e["client"], e["until"]) for e in events(folder, "quarantine")]
        assert result == [(2, 2, 5), (6, 2, 11)]  # the second time twice as long
        assert all("exceeds the bound" in e["reason"] for e in events(folder, "quarantine"))
        absent = [(e["round"], e["client"]) for e in events(folder, "absent")]
        assert absent == [(round, 2) for round in (3, 4, 7, 8, 9)]
        assert events(folder, "absent")[0]["detail"].startswith("quarantined until round 5: ")
        assert [e["round"] for e in events(folder, "reject")] == [1, 2, 5, 6]


def test_without_quarantine_a_run_has_the_identity_it_always_had(tmp_path: Path) -> None:
    assert Config().identity() == Config.build({"quarantine": None}).identity()
    assert Config().identity() != Config.build({"quarantine": {}}).identity()
    quarantine = Config.build({"quarantine": {}}).quarantine
    assert quarantine is not None and quarantine.after == 3
    assert Config.build({"quarantine": RULE}).toml().count("[quarantine]") == 1


@pytest.mark.parametrize("wrong", [{"after": 0}, {"after": True}, {"rounds": "3"}, {"until": 3}])
def test_settings_that_cannot_work_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"quarantine.{next(iter(wrong))}"):
        Config.build({"quarantine": wrong})


def test_a_repeated_round_counts_as_it_was_the_last_time(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    assert list(past_rejections(log)) == []
    lines = [
        {"event": "begin", "round": 0},
        {"event": "reject", "round": 1, "client": 4, "reason": "SIZE"},
        {"event": "reject", "round": 2, "client": 5, "reason": "SIZE"},
        {"event": "resume", "round": 1},
        {"event": "reject", "round": 2, "client": 6, "reason": "TREE"},
    ]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(past_rejections(log)) == [(0, 4, "SIZE"), (1, 6, "TREE")]
