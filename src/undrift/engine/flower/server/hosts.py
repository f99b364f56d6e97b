"""Which node may host which clients: the operator's list, by the nodes' registered public keys.

    [hospital-a]                                          # hosts.toml; the name appears in logs
    key = "ecdsa-sha2-nistp384 AAAA... operator@host"     # the line of the .pub file that was registered
    clients = [0, 3, "6:12:3"]                            # numbers, and ranges as in Python
    examples = 5000                                       # the most that one of its clients may claim; may be left out

`key` may be a list: while a node changes its key, both are there. A running deployment reads a changed file before its
next round: a node that is no longer in it hosts nothing from then on.

The SuperLink admits a node only with the private key of a registered public key, and tells the server which key each
node has. So a node cannot get clients that the list gives to another.
"""

import tomllib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.proto.node_pb2 import NodeInfo

Hosting: TypeAlias = "Hosts | Mapping[int, Iterable[int]] | str | Path | None"
"""The operator's list: read already, as clients by node ID, or the path of its file; None lets nodes claim freely."""

_MOST = 1 << 24  # clients in a list
_SHOWN = 200  # characters about a node's clients in an audit log


class HostsError(ValueError):
    """The operator's list of hosts cannot be used; the message names the entry and the reason."""


class HostedClients(NamedTuple):
    """One node of the list.

    Args:
        name: its name in logs.
        clients: the clients that it may host, sorted.
    """

    name: str
    clients: np.ndarray[Any, np.dtype[np.int64]]


