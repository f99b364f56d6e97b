"""Whether a run's folder is what the run wrote: its audit log, and its files compared with the log."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undrift.core.server.wire import WireError, stored_fingerprint
from undrift.runs.folder.audit import RESTORE, SYNCED, Log, read_log
from undrift.runs.folder.audit_checks import (
    ARRIVALS,
    FOLDERS,
    check_arrivals,
    check_canaries,
    check_described,
    check_file,
    check_present,
    check_rows,
    check_status,
    check_text,
    manifests,
    missing_checkpoints,
    strangers,
)
from undrift.runs.folder.audit_copy import read_copy
from undrift.runs.folder.checkpoint import CheckpointError, check_logged, read_manifest, read_state
from undrift.runs.folder.files import RunError, check_links, check_run
from undrift.runs.folder.signature import AuditError, audit_key
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError
from undrift.util.shell import resume_command
from undrift.util.storage.heads import read_heads

LOG = "audit.jsonl"
_SHORTEST = 16


@dataclass
class Verified:
    """What `verify` found.

    Args:
        folder: the run's folder.
        events: how many events the log has.
        head: the hash of the last event; note it elsewhere, and give it as `anchor` later.
        signed: whether the events are signed with the key that was given.
        checkpoints: the rounds whose checkpoints the log has, by folder.
        rows: how many rows metrics.jsonl has.
        steps: how many steps of the server the trace of arrivals has.
        files: the files of the result that are those of the log.
        problems: what is not as it was written, one line each, with the file and what to do.
        notes: what is not wrong, but not complete either.
    """

    folder: Path
    events: int = 0
    head: str = ""
    signed: bool = False
    checkpoints: dict[str, list[int]] = field(default_factory=dict)
    rows: int = 0
    steps: int = 0
    files: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """Whether everything is as the run wrote it."""
        return not self.problems

    def row(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {**vars(self), "folder": str(self.folder), "intact": self.intact}


def verify(folder: Path | str, anchor: str | Path | None = None, key: str | Path | None = None) -> Verified:
    """Compare a run's folder with its audit log, and the log with itself. Nothing is changed, and no lock is needed.

    With a key the log can have been made by the holder of its private half only. Without one, a process that may write
    the folder can replace everything in it consistently; only an anchor shows that.

    Args:
        folder: the run's folder, finished or in progress.
        anchor: the head of the log as it was noted before, 16 digits or more, a file of heads that a node has kept, or
            a file of copies that `UNDRIFT_AUDIT_COPY` named; the log must contain them.
        key: the file of the key that signed the log, its public half is enough; None takes the file that
            `UNDRIFT_AUDIT_KEY` names.

    Example:
        >>> verify("runs/mine").intact  # doctest: +SKIP
        True
    """
    folder = Path(folder)
    check_run(folder)
    found, signer = Verified(folder), audit_key(key)
    _attempt(found, check_links, folder)
    there = [(path, _attempt(found, read_manifest, path)) for path in manifests(folder)]  # before the log: it may grow
    path = folder / LOG
    log = _attempt(found, read_log, path, signer) if path.exists() else Log(path)
    if log is None:
        return found
    found.events, found.head, found.signed = len(log.hashes), log.head, log.checked
    _attempt(found, check_present, folder, log)
    _attempt(found, _check_anchors, log, anchor)
    _attempt(found, _check_settings, folder, log)
    _attempt(found, check_text, folder, log)
    _attempt(found, check_status, folder, log)
    _attempt(found, check_canaries, log)
    for stranger in strangers(folder):
        found.problems.append(f"{stranger}: not a file of the run; move it elsewhere")
    if log.key and not log.checked:
        found.notes.append(f"{path}: signed with {log.key}, which the log itself names: compare it, or give --key FILE")
    for manifest_path, manifest in there:
        if manifest is not None and _attempt(found, _check_state, log, manifest_path, manifest):
            found.checkpoints.setdefault(manifest_path.parent.name, []).append(manifest["round"])
    lost_ones = missing_checkpoints(folder, log)
    for lost in lost_ones if head_of(folder) == log.head else ():  # a run in progress deletes old ones meanwhile
        found.problems.append(f"{lost}: missing, but {LOG} has committed it; {RESTORE}")
    found.rows = _attempt(found, check_rows, folder, log) or 0
    found.steps = _attempt(found, check_arrivals, folder, log) or 0
    _check_result(found, log)
    return found


def _attempt(found: Verified, check: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a check; a failure is noted and gives None."""
    try:
        return check(*arguments)
    except (AuditError, CheckpointError, RunError, ConfigError, OSError) as error:
        found.problems.append(str(error))
        return None


