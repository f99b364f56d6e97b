"""The files of a run compared with its audit log: checkpoints, rows, descriptions and the result."""

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.runs.folder.audit import AUDITS, CANARIES, RESTORE, Log, round_of
from undrift.runs.folder.checkpoint import CheckpointError, check_logged, kept_rounds, read_manifest
from undrift.runs.folder.signature import AuditError
from undrift.util.shell import DEPLOYMENT_RECORD, SERVER_LOG, STATUS, resume_command
from undrift.util.storage.files import is_temporary, read

FOLDERS = ("checkpoints", "best")
ARRIVALS = "arrivals.jsonl"
"""The trace of arrivals, of a run with a clock."""

_EARLIER = "the run has ended again since; its files are written by:"


DESCRIBING = (
    *("config.toml", "environment.json", "engine.json", "references.json", "init.json", "partition.json"),
    *("preprocess.json", "task.json", DEPLOYMENT_RECORD),
)
"""The files that describe a run; every start, and every change of one, notes their hashes in the log."""

_OWN = {
    *DESCRIBING,
    *("audit.jsonl", ARRIVALS, "metrics.jsonl", "metrics.parquet", "lens.jsonl", "summary.json", "model.safetensors"),
    *("clients.json", "lock", SERVER_LOG, STATUS, "checkpoints", "clients", "best"),
}
"""What is directly in a run's folder."""


def described_files(folder: Path) -> dict[str, str]:
    """The hashes of the files that describe the run in a folder.

    Args:
        folder: the run's folder.
    """
    return {name: sha256(read(folder / name)).hexdigest() for name in DESCRIBING if (folder / name).is_file()}


def noted_files(log: Log) -> dict[str, str]:
    """The hashes of the files that describe a run, as its log has them last; none in logs of earlier versions.

    Args:
        log: the run's log.
    """
    found: dict[str, str] = {}
    for event in log.of_kinds("begin", "resume", "file"):
        files = event.get("files")
        noted = files if isinstance(files, dict) else {}
        found = {**found, **noted} if event["event"] == "file" else noted
    return found


def check_described(folder: Path, log: Log) -> None:
    """Raise an `AuditError` if the files that describe a run are not those that it has noted.

    Args:
        folder: the run's folder.
        log: its log; a file whose change is the last event may not be written yet.
    """
    last, found = log.last, described_files(folder)
    waiting = last.get("files", {}) if last.get("event") == "file" else {}
    for name, noted in noted_files(log).items():
        if found.get(name) != noted and name not in waiting:
            what = "was changed after" if name in found else "is missing; it was there at"
            raise AuditError(f"{folder / name}: {what} the last start of the run; {RESTORE}")


def check_text(folder: Path, log: Log) -> None:
    """Raise an `AuditError` if lines of the server's log were changed that were there at the last commit or after it.

    Args:
        folder: the run's folder.
        log: its log; once a run has ended and its process as well, no lines may follow.
    """
    seals = [event["text"] for event in log.of_kinds("commit", "status") if isinstance(event.get("text"), dict)]
    if not seals:
        return
    path, data = folder / SERVER_LOG, _content(folder / SERVER_LOG)
    kept = _check_seal(path, data, seals[-1:], "lines", log)
    if log.last.get("event") == "status" and "text" in log.last and log.of_kinds("end") and len(data) > len(kept):
        raise AuditError(f"{path}: lines were added after the run's process ended; {RESTORE}")


def check_status(folder: Path, log: Log) -> None:
    """Raise an `AuditError` if the status of a deployment is not the one with which its process ended.

    Args:
        folder: the run's folder.
        log: its log; the status of a process that runs, or was killed, is not compared.
    """
    noted = log.last.get("sha256") if log.last.get("event") == "status" else None
    if noted is not None and sha256(_content(folder / STATUS)).hexdigest() != noted:
        raise AuditError(f"{folder / STATUS}: not the one with which the run's process ended; {RESTORE}")