class Hosts:
    """The operator's list of nodes and their clients.

    Args:
        hosts: the clients that each node may host, by node ID as `flwr supernode list` shows it, or by public key as
            the text of its file.
        names: the names of the nodes in logs, by the same keys.
        examples: the most examples that each client of a node may claim, by the same keys.

    `examples` has the limit of every client that has one, `entries` each node by name as an audit log has it: the
    fingerprints of its keys, its clients, its limit of examples.
    """

    def __init__(
        self,
        hosts: Mapping[int | str, Iterable[int]],
        names: Mapping[int | str, str] | None = None,
        examples: Mapping[int | str, int] | None = None,
    ) -> None:
        self.examples: dict[int, int] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self._hosts: dict[int | bytes, HostedClients] = {}
        self._owner: dict[int, str] = {}
        for given, clients in hosts.items():
            name = (names or {}).get(given, f"node {given}" if isinstance(given, int) else f"key {given[-20:]}")
            key = given if isinstance(given, int) else public_key(given.encode())
            if key is None:
                raise HostsError(f"{name}: key is not a public key; copy the line of the .pub file that was registered")
            if key in self._hosts:
                raise HostsError(f"{name}: the same node as {self._hosts[key].name}; list each node once")
            try:
                own = np.unique(np.fromiter(map(index, clients), dtype=np.int64))
            except TypeError:
                raise HostsError(
                    f"{name}: clients is a list of whole numbers, [0, 3, 5]; got {clients!r:.80}"
                ) from None
            for client in own.tolist():
                if client < 0:
                    raise HostsError(f"{name}: client {client}; clients are numbered from 0")
                if self._owner.get(client, name) != name:
                    raise HostsError(
                        f"{name}: client {client} belongs to {self._owner[client]} already; give it to one node"
                    )
                self._owner[client] = name
            self._hosts[key] = HostedClients(name, own)
            shown = f"node {given}" if isinstance(given, int) else key_fingerprint(given.encode())
            most = (examples or {}).get(given)
            self.entries.setdefault(name, {"keys": [], "clients": _ranges(own.tolist()), "examples": most})
            self.entries[name]["keys"] += [shown]
            if examples is not None and given in examples:
                self.examples |= dict.fromkeys(own.tolist(), examples[given])

    @classmethod
    def read(cls, path: str | Path) -> "Hosts":
        """The list in a TOML file."""
        path = Path(path)
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise HostsError(f"{path}: cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HostsError(f"{path}: not TOML: {error}") from None
        hosts: dict[int | str, Iterable[int]] = {}
        names: dict[int | str, str] = {}
        examples: dict[int | str, int] = {}
        for name, table in tables.items():
            keys = set(table) - {"examples"} if isinstance(table, dict) else set()
            if keys not in ({"key", "clients"}, {"node", "clients"}):
                raise HostsError(f"{path}: [{name}] needs clients and either key or node, may have examples, no more")
            most = table.get("examples", 1)
            if type(most) is not int or most < 1:
                raise HostsError(f"{path}: [{name}]: examples is a whole number, 1 or more; got {most!r:.40}")
            listed = table.get("key", table.get("node"))
            listed, kind = listed if isinstance(listed, list) else [listed], str if "key" in table else int
            if not listed or {type(x) for x in listed} != {kind} or not isinstance(table["clients"], list):
                raise HostsError(
                    f"{path}: [{name}]: key is a text or a list of texts, node a whole number, clients a list"
                )
            clients = [client for part in table["clients"] for client in _numbers(f"{path}: [{name}]", part)]
            for given in listed:
                if given in hosts:
                    raise HostsError(f"{path}: [{name}] is the same node as [{names[given]}]; list each node once")
                hosts[given], names[given] = clients, str(name)
            if "examples" in table:
                examples |= dict.fromkeys(listed, table["examples"])
        try:
            return cls(hosts, names, examples)
        except HostsError as error:
            raise HostsError(f"{path}: {error}") from None

    @classmethod
    def of(cls, hosting: Hosting) -> "Hosts | None":
        """The list in any of its forms."""
        if hosting is None or isinstance(hosting, Hosts):
            return hosting
        return cls.read(hosting) if isinstance(hosting, str | Path) else cls(dict(hosting.items()))

    def check(self, population: int) -> None:
        """Raise if the list names a client that does not exist."""
        if self._owner and (last := max(self._owner)) >= population:
            raise HostsError(f"{self._owner[last]}: client {last}; there are {population} clients, numbered from 0")

    def find(self, node: NodeInfo) -> HostedClients | None:
        """The entry of a node; None if it is not in the list."""
        found = self._hosts.get(int(node.node_id))
        if found is None and node.public_key and (key := public_key(node.public_key)) is not None:
            found = self._hosts.get(key)
        return found

    def owner(self, client: int) -> str:
        """The node that a client belongs to."""
        return self._owner.get(client, "no node")


class HostsFile:
    """The operator's list in a file, which may be changed while a run uses it.

    Args:
        path: the file; it must be right when the run starts.
        population: how many clients there are.
    """

    def __init__(self, path: str | Path, population: int) -> None:
        self.path, self.population = Path(path), population
        self.hosts = self._read()
        self.digest = self._find_digest()

    def refresh(self) -> bool:
        """Read the file if its content has changed; returns whether it was.

        A file that cannot be used raises `HostsError`, once; the list stays as it was.
        """
        digest = self._find_digest()
        if digest == self.digest:
            return False
        self.digest = digest
        self.hosts = self._read()
        return True

    def _read(self) -> Hosts:
        """The list as the file has it."""
        found = Hosts.read(self.path)
        try:
            found.check(self.population)
        except HostsError as error:
            raise HostsError(f"{self.path}: {error}") from None
        return found

    def _find_digest(self) -> str:
        """The hash of the file's content; empty if it cannot be read."""
        try:
            return sha256(self.path.read_bytes()).hexdigest()
        except OSError:
            return ""


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The nodes of one list that were added, removed or changed in another.

    Args:
        before: the entries of one list: see `Hosts`.
        now: those of the other.
    """
    changed = {name: now[name] for name in sorted(now.keys() & before.keys()) if now[name] != before[name]}
    added = {name: now[name] for name in sorted(now.keys() - before.keys())}
    return {"added": added, "removed": sorted(before.keys() - now.keys()), "changed": changed}


def key_fingerprint(text: bytes) -> str:
    """The fingerprint of a public key, as `ssh-keygen -lf` shows it; empty if it is no key."""
    der = public_key(text)
    if der is None:
        return ""
    line = load_der_public_key(der).public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return "SHA256:" + b64encode(sha256(b64decode(line.split()[1])).digest()).decode().rstrip("=")


def public_key(text: bytes) -> bytes | None:
    """A public key in one form, whether it was written as a line of OpenSSH or in PEM; None if it is neither."""
    for load in (load_ssh_public_key, load_pem_public_key):
        try:
            return load(text).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except (ValueError, UnsupportedAlgorithm):
            continue
    return None


def _ranges(clients: list[int]) -> str:
    """Sorted clients in short: "0-3, 7"; the end of a long text is left out."""
    parts: list[list[int]] = []
    for client in clients:
        if parts and client == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], client]
        else:
            parts.append([client])
    text = ", ".join("-".join(map(str, part)) for part in parts)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ... ({len(clients)} clients)"


def _numbers(where: str, part: Any) -> Iterable[int]:
    """The clients of one entry: a number, or a range "start:stop" or "start:stop:step"."""
    if type(part) is int:
        return (part,)
    pieces = part.split(":") if isinstance(part, str) else []
    if len(pieces) not in (2, 3) or not all(piece.isascii() and piece.isdigit() for piece in pieces):
        raise HostsError(f'{where}: {str(part)[:40]!r} is no client; write a number or a range such as "0:12:3"')
    start, stop, step = (*map(int, pieces), 1)[:3]
    if step < 1 or stop > _MOST:
        raise HostsError(f"{where}: {part!r} has a step below 1, or more than {_MOST} clients")
    return range(start, stop, step)
