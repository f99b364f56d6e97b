"""S12: whatever is changed, cut, replaced or added in a run's folder is refused by name; what a crash leaves is not."""

import json
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch import nn
from typer.testing import CliRunner

from support.audit import chained, earlier, events, sealed, write_keys
from support.own_tasks import SETTINGS, Net, lines
from undrift import TensorTask
from undrift.cli import app
from undrift.cli.app import report_errors
from undrift.core.server import wire
from undrift.core.server.wire import stored_fingerprint
from undrift.runs import Verified, resume, start, verify
from undrift.runs.folder import audit
from undrift.runs.folder import files as folder
from undrift.runs.folder.audit import Audit, read_log
from undrift.runs.folder.checkpoint import read_manifest
from undrift.runs.folder.signature import AuditError
from undrift.runs.folder.verify import head_of
from undrift.util.storage.heads import HEADS, keep_head, read_heads

Change = Callable[[Path], object]
OUTPUT = {"keep_best": True}
KEY = "UNDRIFT_AUDIT_KEY"


def run(folder: Path, rounds: int = 4, **more: Any) -> Any:
    settings = {**SETTINGS, "method": "scaffold", "output": OUTPUT, "rounds": rounds}
    return start(task=lines(name="lines"), folder=folder, **settings, **more)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds."""
    return Path(run(tmp_path_factory.mktemp("ended") / "run").folder)


@pytest.fixture
def copy(ended: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ended, tmp_path / "run"))


# Tools of somebody who may write the folder


def forged(run: Path, round: int = 4, to: int | None = None, drop: bool = False) -> str:
    """Replace a checkpoint by one of another model, all hashes recomputed; gives the new state's fingerprint."""
    from safetensors.torch import load, save

    place, target = run / "checkpoints" / f"{round:07d}.json", round if to is None else to
    state = load(place.with_suffix(".safetensors").read_bytes()[40:])
    body = save(state | {"params": state["params"] + 1, "round": torch.tensor([target])})
    data = b"undrift1" + sha256(body).digest() + body
    manifest = read_manifest(place) | {"round": target, "bytes": len(data), "sha256": sha256(data).hexdigest()}
    if drop:
        del manifest["log"]
    (place.with_name(f"{target:07d}.safetensors")).write_bytes(data)
    sealed(place.with_name(f"{target:07d}.json"), manifest)
    return stored_fingerprint(data)


def cut(run: Path, last: int) -> None:
    chained(run, events(run)[:last])


def edited(run: Path, name: str, old: str, new: str) -> None:
    text = (run / name).read_text()
    assert old in text
    (run / name).write_text(text.replace(old, new, 1))


def renamed(run: Path, at: int, **facts: Any) -> None:
    """Change an event and recompute the hash of every line."""
    found = events(run)
    found[at] |= facts
    chained(run, found)


def unfinished(run: Path) -> None:
    for name in ("summary.json", "model.safetensors", "clients.json", "metrics.parquet"):
        (run / name).unlink()


def without_row(run: Path) -> None:
    kept = (run / "metrics.jsonl").read_text().splitlines(keepends=True)[:-1]
    (run / "metrics.jsonl").write_text("".join(kept))


def with_text(run: Path, text: str) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(text)