def check_canaries(log: Log) -> None:
    """Raise an `AuditError` if the last audit of a private run found more than its epsilon.

    Args:
        log: the run's log.
    """
    found = log.of_kinds(CANARIES)
    if found and not found[-1]["holds"]:
        bound, epsilon = found[-1]["bound"], found[-1]["epsilon"]
        raise AuditError(
            f"{log.path}: canaries show that epsilon is at least {bound:.3g}, and {epsilon:.3g} is stated: the run "
            "does not have the privacy that it states; do not use it, and report the method"
        )


def _content(path: Path) -> bytes:
    """The content of a file, empty if there is none; raises an `AuditError` if it cannot be read."""
    try:
        return read(path) if path.exists() else b""
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror}; {RESTORE}") from None


def missing_checkpoints(folder: Path, log: Log) -> list[Path]:
    """The manifests that should be there, by the log, and are not.

    The last commit may have none, if the run was killed or is in progress. Logs of earlier versions do not have the
    number that is kept.

    Args:
        folder: the run's folder.
        log: its log.
    """
    kept, keep = list[int](), 0
    events = log.of_kinds("begin", "resume", "commit", "end")
    for event in events:
        round = round_of(event)
        if event["event"] == "commit":
            kept = sorted({*kept, round})[-keep:] if keep else []
        elif event["event"] != "end":
            keep = event.get("keep", 0)
            kept = [one for one in kept if one <= round]
    if events and events[-1]["event"] == "commit":
        kept = kept[:-1]
    paths = [folder / "checkpoints" / f"{round:07d}.json" for round in kept]
    return [path for path in paths if not path.exists()]


def strangers(folder: Path) -> list[Path]:
    """The files in a run's folder, and among its checkpoints, that no run writes, not even one that is killed.

    Args:
        folder: the run's folder.
    """
    found = [path for path in folder.iterdir() if path.name not in _OWN]
    if (folder / "checkpoints").is_dir():
        own = re.compile(r"[0-9]{7,18}\.(json|safetensors)")
        found += [path for path in (folder / "checkpoints").iterdir() if not own.fullmatch(path.name)]
    return sorted(path for path in found if not is_temporary(path))


def check_open(folder: Path, log: Log) -> None:
    """Raise an `AuditError` if a run must not be resumed, from its log, its manifests, its rows and its summary.

    The state that is resumed is compared when it is loaded.

    Args:
        folder: the run's folder.
        log: its log, verified.
    """
    check_present(folder, log)
    for path in manifests(folder):
        try:
            manifest = read_manifest(path)
        except CheckpointError:
            continue  # damaged, not forged: the one before is used
        check_logged(log, path, manifest)
    check_rows(folder, log)
    check_arrivals(folder, log)
    check_file(folder, log, "summary.json")


def check_present(folder: Path, log: Log) -> None:
    """Raise an `AuditError` if a run that has stored something has no log.

    Args:
        folder: the run's folder.
        log: its log; empty if there is none.
    """
    stored = [*manifests(folder), *(folder / name for name in ("metrics.jsonl", "summary.json"))]
    if not log.hashes and any(path.exists() for path in stored):
        raise AuditError(f"{log.path}: the audit log is missing or empty; {RESTORE}")


def manifests(folder: Path) -> Iterator[Path]:
    """The manifests of a run's checkpoints.

    Args:
        folder: the run's folder.
    """
    for name in FOLDERS:
        yield from (folder / name / f"{round:07d}.json" for round in kept_rounds(folder / name))


def check_rows(folder: Path, log: Log) -> int:
    """The number of rows of a run; raises an `AuditError` if they are not those that the log has.

    The rows up to the last commit must be those that it has the hash of. Only rounds since then may follow.

    Args:
        folder: the run's folder.
        log: its log.
    """
    path = folder / "metrics.jsonl"
    data, (newest, last, limit) = _content(path), _last_commit(log)
    sealed = [event["rows"] for event in newest] if all("rows" in event for event in newest) else []
    if sealed:
        start = _check_seal(path, data, sealed, "rows", log)
        try:
            found = [json.loads(line)["round"] for line in data[len(start) :].split(b"\n")[:-1]]
            later = max(found, default=last)
        except (ValueError, KeyError, TypeError):
            raise AuditError(f"{path}: the rows after round {last} are damaged; delete these lines") from None
        if limit is not None and later > last + limit:
            raise AuditError(
                f"{path}: has a row of round {later}, but {log.path.name} ends with round {last}: the log was cut, or "
                f"rows were added; {RESTORE}"
            )
        if limit == 0 and len(data) > len(start):  # a crash may leave half a row, but not after the end
            raise AuditError(f"{path}: has text after the row of round {last}, the last one; {RESTORE}")
    return data.count(b"\n")


