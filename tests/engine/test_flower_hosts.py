"""The Flower engine: an operator's list ties clients to nodes, and no claim can take another node's clients."""

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from support.flower import ALL, TASK, grid_of, rounds_of, start, strategy_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from undrift import make
from undrift.engine.flower.server.hosts import HostsError
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import Hosts, Job, client_app
from undrift.testing import fingerprint


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


def hosts_file(path: Path, *lists: object) -> Path:
    """A list of hosts, as an operator writes it."""
    lines = [f"[node{i}]\nkey = '{key_pair(i)[0]}'\nclients = {list(own)}\n" for i, own in enumerate(lists)]
    (path / "hosts.toml").write_text("".join(lines))
    return path / "hosts.toml"


def test_a_file_ties_clients_to_keys(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, ["0:8:3"], [1, "4:8:3"], [2, 5])
    strategy = strategy_of("scaffold", hosts=path)
    start(strategy, keyed_grid(tmp_path / "states"), 2)
    assert fingerprint(strategy.state) == fingerprint(rounds_of("scaffold", ALL, ALL))


@pytest.mark.parametrize("early", [True, False])
def test_a_claim_to_another_nodes_clients_is_rejected_by_name(
    early: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 1 claims everything, before or after the others: it gets its own clients, and the run is as ever."""

    def claimed(context: Any) -> Any:
        part = context.node_config["partition-id"]
        return ALL if part == 1 else range(part, 8, 3)

    grid = keyed_grid(tmp_path / "states", clients=claimed)
    grid.lazy = 0.0
    order = [1, 0, 2] if early else [0, 2, 1]
    grid.nodes = {1000 + place: grid.nodes[grid.node_of(part)] for place, part in enumerate(order)}
    grid.starts = dict.fromkeys(grid.nodes, 1)
    strategy = strategy_of("scaffold", hosts=hosts_file(tmp_path, ["0:8:3"], ["1:8:3"], ["2:8:3"]))
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.WARNING, "flwr"):
        start(strategy, grid, 2)
    assert "node1, node 100" in caplog.text and "claims clients of others: 0 (of node0), 2 (of node2)" in caplog.text
    assert fingerprint(strategy.state) == fingerprint(rounds_of("scaffold", ALL, ALL))


def test_a_node_that_is_not_in_the_list_hosts_nothing(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, ["0:8:3"], ["1:8:3"])
    with pytest.raises(TooFewNodes, match=r"3 nodes host 6 of 8 clients.*not in the list, claims clients of others"):
        start(strategy_of("scaffold", hosts=path), keyed_grid(tmp_path / "states"))
    unkeyed = grid_of("scaffold", 3, tmp_path / "unkeyed")  # a SuperLink without authentication
    with pytest.raises(TooFewNodes, match="3 nodes host 0 of 8 clients"):
        start(strategy_of("scaffold", hosts=path), unkeyed)


def test_clients_by_node_id(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 2, tmp_path)
    hosts = {grid.node_of(0): [0, 2, 4, 6], grid.node_of(1): range(1, 8, 2)}
    strategy = strategy_of("fedavg", hosts=hosts)
    start(strategy, grid, 1)
    assert fingerprint(strategy.state) == fingerprint(rounds_of("fedavg", ALL))
    with pytest.raises(TooFewNodes, match="host 7 of 8"):
        start(strategy_of("fedavg", hosts=hosts | {grid.node_of(1): [1, 3, 5]}), grid, 1)


def test_a_node_cannot_answer_for_clients_it_was_not_sent(tmp_path: Path) -> None:
    """Its reply to an order for its own clients becomes the honest sum of other clients."""
    grid = keyed_grid(tmp_path / "states", nodes=2)
    foreign = client_app(Job(make("scaffold"), TASK))

    def fault(message: Message, reply: Message) -> Message:
        own = message.content["undrift"]
        order = {**own, "clients": [0, 2, 4, 6], "accepted": [-1] * 4}
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        other = Message(RecordDict({"arrays": arrays, "undrift": ConfigRecord(order)}), 1, "train")
        other.metadata.__dict__["_message_id"] = message.metadata.message_id
        return foreign(other, grid.nodes[grid.node_of(1)])

    grid.faults = {1: fault}
    path = hosts_file(tmp_path, ["0:8:2"], ["1:8:2"])
    strategy = strategy_of("scaffold", hosts=path, quorum=0.0)
    start(strategy, grid, 1)
    assert {r.reason.name for r in strategy.records[0].rejections} == {"SENDER"}
    assert fingerprint(strategy.state) == fingerprint(rounds_of("scaffold", [0, 2, 4, 6]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a]\nclients = [1]", r"\[a\] needs clients and either key or node"),
        ("[a]\nnode = 1\nclients = [1]\nextra = 1", "and nothing else"),
        ("[a]\nnode = '1'\nclients = [1]", "node a whole number"),
        ("[a]\nnode = 1\nclients = 5", "clients a list"),
        ("[a]\nkey = 'ssh-rsa nonsense'\nclients = [1]", "not a public key; copy the line"),
        ("[a]\nnode = 1\nclients = ['1-5']", r"'1-5' is no client; write a number or a range"),
        ("[a]\nnode = 1\nclients = ['0:5:0']", "step below 1"),
        ("[a]\nnode = 1\nclients = ['0:99999999999']", "more than"),
        ("[a]\nnode = 1\nclients = [true]", "is no client"),
        ("[a]\nnode = 1\nclients = [-1]", "numbered from 0"),
        ("[a]\nnode = 1\nclients = [8]", "a: client 8; there are 8 clients"),
        ("[a]\nnode = 1\nclients = [3]\n[b]\nnode = 2\nclients = [3]", "b: client 3 belongs to a already"),
        ("[a]\nnode = 1\nclients = [3]\n[b]\nnode = 1\nclients = [4]", "same node as"),
        ("a = 1", "needs clients"),
        ("[a", "not TOML"),
    ],
)
def test_a_list_that_cannot_work_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(text)
    with pytest.raises(HostsError, match=complaint):
        strategy_of("fedavg", hosts=tmp_path / "hosts.toml")


@pytest.mark.parametrize("clients", [[0, 1.5], 3, ["0"]], ids=["fraction", "number", "text"])
def test_clients_of_a_node_are_whole_numbers(clients: Any) -> None:
    with pytest.raises(HostsError, match=r"node 1: clients is a list of whole numbers, \[0, 3, 5\]; got"):
        Hosts({1: clients})


def test_one_key_in_two_forms_is_one_node(tmp_path: Path) -> None:
    line, pem = key_pair(0)
    with pytest.raises(HostsError, match="the same node as"):
        Hosts({line: [0], pem.decode(): [1]})
    with pytest.raises(HostsError, match=r"hosts.toml: cannot be read: No such file"):
        Hosts.read(tmp_path / "hosts.toml")
