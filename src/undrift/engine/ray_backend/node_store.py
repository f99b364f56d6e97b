"""Clients' states on the disks of a Ray cluster's nodes, without a folder that all can see.

`RayBackend(root="node:/var/lib/undrift/run")` stores a client's state on the node that trained it. The server side
knows where each state is and sends the client there; if another node must train it, that one fetches the state through
Ray. If the node of a state is lost, its client is rejected or the run stops, by the policy `failures`.
"""

import os
import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from undrift.core.records.types import ClientState
from undrift.engine.ray_backend.dispatch import DEAD, actor_state
from undrift.engine.ray_backend.start import first_line
from undrift.engine.stores.store import DiskStore, StoreError, is_round, state_path
from undrift.util.steps import tell

SCHEME = "node:"
_PATIENCE = 300.0  # seconds for a node that is up to answer; one that is lost fails at once


@dataclass(frozen=True)
class NodeRoot:
    """Where the states of some clients are: sent to the worker that trains these clients.

    Args:
        path: the folder on every node; environment variables in it are expanded there.
        homes: for each client with a state, the ID of the node that has it; or, as a text with spaces, why none has it.
        keepers: the actors that read the states on each node.
    """

    path: str
    homes: Mapping[int, str] = field(default_factory=dict)
    keepers: Mapping[str, Any] = field(default_factory=dict)

    def of(self, clients: Sequence[int]) -> "NodeRoot":
        """The same for some of the clients."""
        homes = {client: self.homes[client] for client in clients if client in self.homes}
        return NodeRoot(self.path, homes, {node: self.keepers[node] for node in homes.values() if node in self.keepers})


class Keeper:
    """Lists and reads the states on one node's disk; a Ray actor that reserves no processor."""

    def list_states(self, path: str, wanted: Mapping[int, int | None]) -> dict[int, bytes]:
        """The checksums of the wanted states that are on this node; later states of these clients are deleted.

        A client has later states if the run went back to an earlier checkpoint.

        Args:
            path: the folder.
            wanted: for each client the round of its state, None if it has none.
        """
        root, found = own_folder(path), dict[int, bytes]()
        for client, round in wanted.items():
            folder = (root / state_path(client, 0)).parent
            for entry in os.listdir(folder) if folder.is_dir() else ():
                if not is_round(entry):
                    continue
                if round is None or int(entry) > round:
                    with suppress(FileNotFoundError):
                        (folder / entry).unlink()
                elif int(entry) == round:
                    with (folder / entry).open("rb") as file:
                        found[client] = file.read(40)
        return found

    def read(self, path: str, client: int, round: int) -> bytes | None:
        """A state as bytes; None if it is not here."""
        try:
            return (own_folder(path) / state_path(client, round)).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None


class NodeStore:
    """The store of a worker: writes to its node's disk, reads from there or from the node that has a state.

    Args:
        disk: the states on this node.
        node: its id.
    """

    def __init__(self, disk: DiskStore, node: str) -> None:
        self.disk, self.node, self.root = disk, node, NodeRoot("")

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        home = self.root.homes.get(client, self.node)
        if home == self.node:
            return self.disk.load(client, round)
        return fetch_state(self.root, home, client, round, self.disk)

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Write a new state to this node's disk; if that fails, the client is rejected."""
        try:
            self.disk.save(client, round, state, accepted)
        except OSError as error:
            raise StoreError.of(client, round, "written", f"node {self.node[:12]}", error) from error