def check_arrivals(folder: Path, log: Log) -> int:
    """The number of steps in the trace of arrivals; raises an `AuditError` if it is not the one that the log has.

    Args:
        folder: the run's folder.
        log: its log.
    """
    path, (newest, *_) = folder / ARRIVALS, _last_commit(log)
    data = _content(path)
    for event in newest[:1]:
        _check_seal(path, data, [event.get("arrivals", {"bytes": 0, "sha256": sha256(b"").hexdigest()})], "steps", log)
    return data.count(b"\n")


def _check_seal(path: Path, data: bytes, seals: list[dict[str, Any]], what: str, log: Log) -> bytes:
    """The start of a file that one of some seals is of; raises an `AuditError` if none is of it."""
    for seal in seals:
        start = data[: seal["bytes"]]
        if sha256(start).hexdigest() == seal["sha256"]:
            return start
    why = "are missing" if len(data) < seals[0]["bytes"] else "were changed"
    raise AuditError(f"{path}: {what} {why} that {log.path.name} has committed; {RESTORE}")


def _last_commit(log: Log) -> tuple[list[dict[str, Any]], int, int | None]:
    """The last commit and what was measured after it, the last round ever committed, and how many rounds may follow it.

    A last round that was measured after its commit has the rows of either event: a kill may come between.
    """
    commits, kind = dict[int, list[dict[str, Any]]](), ""
    last, limit, every = 0, 0, True
    for event in log.events.values():
        if event.get("event") in ("status", *AUDITS):  # not of the training
            continue
        kind, round = str(event.get("event")), round_of(event)
        if kind == "commit":
            commits[round] = [event]
            last = max(last, round)
        elif kind == "measured" and round in commits:
            commits[round].append(event)
        elif kind in ("begin", "resume"):  # later rounds are run again
            commits = {other: one for other, one in commits.items() if other <= round}
            every &= "every" in event
            limit = max(limit, event.get("every", 0))
    newest = commits[max(commits)] if commits else []
    return newest, last, (0 if kind == "end" else limit) if every else None


def check_file(folder: Path, log: Log, name: str, *, needed: bool = False) -> str | None:
    """Compare a file of the result with the last `end` of the log; raises an `AuditError` if it is not that file.

    Args:
        folder: the run's folder.
        log: its log.
        name: the file.
        needed: whether it must be there.

    Returns:
        A note if it is the file of an earlier end, which a crash may leave; else None.
    """
    path, ends = folder / name, log.of_kinds("end")
    if not path.exists():
        if needed:
            raise AuditError(f"{path}: missing, but {log.path.name} has it; {RESTORE}")
        return None
    data = _content(path)
    matches = [_matches(end, name, data) for end in ends]
    if matches and matches[-1]:
        return None
    if any(matches):
        return f"{path}: of an earlier end; {_EARLIER} {resume_command(folder)}"
    if not ends and not log.current():
        return None  # an earlier version wrote the summary before the end
    what = "is not the one that" if ends else "exists, but no end of the run is in what"
    raise AuditError(f"{path}: {what} {log.path.name} has; {RESTORE}")


def _matches(end: dict[str, Any], name: str, data: bytes) -> bool:
    """Whether a file is the one that an `end` describes; earlier versions noted the hash of the state only."""
    files = end.get("files")
    if files is not None:
        return bool(files.get(name) == sha256(data).hexdigest())
    if name != "summary.json":
        return True
    try:
        return bool(json.loads(data)["sha256"] == end.get("sha256"))
    except (ValueError, KeyError, TypeError):
        return False