UNKNOWN = "audit.jsonl has no commit of this"
FORGERIES: dict[str, tuple[Change, str]] = {
    "an edited event": (lambda run: edited(run, "audit.jsonl", '"round": 2', '"round": 7'), r"line \d+: changed"),
    "a foreign line": (lambda run: edited(run, "audit.jsonl", "{", "["), "audit.jsonl, line 1: not an event"),
    "no log": (lambda run: (run / "audit.jsonl").unlink(), "audit.jsonl: the audit log is missing or empty"),
    "an empty log": (lambda run: (run / "audit.jsonl").write_text(""), "the audit log is missing or empty"),
    "the end cut": (lambda run: cut(run, -1), "summary.json: exists, but no end of the run"),
    "the last commit cut": (lambda run: (unfinished(run), cut(run, -2)), rf"0000004.\w+: {UNKNOWN}"),  # type: ignore[func-returns-value]
    "all but the start cut": (lambda run: cut(run, 1), rf"0000003.\w+: {UNKNOWN}"),
    "a recomputed log": (lambda run: renamed(run, 0, config="0" * 64), rf"0000003.\w+: {UNKNOWN}"),
    "a forged checkpoint": (forged, "0000004.safetensors: not the state of round 4 that audit.jsonl has committed"),
    "a forged checkpoint as of an earlier version": (
        partial(forged, drop=True),
        "0000004.safetensors: audit.jsonl has committed another state of round 4",
    ),
    "a checkpoint of a later round": (partial(forged, to=9), rf"0000009.\w+: {UNKNOWN}"),
    "the same as of an earlier version": (partial(forged, to=9, drop=True), rf"0000009.\w+: {UNKNOWN}"),
    "an edited row": (lambda run: edited(run, "metrics.jsonl", '"mae": ', '"mae": 1'), "rows were changed"),
    "a deleted row": (without_row, "metrics.jsonl: rows are missing that audit.jsonl has committed"),
    "a row too many": (
        partial(with_text, text='{"round": 5}\n'),
        "metrics.jsonl: has a row of round 5, but audit.jsonl ends with",
    ),
    "half a row too many": (
        partial(with_text, text='{"rou'),
        "metrics.jsonl: has text after the row of round 4, the last",
    ),
    "an edited summary": (lambda run: edited(run, "summary.json", '"rounds": 4', '"rounds": 5'), "is not the one that"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_by_name(name: str, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `verify`, and by `resume` before it trains or writes anything."""
    change, message = FORGERIES[name]
    change(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    found = verify(copy)
    assert not found.intact and any(re.search(message, problem) for problem in found.problems), found.problems
    again = partial(resume, copy, rounds=6, task=lines(name="lines"))
    with pytest.raises(AuditError, match=message) as result:
        again()
    text = str(result.value)
    assert "\n" not in text and str(copy) in text and "; restore the run's folder from a backup, or " in text
    if "forged checkpoint" not in name:  # refused when it is loaded, after notes on this machine
        assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    said = CliRunner().invoke(app, ["verify", str(copy)])
    assert said.exit_code == 1 and "NOT what the run wrote" in said.stdout
    assert any(re.search(f"^undrift verify: .*{message}", line) for line in said.stderr.splitlines())


@pytest.mark.parametrize(("name", "message"), [
    ("model.safetensors", "is not the one that audit.jsonl has"), ("clients.json", "is not the one that"),
    ("metrics.parquet", "is not the one that"), ("config.toml", "not the settings that the run was started with"),
    ("best/0000004.safetensors", "damaged: it is not what"), ("checkpoints/0000003.safetensors", "damaged"),
])  # fmt: skip
def test_verify_compares_what_resume_does_not_read(name: str, message: str, copy: Path) -> None:
    (path,) = [copy / name] if "best" not in name else (copy / "best").glob("*.safetensors")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"0.05", b"0.06", 1) if name == "config.toml" else data[:-1] + bytes([data[-1] ^ 1]))
    (problem,) = verify(copy).problems
    assert problem.startswith(f"{path}: {message}")
    path.unlink()
    if "." not in name.partition("/")[2] and name != "config.toml":
        assert "missing, but audit.jsonl has it" in verify(copy).problems[0]


@pytest.mark.quick
def test_an_intact_run_is_told_from_its_parts(ended: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in ended.rglob("*")}
    found = verify(ended)
    assert isinstance(found, Verified) and found.intact and not found.notes and not found.signed
    assert found.checkpoints["checkpoints"] == [3, 4] and len(found.checkpoints["best"]) == 1 and found.rows == 4
    assert sorted(found.files) == ["clients.json", "metrics.parquet", "model.safetensors", "summary.json"]
    assert found.head == events(ended)[-1]["hash"] == head_of(ended) and found.events == len(events(ended))
    assert head_of(ended / "no") is None
    assert before == {path: path.stat().st_mtime_ns for path in ended.rglob("*")}, "nothing is written"
    said = CliRunner().invoke(app, ["verify", str(ended)])
    assert said.exit_code == 0 and f"{ended}: intact" in said.stdout and f"head: {found.head}" in said.stdout
    result = CliRunner().invoke(app, ["verify", str(ended), "--json"])
    assert (
        json.loads(result.stdout) == json.loads(json.dumps(found.row())) and json.loads(result.stdout)["intact"] is True
    )
    said = CliRunner().invoke(app, ["verify", str(ended.parent)])
    assert said.exit_code == 2 and "is not a run" in said.stderr


def test_an_anchor_finds_a_consistent_forgery(copy: Path) -> None:
    """Log, manifests and summary replaced together are only found by somebody who noted the head."""
    noted = head_of(copy)
    assert verify(copy, noted).intact and verify(copy, events(copy)[3]["hash"][:16]).intact
    assert "give 16 digits or more" in verify(copy, "abc").problems[0]
    forge_all(copy)
    assert verify(copy).intact
    (problem,) = verify(copy, noted).problems
    assert f"does not contain the event {noted}: it was cut, replaced, or is of another run" in problem
    said = CliRunner().invoke(app, ["verify", str(copy), "--anchor", str(noted)])
    assert said.exit_code == 1 and "does not contain the event" in said.stderr


def forge_all(run: Path) -> None:
    """Another final model, with the log, the manifests and the summary made to fit."""
    result, found = forged(run), events(run)
    summary = json.loads((run / "summary.json").read_text()) | {"sha256": result}
    (run / "summary.json").write_text(json.dumps(summary))
    for event in found:
        if event["event"] == "commit" and event["round"] == 4:
            event["sha256"] = result
        if event["event"] == "end":
            event["files"]["summary.json"] = sha256((run / "summary.json").read_bytes()).hexdigest()
    before = [event["hash"] for event in found]
    chained(run, found)
    after = dict(zip(before, (event["hash"] for event in events(run)), strict=True))
    for place in (*run.glob("checkpoints/*.json"), *run.glob("best/*.json")):
        manifest = read_manifest(place)
        sealed(place, manifest | {"log": after[manifest["log"]]})


# Keys


def test_with_a_key_nobody_else_can_forge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    public = write_keys(key)
    monkeypatch.setenv(KEY, str(key))
    made = run(tmp_path / "run").folder
    assert verify(made).intact and verify(made).signed and all("signature" in event for event in events(made))
    assert "signatures verified" in CliRunner().invoke(app, ["verify", str(made)]).stdout
    assert run(tmp_path / "run", rounds=5, resume=True).summary["rounds"] == 5
    assert verify(made).signed
    monkeypatch.delenv(KEY)
    (note,) = verify(made).notes
    assert verify(made).intact and not verify(made).signed and "ssh-ed25519 AAAA" in note and "--key FILE" in note
    assert verify(made, key=public).signed, "the public half is enough"
    assert CliRunner().invoke(app, ["verify", str(made), "--key", str(public)]).exit_code == 0
    with pytest.raises(AuditError, match=r"audit.jsonl: its events are signed; name the file with the private key"):
        resume(made, rounds=6)
    monkeypatch.setenv(KEY, str(public))
    with pytest.raises(AuditError, match="a public key, which cannot sign"):
        resume(made, rounds=6)


def test_a_forger_without_the_private_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    public = write_keys(key)
    monkeypatch.setenv(KEY, str(key))
    made = run(tmp_path / "run").folder
    copies = [Path(shutil.copytree(made, tmp_path / name)) for name in ("unsigned", "resigned", "one")]
    forge_all(copies[0])
    with pytest.raises(AuditError, match=r"audit.jsonl, line 1: not signed with the key of the first line|not signed"):
        resume(copies[0], rounds=6)
    assert not verify(copies[0], key=public).intact
    write_keys(tmp_path / "other")  # the forger signs everything with a key of his own, and names it
    monkeypatch.setenv(KEY, str(tmp_path / "other"))
    forger, found = Audit(tmp_path / "forged.jsonl"), events(copies[1])
    for event in found:
        facts = {name: x for name, x in event.items() if name not in ("time", "event", "key", "previous", "hash")}
        forger.write(event["event"], **{name: x for name, x in facts.items() if name != "signature"})
    shutil.copy(tmp_path / "forged.jsonl", copies[1] / "audit.jsonl")
    assert "line 1: not signed with this key; check UNDRIFT_AUDIT_KEY" in verify(copies[1], key=public).problems[0]
    monkeypatch.delenv(KEY)
    lines_of = (copies[2] / "audit.jsonl").read_text().splitlines()
    lines_of[2] = re.sub(r', "signature": "[^"]+"', "", lines_of[2])
    (copies[2] / "audit.jsonl").write_text("\n".join(lines_of) + "\n")
    with pytest.raises(AuditError, match="line 3: not signed, but others are"):
        read_log(copies[2] / "audit.jsonl")


@pytest.mark.parametrize(
    ("content", "message"),
    [("short", "is not an Ed25519 key without a passphrase: make one"), (None, "cannot be read")],
)
def test_a_key_that_cannot_be_used_is_refused(
    content: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "key").write_text(content)
    monkeypatch.setenv(KEY, str(tmp_path / "key"))
    with pytest.raises(AuditError, match=f"UNDRIFT_AUDIT_KEY: .*{message}") as result:
        Audit(tmp_path / "audit.jsonl")
    assert "short" not in str(result.value)


# Every file


@pytest.mark.parametrize("name", ["environment.json", "engine.json", "task.json"])
def test_an_edited_description_is_found(name: str, copy: Path) -> None:
    (copy / name).write_bytes((copy / name).read_bytes() + b" ")
    assert f"{copy / name}: was changed after the last start of the run" in verify(copy).problems[0]


def test_the_number_of_rounds_is_the_one_of_the_last_start(copy: Path) -> None:
    edited(copy, "config.toml", "rounds = 4", "rounds = 3")
    assert "config.toml: was changed after the last start" in verify(copy).problems[0]


@pytest.mark.parametrize("round", [3, 4])
def test_a_deleted_checkpoint_is_found(round: int, copy: Path) -> None:
    for ending in ("json", "safetensors"):
        (copy / "checkpoints" / f"{round:07d}.{ending}").unlink()
    (problem,) = verify(copy).problems
    assert f"{round:07d}.json: missing, but audit.jsonl has committed it" in problem


@pytest.mark.parametrize("name", ["notes.txt", "checkpoints/mine.bin", "more"])
def test_an_added_file_is_found(name: str, copy: Path) -> None:
    (copy / name).mkdir() if name == "more" else (copy / name).write_text("mine")
    (problem,) = verify(copy).problems
    assert problem == f"{copy / name}: not a file of the run; move it elsewhere"


def test_a_node_that_kept_the_heads_shows_a_rollback(copy: Path, tmp_path: Path) -> None:
    """The folder was put back to an earlier state of its own, in which everything fits."""
    early = Path(shutil.copytree(copy, tmp_path / "early"))
    resume(copy, rounds=6, task=lines(name="lines"))
    node = tmp_path / "states" / "run"
    assert keep_head(node, 4, events(early)[-1]["hash"]) is None
    assert keep_head(node, 6, events(copy)[-1]["hash"]) is None and keep_head(node, 6, events(copy)[-1]["hash"]) is None
    assert len(read_heads(node / HEADS)) == 2
    assert verify(copy, node / HEADS).intact and verify(early).intact
    assert "does not contain the event" in verify(early, node / HEADS).problems[0]
    warning = keep_head(node, 5, "0" * 64)
    assert warning is not None and "put back: it orders round 5 after round 6" in warning
    with (node / HEADS).open("a") as file:
        file.write("{half a li")
    assert len(read_heads(node / HEADS)) == 3


# What a crash leaves


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize(
    ("place", "name"),
    [(folder.Metrics, "rewind"), (folder.Metrics, "append"), (folder.Checkpoints, "save"),
     (folder.RunFolder, "end"), (folder.Audit, "write"), (folder, "write"), (audit, "append")],
)  # fmt: skip
def test_what_a_crash_leaves_is_intact_and_goes_on(
    place: Any, name: str, ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended before and after every call of what stores something, in a run that was ended once before."""
    expected = run(tmp_path / "whole", rounds=6).sha256
    usual = getattr(place, name)
    for number, before in product(range(40), (True, False)):
        calls = count()

        def lethal(*arguments: Any, at: int = number, before: bool = before, calls: Any = calls, **more: Any) -> Any:
            now = next(calls) == at
            if now and before:
                raise KeyboardInterrupt
            value = usual(*arguments, **more)
            if now:
                raise KeyboardInterrupt
            return value

        copy = Path(shutil.copytree(ended, tmp_path / f"{number}-{before}"))
        again = partial(resume, copy, rounds=6, task=lines(name="lines"))
        with monkeypatch.context() as patch:
            patch.setattr(place, name, lethal)
            try:
                again()
            except KeyboardInterrupt:
                assert verify(copy).intact, (number, before, verify(copy).problems)
            else:
                break
        assert again().sha256 == expected, (number, before)
        found = verify(copy)
        assert found.intact and not found.notes and found.rows == 6, (number, before, found)
    assert number > 0, "it was never called"


def test_files_that_a_kill_left_half_written_are_deleted(ended: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(ended, tmp_path / "run"))
    (copy / "best" / ".clients-0000002.0123456789ab.new" / "3").mkdir(parents=True)
    kept = [copy / "checkpoints" / "mine.new", copy / ".notes.new"]
    half = [copy / "checkpoints" / ".0000003.safetensors.0123456789ab.new", copy / ".config.toml.ba9876543210.new"]
    for path in kept + half:
        path.write_bytes(b"half")
    verify(copy)
    assert all(path.exists() for path in half), "who only reads deletes nothing"
    resume(copy, rounds=6, task=lines(name="lines"))
    assert sorted(path for path in copy.rglob("*") if path.suffix == ".new") == sorted(kept)


def test_a_run_in_progress_is_intact(tmp_path: Path) -> None:
    found = []
    run(tmp_path / "run", watch=lambda row: found.append(verify(tmp_path / "run")))
    assert len(found) == 4 and all(one.intact for one in found), found
    assert [one.rows for one in found] == [1, 2, 3, 4] and len({one.head for one in found}) == 4


def test_rows_without_a_checkpoint_are_no_forgery(tmp_path: Path) -> None:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == 5:
            raise KeyboardInterrupt

    output = {"checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        start(task=lines(name="lines"), folder=tmp_path / "run", watch=stop, output=output, **{**SETTINGS, "rounds": 6})
    assert verify(tmp_path / "run").intact and verify(tmp_path / "run").rows == 5
    with_text(tmp_path / "run", '{"round": 7}\n')
    assert "has a row of round 7, but audit.jsonl ends with round 3" in verify(tmp_path / "run").problems[0]


# Runs of earlier versions


def test_a_run_of_an_earlier_version_goes_on(copy: Path, tmp_path: Path) -> None:
    expected = run(tmp_path / "whole", rounds=6).sha256
    chained(copy, earlier(copy))
    assert verify(copy).intact and verify(copy).checkpoints["checkpoints"] == [3, 4]
    assert resume(copy, task=lines(name="lines")).summary["rounds"] == 4
    assert resume(copy, rounds=6, task=lines(name="lines")).sha256 == expected
    assert verify(copy).intact


@pytest.mark.parametrize("last", [-1, -2])
def test_an_earlier_version_wrote_its_log_last(last: int, copy: Path) -> None:
    """Killed before the commit of its newest checkpoint, or before the end; but a forged state is still refused."""
    if last == -2:
        unfinished(copy)
    chained(copy, earlier(copy)[:last])
    assert verify(copy).intact
    assert resume(copy, rounds=4, task=lines(name="lines")).summary["rounds"] == 4
    assert verify(copy).intact, "its own resume is in the log now"
    unfinished(copy)
    forged(copy, 3)
    forged(copy, 4)
    with pytest.raises(AuditError, match=r"0000004.safetensors: audit.jsonl has committed another state of round 4"):
        resume(copy, task=lines(name="lines"))


# What clients say


class Loud(TensorTask):
    """Client 1 fails with a text that looks like an event of its own, in red."""

    def batches(self, client: int, *rest: Any) -> Any:
        if client == 1:
            raise ValueError('broken\n{"event": "commit", "round": 9}\r\n\x1b[31m\u2028red\0')
        return super().batches(client, *rest)


def test_an_event_is_a_line_and_every_rejection_has_one(tmp_path: Path) -> None:
    """S12: whatever a client says."""
    plain = lines()
    task = Loud(Net, plain.inputs, plain.targets, plain.clients, nn.MSELoss(), metrics=["mae"], name="loud")
    settings = {**SETTINGS, "cohort": 4}
    folder = start(task=task, folder=tmp_path / "run", **settings).folder
    raw = (folder / "audit.jsonl").read_bytes()
    assert not set(raw) - {*range(32, 127), 10}, "printable ASCII only"
    result = [event for event in events(folder) if event["event"] == "reject"]
    assert [(event["round"], event["client"], event["reason"]) for event in result] == [
        (n, 1, "FAILED") for n in (1, 2, 3, 4)
    ]
    assert all("broken" in event["detail"] for event in result) and len(raw.splitlines()) == len(events(folder)) == 11
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["rejected"] for row in rows) == len(result)
    assert verify(folder).intact


def test_an_error_of_the_command_line_is_one_printable_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), report_errors("run"):
        raise AuditError("a client said\n\x1b[31mred\r\0")
    assert capsys.readouterr().err == "undrift run: a client said  [31mred  \n"


# Limits


def test_a_long_log_is_read_in_seconds(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    audit.write("reject", client=1, detail="x" * 10_000_000)
    chained(tmp_path, [*events(tmp_path), *({"event": "reject", "client": i, "round": i} for i in range(20_000))])
    began = time.perf_counter()
    log = read_log(tmp_path / "audit.jsonl")
    assert len(log.hashes) == 20_001 and not log.events and time.perf_counter() - began < 20
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()[0]) < 3000, "a client's text is cut"


def test_the_fingerprint_of_stored_bytes_is_that_of_the_state(ended: Path) -> None:
    data = (ended / "checkpoints" / "0000004.safetensors").read_bytes()
    assert stored_fingerprint(data) == events(ended)[-1]["sha256"]
    for broken in (b"", data[:-1], b"undrift1" + sha256(b"x").digest() + b"x"):
        with pytest.raises(wire.WireError):
            stored_fingerprint(broken)


@pytest.mark.parametrize(
    ("name", "delete", "message"),
    [
        ("environment.json", False, "environment.json: was changed after the last start of the run"),
        ("task.json", False, "task.json: was changed after the last start of the run"),
        ("task.json", True, "task.json: is missing; it was there at the last start of the run"),
        ("checkpoints/0000004.json", True, "0000004.json: missing, but audit.jsonl has committed it"),
    ],
)
def test_files_that_describe_a_run_and_its_last_checkpoint_are_compared(
    name: str, delete: bool, message: str, copy: Path
) -> None:
    path = copy / name
    if delete:
        path.unlink()
    else:
        path.write_text(path.read_text().replace("{", "{ ", 1))
    assert any(message in problem for problem in verify(copy).problems), verify(copy)
