"""Checkpoints: everything the server needs to resume, written so that a crash at any moment leaves one intact.

A checkpoint is two files: the state (safetensors with a SHA-256) and, written after it, a manifest with its hash. A
state without a manifest is ignored. The latest checkpoint is the newest intact one in the folder; no file points to it.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from undrift.core import wire
from undrift.core.algorithm import Algorithm
from undrift.core.types import ServerState
from undrift.util.files import write

FORMAT = 1


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
    """

    def __init__(self, folder: Path, algorithm: Algorithm, size: int, identity: str, keep: int = 2) -> None:
        self.folder, self.algorithm, self.size = folder, algorithm, size
        self.identity, self.keep = identity, keep
        folder.mkdir(mode=0o700, exist_ok=True)

    def save(self, state: ServerState) -> Path:
        """Write a checkpoint, then delete those that are too old."""
        data = wire.to_bytes(state)
        write(self._state(state.round), data)
        manifest = {
            "format": FORMAT,
            "round": state.round,
            "run": self.identity,
            "bytes": len(data),
            "sha256": sha256(data).hexdigest(),
        }
        write(self._manifest(state.round), json.dumps({**manifest, "check": _check(manifest)}, indent=2))
        for round in self.rounds()[: -self.keep]:
            self._manifest(round).unlink(missing_ok=True)
            self._state(round).unlink(missing_ok=True)
        return self._state(state.round)

    def rounds(self) -> list[int]:
        """The rounds that have a checkpoint, intact or not, in order."""
        return kept_rounds(self.folder)

    def latest(self, refused: Callable[[CheckpointError], None] | None = None) -> ServerState | None:
        """The newest intact checkpoint, or None if there is none; `refused` is called for each newer damaged one.

        If there are checkpoints but none is intact, the last error is raised.
        """
        last: CheckpointError | None = None
        for round in reversed(self.rounds()):
            try:
                return self.load(round)
            except CheckpointError as error:
                last = error
                if refused is not None:
                    refused(error)
        if last is not None:
            raise last
        return None

    def load(self, round: int) -> ServerState:
        """The checkpoint before a round."""
        manifest, path = self._read(round), self._state(round)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        if len(data) != manifest["bytes"] or sha256(data).hexdigest() != manifest["sha256"]:
            raise CheckpointError(f"{path}: damaged: it is not what {self._manifest(round).name} describes")
        try:
            state = wire.from_bytes(ServerState, self.algorithm, data, self.size)
        except (wire.WireError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: cannot be used: {error}") from None
        if state.round != round:
            raise CheckpointError(f"{path}: holds round {state.round}, not {round}")
        return state

    def _read(self, round: int) -> dict[str, object]:
        """A manifest, validated on its own."""
        path = self._manifest(round)
        try:
            manifest = json.loads(path.read_bytes())
            check = manifest.pop("check")
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CheckpointError(f"{path}: damaged: it is not a manifest") from None
        if check != _check(manifest):
            raise CheckpointError(f"{path}: damaged: its own checksum does not match")
        if manifest.get("format") != FORMAT:
            raise CheckpointError(f"{path}: format {manifest.get('format')!r}, this version reads {FORMAT}")
        if manifest.get("round") != round:
            raise CheckpointError(f"{path}: describes round {manifest.get('round')!r}, not {round}")
        if manifest.get("run") != self.identity:
            raise CheckpointError(f"{path}: belongs to another run (its settings differ from config.toml)")
        return dict(manifest)

    def _state(self, round: int) -> Path:
        return self.folder / f"{round:07d}.safetensors"

    def _manifest(self, round: int) -> Path:
        return self.folder / f"{round:07d}.json"


def kept_rounds(folder: Path) -> list[int]:
    """The rounds that have a checkpoint in a folder, intact or not, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())


def _check(manifest: object) -> str:
    """The checksum of a manifest's contents."""
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
