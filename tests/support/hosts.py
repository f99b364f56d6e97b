"""Nodes with registered keys, and the operator's list of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from support.flower import TASK
from support.flower_grid import StandInGrid
from undrift import make
from undrift.flower import Job, client_app


def key_pair(number: int) -> tuple[str, bytes]:
    """A public key as ssh-keygen writes it, and as the SuperLink stores it."""
    key = ec.derive_private_key(number + 1, ec.SECP384R1()).public_key()
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode() + f" node{number}"
    return line, public_key_to_bytes(key)


def keyed_grid(root: Path, nodes: int = 3, clients: Any = None) -> StandInGrid:
    """A grid whose nodes have registered keys."""
    app = client_app(Job(make("scaffold"), TASK), clients)
    grid = StandInGrid(app, nodes, root)
    grid.keys_of = {partition: key_pair(partition)[1] for partition in range(nodes)}
    return grid


def hosts_file(path: Path, *lists: Iterable[object], examples: int | None = None) -> Path:
    """A list of hosts, as an operator writes it; every client may claim so many examples."""
    more = f"examples = {examples}\n" if examples else ""
    lines = [f"[node{i}]\nkey = '{key_pair(i)[0]}'\nclients = {list(own)}\n{more}" for i, own in enumerate(lists)]
    (path / "hosts.toml").write_text("".join(lines))
    return path / "hosts.toml"
