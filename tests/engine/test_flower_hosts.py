"""The Flower engine: an operator's list ties clients to nodes, and no claim can take another node's clients."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from support.flower import ALL, TASK, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from support.hosts import hosts_file, key_pair, keyed_grid
from undrift import Local, make
from undrift.core.records.rejection import Reason
from undrift.engine.flower.server.hosts import HostsError
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import Hosts, Job, client_app
from undrift.testing import Clinic, fingerprint


def test_a_file_ties_clients_to_keys(tmp_path: Path) -> None:
    path = hosts_file(tmp_path, ["0:8:3"], [1, "4:8:3"], [2, 5])
    strategy = strategy_of("scaffold", hosts=path)
    start(strategy, keyed_grid(tmp_path / "states"), 2)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL))


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
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL))


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
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL))
    with pytest.raises(TooFewNodes, match="host 7 of 8"):
        start(strategy_of("fedavg", hosts=hosts | {grid.node_of(1): [1, 3, 5]}), grid, 1)


def test_a_node_cannot_answer_for_clients_it_was_not_sent(tmp_path: Path) -> None:
    """Its reply to an order for its own clients becomes the honest sum of other clients."""
    grid = keyed_grid(tmp_path / "states", nodes=2)
    foreign = client_app(Job(make("scaffold"), TASK))

    def fault(message: Message, reply: Message) -> Message:
        own = message.content.config_records["undrift"]
        order = {**own, "clients": [0, 2, 4, 6], "accepted": [-1] * 4}
        arrays = message.content.array_records["arrays"]
        assert isinstance(arrays, ArrayRecord)
        other = Message(RecordDict({"arrays": arrays, "undrift": ConfigRecord(order)}), 1, "train")
        other.metadata.__dict__["_message_id"] = message.metadata.message_id
        return foreign(other, grid.nodes[grid.node_of(1)])

    grid.faults = {1: fault}
    path = hosts_file(tmp_path, ["0:8:2"], ["1:8:2"])
    strategy = strategy_of("scaffold", hosts=path, quorum=0.0)
    start(strategy, grid, 1)
    assert {r.reason.name for r in strategy.records[0].rejections} == {"SENDER"}
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", [0, 2, 4, 6]))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a]\nclients = [1]", r"\[a\] needs clients and either key or node"),
        ("[a]\nnode = 1\nclients = [1]\nextra = 1", "may have examples, no more"),
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
        ("[a]\nnode = 1\nclients = [1]\nexamples = 0", "examples is a whole number, 1 or more; got 0"),
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


def test_a_client_cannot_claim_more_examples_than_the_list_allows(tmp_path: Path) -> None:
    """Node 1 claims 2^20 examples for its clients, alone and in a sum; those of the others count as they are."""

    class Greedy(Clinic):
        def examples(self, client: int) -> int:
            return 2**20 if client in (3, 5, 7) else super().examples(client)

    for nodes in (2, 8):
        app = client_app(Job(make("fedavg"), Greedy()))
        grid = StandInGrid(app, nodes, tmp_path / str(nodes))
        lists: dict[int | str, Iterable[int]] = {grid.node_of(part): range(part, 8, nodes) for part in range(nodes)}
        hosts = Hosts(lists, examples=dict.fromkeys(lists, 100))
        strategy = strategy_of("fedavg", hosts=hosts, quorum=0.0, local=Local(lr=0.05, steps=1))
        start(strategy, grid, 1)
        refused = {r.client: r for r in strategy.records[0].rejections}
        assert all(refused[client].reason is Reason.COUNT for client in (3, 5, 7)), refused
        assert "examples 1048576, at most 100" in refused[3].detail and set(strategy.records[0].clients) <= {0, 2, 4, 6}


def test_the_status_sees_the_clients_that_each_node_was_given(tmp_path: Path) -> None:
    """Node 1 claims everything."""
    seen: dict[int, list[int]] = {}

    class Watching:
        def set_connected(self, nodes: Iterable[int]) -> None: ...
        def await_replies(self, nodes: Iterable[int]) -> None: ...
        def receive_replies(self, nodes: Iterable[int]) -> None: ...
        def set_hosted(self, hosted: Mapping[int, Sequence[int]]) -> None:
            seen.update({node: list(clients) for node, clients in hosted.items()})

    grid = keyed_grid(tmp_path / "states", 2, lambda c: ALL if c.node_config["partition-id"] else range(0, 8, 2))
    strategy = strategy_of("scaffold", hosts=hosts_file(tmp_path, ["0:8:2"], ["1:8:2"]), watch=Watching())
    start(strategy, grid, 1)
    assert seen == {grid.node_of(0): [0, 2, 4, 6], grid.node_of(1): [1, 3, 5, 7]}
