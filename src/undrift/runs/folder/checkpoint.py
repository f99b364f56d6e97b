"""Checkpoints: everything the server needs to resume, written so that a crash at any moment leaves one intact.

A checkpoint is two files: the state (safetensors with a SHA-256) and, written after it, a manifest with its hash. A
state without a manifest is ignored. The latest checkpoint is the newest intact one in the folder; no file points to it.
The event of the audit log is written between the two, and the manifest contains the hash of the event.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import ServerState
from undrift.core.server import wire
from undrift.runs.folder.audit import Log, round_of
from undrift.runs.folder.signature import AuditError
from undrift.util.storage.files import delete, read, storing, write

FORMAT = 1
_UNDO = (
    "restore the run's folder from a backup, or delete the two files of this checkpoint to resume from the one before"
)
_LOST = "no checkpoint is intact: restore the run's folder from a backup, or start a new run"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message names the file and the reason."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they are stored; created if missing.
        algorithm: declares what a state contains.
        size: the length of the model.
        identity: identifies the run; a checkpoint of another run is refused.
        keep: how many to keep.
        log: the run's audit log; a checkpoint that is not in it raises an `AuditError`. None reads any.
    """

    def __init__(
        self, folder: Path, algorithm: Algorithm, size: int, identity: str, keep: int = 2, log: Log | None = None
    ) -> None:
        self.folder, self.algorithm, self.size = folder, algorithm, size
        self.identity, self.keep, self.log = identity, keep, log
        if folder.is_symlink():
            raise CheckpointError(
                f"{folder}: it is a symbolic link, which is not followed; put the folder itself there"
            )
        with storing(folder):
            folder.mkdir(mode=0o700, exist_ok=True)

    def save(self, state: ServerState, commit: Callable[[str], str] | None = None) -> Path:
        """Write a checkpoint, then delete those that are too old.

        Args:
            state: the server's.
            commit: called with the state's fingerprint between its two files; it writes the event of the audit log and
                returns its hash.
        """
        data = wire.to_bytes(state)
        write(self._state(state.round), data, follow=False)
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "round": state.round,
            "run": self.identity,
            "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }
        if commit is not None:
            manifest["log"] = commit(wire.fingerprint(state))
        text = json.dumps({**manifest, "check": _check(manifest)}, indent=2)
        write(self._manifest(state.round), text, follow=False)
        self._delete(self.rounds()[: -self.keep])
        return self._state(state.round)

    def rewind(self, round: int) -> None:
        """Delete the checkpoints of later rounds, which a run that is resumed after this one trains again.

        Args:
            round: how many rounds are done.
        """
        self._delete(kept for kept in self.rounds() if kept > round)

    def _delete(self, rounds: Iterable[int]) -> None:
        for round in rounds:
            delete(self._manifest(round))
            delete(self._state(round))

    def rounds(self) -> list[int]:
        """The rounds that have a checkpoint, intact or not, in order."""
        return kept_rounds(self.folder)

    def latest(self, refused: Callable[[CheckpointError], object] | None = None) -> ServerState | None:
        """The newest intact checkpoint, or None if there is none; `refused` is called for each newer damaged one.

        If there are checkpoints but none is intact, an error names them all.
        """
        errors: list[CheckpointError] = []
        for round in reversed(self.rounds()):
            try:
                return self.load(round)
            except CheckpointError as error:
                errors.append(error)
                if refused is not None:
                    refused(error)
        if errors:
            raise CheckpointError(f"{'; '.join(map(str, errors))}; {_LOST}")
        return None

    def load(self, round: int) -> ServerState:
        """The checkpoint before a round."""
        manifest, path = self._read(round), self._state(round)
        data = read_state(path, manifest)
        try:
            state = wire.from_bytes(ServerState, self.algorithm, data, self.size)
        except (wire.WireError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: cannot be used: {error}") from None
        if state.round != round:
            raise CheckpointError(f"{path}: contains round {state.round}, not {round}")
        if self.log is not None:
            check_logged(self.log, path, manifest, wire.fingerprint(state))
        return state

    def _read(self, round: int) -> dict[str, Any]:
        """A manifest, validated on its own."""
        path = self._manifest(round)
        manifest = read_manifest(path)
        if manifest.get("run") != self.identity:
            raise CheckpointError(f"{path}: belongs to another run (its settings differ from config.toml)")
        return manifest

    def _state(self, round: int) -> Path:
        return self.folder / f"{round:07d}.safetensors"

    def _manifest(self, round: int) -> Path:
        return self.folder / f"{round:07d}.json"


def kept_rounds(folder: Path) -> list[int]:
    """The rounds that have a checkpoint in a folder, intact or not, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if re.fullmatch("[0-9]{7,18}", path.stem))


def read_manifest(path: Path) -> dict[str, Any]:
    """A manifest, validated on its own.

    Args:
        path: its file, named after the round.
    """
    try:
        manifest = json.loads(read(path))
        check = manifest.pop("check")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{path}: damaged: it is not a manifest") from None
    if check != _check(manifest):
        raise CheckpointError(f"{path}: damaged: its own checksum does not match")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format {manifest.get('format')!r}, this version reads {FORMAT}")
    if manifest.get("round") != int(path.stem):
        raise CheckpointError(f"{path}: describes round {manifest.get('round')!r}, not {int(path.stem)}")
    return dict(manifest)


def read_state(path: Path, manifest: Mapping[str, Any]) -> bytes:
    """The file of a state, compared with its manifest.

    Args:
        path: the file.
        manifest: what `read_manifest` returned.
    """
    try:
        data = read(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) != manifest.get("bytes") or sha256(data).hexdigest() != manifest.get("sha256"):
        raise CheckpointError(f"{path}: damaged: it is not what {path.with_suffix('.json').name} describes")
    return data


def check_logged(log: Log, path: Path, manifest: Mapping[str, Any], found: str | None = None) -> None:
    """Raise an `AuditError` if the log does not have a checkpoint.

    The log of an earlier version may lack the newest one: it was written after the checkpoint.

    Args:
        log: the run's log.
        path: a file of the checkpoint.
        manifest: its manifest.
        found: the fingerprint of its state; None compares the manifest only.
    """
    round, head = manifest["round"], manifest.get("log")
    if head is not None:
        event = log.events.get(head) if isinstance(head, str) else None
        if event is None or event.get("event") not in ("commit", "best") or event.get("round") != round:
            raise AuditError(
                f"{path}: {log.path.name} has no commit of this checkpoint: the log was cut or replaced, or the "
                f"checkpoint was not written by this run; {_UNDO}"
            )
        if found is not None and event.get("sha256") != found:
            raise AuditError(
                f"{path}: not the state of round {round} that {log.path.name} has committed: it was replaced; {_UNDO}"
            )
        return
    same = [event for event in log.of_kinds("commit", "best", "resume") if event.get("round") == round]
    newest = max(map(round_of, log.of_kinds("commit", "best")), default=0)
    if not same and not log.current() and round > newest:
        return
    if not same or (found is not None and all(event.get("sha256") != found for event in same)):
        what = "has no commit of this round" if not same else f"has committed another state of round {round}"
        raise AuditError(f"{path}: {log.path.name} {what}: the log was cut, or the checkpoint replaced; {_UNDO}")


def _check(manifest: object) -> str:
    """The checksum of a manifest's contents."""
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
