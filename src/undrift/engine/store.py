"""Stores for clients' states: in memory for a run in one process, on disk for all others.

A client's new state is provisional until the server has accepted its upload. A store therefore keeps a client's last
two states by round; the server names the round to continue from, so client and server agree even if a reply is lost.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from undrift.core import wire
from undrift.core.algorithm import Algorithm
from undrift.core.types import ClientState
from undrift.util.files import replacing, write


class StoreError(RuntimeError):
    """A client's state is missing or damaged; the message says whose and what to do."""


class Store(Protocol):
    """Holds the states of the clients of one run."""

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Store a new state, keep that of the last accepted round, and delete older ones."""


class MemoryStore:
    """States in this process's memory."""

    def __init__(self) -> None:
        self.states: dict[int, dict[int, ClientState]] = {}

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        try:
            return self.states[client][round]
        except KeyError:
            raise StoreError(_missing(client, round)) from None

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Store a new state and keep that of the last accepted round."""
        held = self.states.get(client, {})
        last = {} if accepted is None or accepted not in held else {accepted: held[accepted]}
        self.states[client] = {**last, round: state}


class DiskStore:
    """States in files, one per client and round: written atomically, with a checksum, read when needed.

    Args:
        root: the folder for the states; created if missing.
        algorithm: declares what a state contains.
        size: the length of the model.
        depth: how many rounds the server may go back to a checkpoint; the states it needs for that are kept.
        sync: wait until a state is on disk, so that it survives a power failure.
    """

    def __init__(self, root: Path, algorithm: Algorithm, size: int, *, depth: int = 0, sync: bool = False) -> None:
        self.root, self.algorithm, self.size = Path(root), algorithm, size
        self.depth, self.sync = depth, sync

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        path = self._path(client, round)
        try:
            return wire.from_bytes(ClientState, self.algorithm, path.read_bytes(), self.size)
        except FileNotFoundError:
            raise StoreError(f"{_missing(client, round)} ({path})") from None
        except wire.WireError as error:
            raise StoreError(
                f"the state of client {client} after round {round + 1} cannot be used: {path}: {error}"
            ) from error

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Write a new state, then delete those that no checkpoint refers to any more."""
        path = self._path(client, round)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, wire.to_bytes(state), sync=self.sync, mode=0o666)
        present = {entry.name: entry.path for entry in os.scandir(path.parent)}
        needed = self._needed([int(name) for name in present if name.isdigit()], round, accepted)
        for name, old in present.items():
            if not name.isdigit() or int(name) not in needed:
                os.unlink(old)

    def _needed(self, rounds: list[int], round: int, accepted: int | None) -> set[int]:
        """The rounds to keep: the new one, and accepted ones that a server up to `depth` rounds back needs.

        States between the last accepted round and this one were not accepted; later ones were written before the
        server went back to a checkpoint.
        """
        valid = sorted(r for r in rounds if accepted is not None and r <= accepted)
        floor = round - self.depth
        older = [r for r in valid if r < floor]
        return {round, *older[-1:], *(r for r in valid if r >= floor)}

    def _path(self, client: int, round: int) -> Path:
        return _file(self.root, client, round)


def copy_states(root: Path, accepted: Mapping[int, int], to: Path) -> None:
    """Copy states of a `DiskStore` into a new folder that another one can read, as hard links where possible.

    A state is never changed after it was written, so a link stays what it was. Missing states are left out.

    Args:
        root: the folder of the states.
        accepted: the round of each client's state.
        to: the folder to make; one that is there is replaced.
    """
    shutil.rmtree(to, ignore_errors=True)
    to.parent.mkdir(parents=True, exist_ok=True)
    with replacing(to) as temporary:
        temporary.mkdir()
        for client, round in accepted.items():
            state, copy = _file(root, client, round), _file(temporary, client, round)
            if state.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(state, copy)
                except OSError:
                    shutil.copyfile(state, copy)


def _file(root: Path, client: int, round: int) -> Path:
    """The file of a state; clients have a folder each, grouped by thousands."""
    return root / str(client // 1000) / str(client) / str(round)


def _missing(client: int, round: int) -> str:
    """The message for a missing state."""
    return f"no state of client {client} after round {round + 1}; resume with the clients' states of this run"
