"""Stores for clients' states: in memory for a run in one process, on disk or in an object store for all others.

A client's new state is provisional until the server has accepted its upload. A store therefore keeps a client's last
two states by round; the server names the round to continue from, so client and server agree even if a reply is lost.
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import ClientState
from undrift.core.server import wire
from undrift.util.storage.files import make_private, replacing, write


class StoreError(RuntimeError):
    """A client's state is missing or damaged; the message names the client and what to do."""

    @classmethod
    def missing(cls, client: int, round: int, place: object = "") -> Self:
        """The error for a state that is not in its place, if that is given."""
        where = f" ({place})" if place else ""
        return cls(
            f"no state of client {client} after round {round + 1}; resume with the clients' states of this run{where}"
        )

    @classmethod
    def of(cls, client: int, round: int, action: str, place: object, reason: object) -> Self:
        """The error for a state that cannot be read, written or used.

        Args:
            client: the client.
            round: the round after which it had the state.
            action: "read", "written" or "used".
            place: the file or URL of the state.
            reason: why it cannot.
        """
        return cls(f"the state of client {client} after round {round + 1} cannot be {action}: {place}: {reason}")


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
            raise StoreError.missing(client, round) from None

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
    """

    def __init__(self, root: Path, algorithm: Algorithm, size: int, *, depth: int = 0) -> None:
        self.root, self.algorithm, self.size, self.depth = Path(root), algorithm, size, depth

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        path = self._path(client, round)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreError.missing(client, round, path) from None
        except OSError as error:
            raise StoreError.of(client, round, "read", path, error.strerror) from error
        return self.decode(data, client, round, path)

    def decode(self, data: bytes, client: int, round: int, place: object) -> ClientState:
        """A state from its bytes.

        Args:
            data: the bytes.
            client: the client.
            round: the round after which it had the state.
            place: the file or URL of the state, for errors.
        """
        try:
            return wire.from_bytes(ClientState, self.algorithm, data, self.size)
        except wire.WireError as error:
            raise StoreError.of(client, round, "used", place, error) from error

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Write a new state, then delete those that no checkpoint refers to any more."""
        path = self._path(client, round)
        make_private(path.parent)
        write(path, wire.to_bytes(state), sync=False, follow=False)
        present = {entry.name: entry.path for entry in os.scandir(path.parent)}
        kept = rounds_to_keep([int(name) for name in present if is_round(name)], round, accepted, self.depth)
        for name, old in present.items():
            if not is_round(name) or int(name) not in kept:
                with suppress(FileNotFoundError):  # a worker that was given up as lost may delete it, too
                    os.unlink(old)

    def _path(self, client: int, round: int) -> Path:
        return self.root / state_path(client, round)


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
        temporary.mkdir(mode=0o700)
        for client, round in accepted.items():
            state, copy = root / state_path(client, round), temporary / state_path(client, round)
            if state.is_file():
                make_private(copy.parent)
                try:
                    os.link(state, copy)
                except OSError:
                    write(copy, state.read_bytes(), sync=False)


def delete_states(root: Path, client: int) -> int:
    """Delete all states of a client in the folder of a `DiskStore`; gives how many there were.

    Args:
        root: the folder of the states; it need not exist.
        client: the client's number.
    """
    folder = (root / state_path(client, 0)).parent
    found = sum(is_round(path.name) for path in folder.iterdir()) if folder.is_dir() else 0
    shutil.rmtree(folder, ignore_errors=True)
    return found


def rounds_to_keep(rounds: Iterable[int], round: int, accepted: int | None, depth: int) -> set[int]:
    """The rounds whose states are kept: the new one, and accepted ones that a server up to `depth` rounds back needs.

    States between the last accepted round and this one were not accepted; later ones were written before the server
    went back to a checkpoint.

    Args:
        rounds: those there are.
        round: the new one.
        accepted: the last accepted one.
        depth: how many rounds the server may go back.
    """
    valid = sorted(r for r in rounds if accepted is not None and r <= accepted)
    floor = round - depth
    older = [r for r in valid if r < floor]
    return {round, *older[-1:], *(r for r in valid if r >= floor)}


def state_path(client: int, round: int) -> str:
    """The path of a state below the root: every client has a folder, in groups of a thousand."""
    return f"{client // 1000}/{client}/{round}"


def is_round(name: str) -> bool:
    """Whether a state's name is that of a round.

    Args:
        name: the last part of its path.
    """
    return name.isascii() and name.isdecimal()
