"""Events are copied to a file and to syslog, and a copy shows that the whole folder was put back."""

import json
import logging
import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.audit import write_keys
from support.own_tasks import SETTINGS, lines
from undrift.cli import app
from undrift.runs import resume, start, verify
from undrift.runs.folder.audit import Audit, read_log
from undrift.runs.folder.audit_copy import COPY, AuditCopy, read_copy


def test_every_event_is_copied_with_its_hash_and_signature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_keys(tmp_path / "key")
    monkeypatch.setenv("UNDRIFT_AUDIT_KEY", str(tmp_path / "key"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        monkeypatch.setenv(COPY, f"{tmp_path / 'copy.jsonl'}, syslog:127.0.0.1:{server.getsockname()[1]}")
        audit = Audit(tmp_path / "audit.jsonl")
        audit.write("start", config="x")
        audit = Audit(tmp_path / "audit.jsonl")  # as a resumed run opens it
        audit.write("commit", round=1)
        received = [server.recv(65536) for _ in range(2)]
    log = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert "signature" in log[0] and read_copy(tmp_path / "copy.jsonl", log[0]["hash"]) == log
    assert read_copy(tmp_path / "copy.jsonl", "0" * 64) == []
    for text, event in zip(received, log, strict=True):
        priority, _, line = text.rstrip(b"\0").decode().partition("undrift: ")
        assert priority == "<14>" and json.loads(line) == {"log": log[0]["hash"][:16], **event}


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("{}/missing/copy.jsonl", "No such file"),
        ("syslog:{}/no-socket", "No such file"),
        ("syslog:a b:x", "'a b:x' is no address; write syslog:/dev/log or syslog:host:514"),
    ],
)
def test_a_place_that_fails_is_warned_about_once(
    place: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(COPY, place.format(tmp_path))
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    audit = Audit(tmp_path / "audit.jsonl")
    for round in range(3):
        audit.write("commit", round=round)
    assert len(read_log(tmp_path / "audit.jsonl").hashes) == 3
    assert caplog.text.count("has no copy of the audit log") == 1 and why in caplog.text
    assert not AuditCopy("").places


def test_a_copy_shows_that_the_folder_was_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole folder is replaced by one of two rounds before, and trained on: only the copy knows."""
    copy, task = tmp_path / "copy.jsonl", lines(name="lines")
    monkeypatch.setenv(COPY, str(copy))
    run = tmp_path / "run"
    start(task=task, folder=run, **{**SETTINGS, "method": "scaffold", "rounds": 2})
    shutil.copytree(run, tmp_path / "before")
    resume(run, task=task, rounds=4)
    assert verify(run, copy).intact, verify(run, copy).problems
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "before", run)
    assert verify(run).intact
    (problem,) = verify(run, copy).problems
    assert "does not contain the event" in problem
    done = CliRunner().invoke(app, ["verify", str(run), "--anchor", str(copy)])
    assert done.exit_code == 1 and "does not contain the event" in " ".join(done.output.split())
    monkeypatch.delenv(COPY)
    start(task=task, folder=tmp_path / "other", **{**SETTINGS, "method": "scaffold", "rounds": 2})
    (problem,) = verify(tmp_path / "other", copy).problems
    assert "no event of" in problem and "the log was replaced, or is of another run" in problem