def _check_anchors(log: Log, given: str | Path | None) -> None:
    """Raise if the log does not have the events that were noted elsewhere."""
    if given is None:
        return
    known = {*log.hashes}
    for anchor in read_heads(Path(given)) or _read_copied(log, Path(given)) or (str(given),):
        if anchor not in known:
            _check_anchor(log, anchor)


def _read_copied(log: Log, path: Path) -> list[str]:
    """The hashes of the log's events in a file of copies, without those that a power failure may take from the log."""
    if not path.is_file():
        return []
    copied = read_copy(path, log.hashes[0]) if log.hashes else []
    if not copied:
        raise AuditError(f"--anchor {path}: no event of {log.path} in it: the log was replaced, or is of another run")
    return [event["hash"] for event in copied if event.get("event") in SYNCED]


def _check_anchor(log: Log, anchor: str) -> None:
    """Raise if the log does not have an event."""
    if len(anchor) < _SHORTEST:
        raise AuditError(f"--anchor {anchor}: give {_SHORTEST} digits or more of the head that undrift verify printed")
    if not any(one.startswith(anchor.lower()) for one in log.hashes):
        raise AuditError(
            f"{log.path}: does not contain the event {anchor}: it was cut, replaced, or is of another run; {RESTORE}"
        )


def _check_settings(folder: Path, log: Log) -> None:
    """Raise if the settings on which the result depends are not those of the start, or other files not those noted."""
    started = log.of_kinds("start")
    if started and Config.read(folder).identity() != started[0].get("config"):
        raise AuditError(f"{folder / 'config.toml'}: not the settings that the run was started with; {RESTORE}")
    check_described(folder, log)


def _check_state(log: Log, path: Path, manifest: dict[str, Any]) -> bool:
    """Whether a checkpoint is there, as the log has it; False if a run in progress has deleted it."""
    state = path.with_suffix(".safetensors")
    try:
        found = stored_fingerprint(read_state(state, manifest))
    except WireError as error:
        raise CheckpointError(f"{state}: cannot be used: {error}") from None
    except CheckpointError:
        if not path.exists():
            return False
        raise
    check_logged(log, state, manifest, found)
    return True


def _check_result(found: Verified, log: Log) -> None:
    """Compare the files of the result; those of a run that ended and was killed before it wrote them may be missing."""
    ends = log.of_kinds("end")
    names = list(ends[-1].get("files", ())) if ends else []
    names = names or ["summary.json"]
    before, complete = len(found.notes), (found.folder / "summary.json").exists()
    for name in reversed(names):  # the summary first: it is written last
        current = complete and len(found.notes) == before
        problems = len(found.problems)
        note = _attempt(found, lambda name=name, current=current: check_file(found.folder, log, name, needed=current))
        if note:
            found.notes.append(note)
        elif len(found.problems) == problems and (found.folder / name).exists():
            found.files.append(name)
    if ends and not complete:
        again = resume_command(found.folder)
        found.notes.append(f"{found.folder}: ended, but its result is not there: {again}")


def render(found: Verified) -> str:
    """What `verify` found, as text: a line per part of the folder, and the head to note.

    Args:
        found: what `verify` returned.
    """
    lines = [f"{found.folder}: {'intact' if found.intact else 'NOT what the run wrote'}"]
    if found.events:
        lines.append(f"  {LOG}: {found.events} events{', signatures verified' if found.signed else ''}")
    kept = {name: found.checkpoints[name] for name in FOLDERS if name in found.checkpoints}
    lines += [f"  {name}: rounds {', '.join(map(str, rounds))}" for name, rounds in kept.items()]
    if found.rows:
        lines.append(f"  metrics.jsonl: {found.rows} rows")
    if found.steps:
        lines.append(f"  {ARRIVALS}: {found.steps} steps")
    if found.files:
        lines.append(f"  result: {', '.join(sorted(found.files))}")
    lines += [f"  note: {note}" for note in found.notes]
    if found.head and found.events:
        lines.append(f"  head: {found.head}")
    return "\n".join(lines)


def head_of(folder: Path) -> str | None:
    """The head of a run's log, not verified; None if there is no log.

    Args:
        folder: the run's folder.
    """
    try:
        with open(folder / LOG, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - (1 << 16)))
            return str(json.loads(file.read().splitlines()[-1])["hash"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