class Homes:
    """Where the states of a run's clients are, as the server knows it.

    Args:
        path: the folder on every node.
        keepers: node -> its `Keeper`; those of other nodes are added.
    """

    def __init__(self, path: str, keepers: dict[str, Any]) -> None:
        self.path, self.keepers = path, keepers
        self._known: dict[int, tuple[int | None, str]] = {}

    def find(self, clients: Sequence[int], accepted: Mapping[int, int]) -> NodeRoot:
        """Where the states of clients are; those that are not known are requested from the nodes.

        Args:
            clients: the clients.
            accepted: for each client with state, its round.
        """
        keepers = self._up()
        unknown: dict[int, int | None] = {}
        for client in clients:
            round, home = self._known.get(client, (-1, ""))
            if round != accepted.get(client) or (round is not None and home not in keepers):
                unknown[client] = accepted.get(client)
        if unknown:
            self._locate(unknown, keepers)
        homes = {client: self._known[client][1] for client in clients if client in accepted}
        return NodeRoot(self.path, homes, keepers)

    def note(self, clients: Sequence[int], round: int, node: str) -> None:
        """Record that clients were trained on a node, which has their states."""
        self._known |= dict.fromkeys(clients, (round, node))

    def _up(self) -> dict[str, Any]:
        """The keepers of the nodes that are up; missing ones are started."""
        up = [str(node["NodeID"]) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        actor: Any = ray.remote(Keeper)
        for node in up:
            if node not in self.keepers or actor_state(self.keepers[node]) == DEAD:
                there = NodeAffinitySchedulingStrategy(node, soft=False)
                self.keepers[node] = actor.options(num_cpus=0, scheduling_strategy=there).remote()
        return {node: self.keepers[node] for node in up}

    def _locate(self, unknown: Mapping[int, int | None], keepers: Mapping[str, Any]) -> None:
        """Find the nodes of some states by a request to all nodes."""
        replies = {node: keeper.list_states.remote(self.path, unknown) for node, keeper in keepers.items()}
        holders: dict[int, dict[str, bytes]] = {}
        failed: dict[str, str] = {}
        for node, reply in replies.items():
            try:
                for client, digest in ray.get(reply, timeout=_PATIENCE).items():
                    holders.setdefault(client, {})[node] = digest
            except GetTimeoutError:  # it must not delete states later, when new ones were written
                ray.kill(self.keepers.pop(node))
                failed[node] = f"no answer in {_PATIENCE:g} s"
            except (RayError, OSError, ValueError) as error:
                failed[node] = _reason(error)
                tell("node %s did not list the states that it has: %s", node[:12], failed[node])
        silent = "".join(f"; node {node[:12]}: {why}" for node, why in failed.items())
        for client, round in unknown.items():
            there = holders.get(client, {})
            home = next(iter(there), "") if round is not None else ""
            if len(set(there.values())) > 1:
                home = f"the state of client {client} differs on {len(there)} nodes; delete the wrong ones there"
            elif round is not None and not there:
                place = f"on none of {len(replies)} nodes that are up, in {self.path}{silent}"
                home = str(StoreError.missing(client, round, place))
            self._known[client] = (round, home)


class NodeReader:
    """The store of a worker in the server's process, which only reads.

    Args:
        homes: where the states are.
        disk: a store that can decode them.
    """

    def __init__(self, homes: Homes, disk: DiskStore) -> None:
        self.homes, self.disk = homes, disk

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        root = self.homes.find([client], {client: round})
        return fetch_state(root, root.homes[client], client, round, self.disk)

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Refused: states are written where clients are trained."""
        raise StoreError(f"client {client}: states in {SCHEME}{self.homes.path} are written by the workers only")


def own_folder(path: str) -> Path:
    """The folder on this node, with environment variables expanded."""
    missing = [name for name in re.findall(r"\$\{?(\w+)", path) if name not in os.environ]
    if missing:
        raise ValueError(
            f"{SCHEME}{path}: {missing[0]} is not set on the node {platform.node()}; set it where Ray is started "
            "there, or give a path without it"
        )
    return Path(os.path.expandvars(path)).expanduser()


def fetch_state(root: NodeRoot, home: str, client: int, round: int, disk: DiskStore) -> ClientState:
    """A state from the node that has it.

    Args:
        root: where the states are.
        home: the node, or why no node has it: see `NodeRoot`.
        client: the client.
        round: the round after which it had the state.
        disk: a store that can decode it.
    """
    if " " in home:
        raise StoreError(home)
    lost = f"the state of client {client} after round {round + 1} was on node {home[:12]}, which is lost"
    if home not in root.keepers:
        raise StoreError(lost)
    try:
        data = ray.get(root.keepers[home].read.remote(root.path, client, round), timeout=_PATIENCE)
    except GetTimeoutError as error:
        raise StoreError(lost) from error
    except (OSError, ValueError) as error:  # of its disk or its environment; Ray's error is one of this kind, too
        raise StoreError.of(client, round, "read", f"node {home[:12]}", _reason(error)) from error
    except RayError as error:
        raise StoreError(lost) from error
    if data is None:
        raise StoreError.missing(client, round, f"node {home[:12]}, {root.path}")
    return disk.decode(data, client, round, f"node {home[:12]}")


def _reason(error: Exception) -> str:
    """An error's message in one line; of an error that Ray passed on, that of its cause."""
    cause = getattr(error, "cause", None) or error
    return getattr(cause, "strerror", None) or first_line(cause)
