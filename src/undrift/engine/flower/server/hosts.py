"""Which node may host which clients: the operator's list, by the nodes' registered public keys.

    [hospital-a]                                          # hosts.toml; the name appears in logs
    key = "ecdsa-sha2-nistp384 AAAA... operator@host"     # the line of the .pub file that was registered
    clients = [0, 3, "6:12:3"]                            # numbers, and ranges as in Python
    examples = 5000                                       # the most that one of its clients may claim; may be left out

The SuperLink admits a node only with the private key of a registered public key, and tells the server which key each
node has. So a node cannot get clients that the list gives to another.
"""

import tomllib
from collections.abc import Iterable, Mapping
from operator import index
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.proto.node_pb2 import NodeInfo

Hosting: TypeAlias = "Hosts | Mapping[int, Iterable[int]] | str | Path | None"
"""The operator's list: read already, as clients by node ID, or the path of its file; None lets nodes claim freely."""

_MOST = 1 << 24  # clients in a list


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

    `examples` has the limit of every client that has one.
    """

    def __init__(
        self,
        hosts: Mapping[int | str, Iterable[int]],
        names: Mapping[int | str, str] | None = None,
        examples: Mapping[int | str, int] | None = None,
    ) -> None:
        self.examples: dict[int, int] = {}
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
                if client in self._owner:
                    raise HostsError(
                        f"{name}: client {client} belongs to {self._owner[client]} already; give it to one node"
                    )
                self._owner[client] = name
            self._hosts[key] = HostedClients(name, own)
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
            given = table.get("key", table.get("node"))
            if type(given) is not (str if "key" in table else int) or not isinstance(table["clients"], list):
                raise HostsError(f"{path}: [{name}]: key is a text, node a whole number, clients a list")
            if given in hosts:
                raise HostsError(f"{path}: [{name}] is the same node as [{names[given]}]; list each node once")
            hosts[given] = [client for part in table["clients"] for client in _numbers(f"{path}: [{name}]", part)]
            names[given] = str(name)
            if "examples" in table:
                examples[given] = table["examples"]
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


def public_key(text: bytes) -> bytes | None:
    """A public key in one form, whether it was written as a line of OpenSSH or in PEM; None if it is neither."""
    for load in (load_ssh_public_key, load_pem_public_key):
        try:
            return load(text).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        except (ValueError, UnsupportedAlgorithm):
            continue
    return None


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
