"""Edge servers: the bits of flat rounds for any tree, and what they refuse."""

import json
import stat
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context

from support.flower import Clock, reference, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from support.http_grid import http_grid
from undrift import make
from undrift.core.records.rejection import Reason
from undrift.engine.flower.node import edge_grid
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import EdgeLog, Job, client_app, edge_app, share_grid
from undrift.runs.folder.audit import read_log
from undrift.runs.folder.signature import AuditError
from undrift.testing import clinic, fingerprint
from undrift.util.storage.heads import read_heads

POPULATION = 8
METHODS = [
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "fedsam",
    "fednova",
    "fedcm",
    "fedadam",
    "fedavgm",
    "fedsmoo",
    "mofedsam",
    "fedspeed",
    "fedlesam-d",
    "fedfft",
    "fedfft-d",
    "specgrad",
    "feddc",
    "fedgamma",
    "fedyogi",
    "fedexp",
]


class Tree:
    """Edge servers over nodes, on grids in this process; a leaf is a node with clients.

    Args:
        name: the method.
        shape: a list of lists for each edge server, clients at the leaves: [[0, 1], [[2], [3, 4]]].
        root: folder of the states.
        settings: of all edge servers.
    """

    def __init__(self, name: str, shape: list[Any], root: Path, **settings: Any) -> None:
        self.name, self.root, self.settings = name, root, {"poll": 0.01, "wait": 2.0, "rejoin": 0.5, **settings}
        self.grids: list[StandInGrid] = []
        self.top = self.grid(shape, "top")

    def grid(self, shape: list[Any], path: str) -> StandInGrid:
        """The grid of some nodes, one for each entry."""
        apps = [self.app(entry, f"{path}-{i}") for i, entry in enumerate(shape)]

        def serve(message: Any, context: Context) -> Any:
            return apps[int(context.node_config["partition-id"])](message, context)

        grid = StandInGrid(serve, len(shape), self.root / path, seed=len(self.grids))  # type: ignore[arg-type]
        self.grids.append(grid)
        return grid

    def app(self, entry: Any, path: str) -> Any:
        """A node with clients, or an edge server over others, which has a new process for every message."""
        if all(isinstance(client, int) for client in entry):
            return client_app(Job(make(self.name), clinic(make(self.name))), clients=entry)
        grid = self.grid(entry, path)
        return lambda *given: edge_app(self.name, lambda _: grid, nodes=len(entry), **self.settings)(*given)


def shape_of(chance: Random, clients: list[int], depth: int) -> list[Any]:
    """A random tree with edge servers of some depth; a leaf has one client or more."""
    count = chance.randrange(1, min(4, len(clients)) + 1)
    cuts = sorted(chance.sample(range(1, len(clients)), count - 1)) if count > 1 else []
    parts = [clients[a:b] for a, b in zip([0, *cuts], [*cuts, len(clients)], strict=True)]
    return [shape_of(chance, part, depth - 1) if depth else part for part in parts]


@pytest.mark.sweep(every=10)
@pytest.mark.parametrize("name", METHODS)
def test_every_tree_has_the_bits_of_one_process(name: str, clock: Clock, tmp_path: Path) -> None:
    """Depths 1 to 3; in the deeper ones a reply of a node and one of an edge server are lost, and come again."""
    chance = Random(name)
    expected = fingerprint(reference(name, 2))
    for depth in (1, 2, 3):
        clients = chance.sample(range(POPULATION), POPULATION)
        tree = Tree(name, shape_of(chance, clients, depth), tmp_path / str(depth))
        for grid in tree.grids if depth > 1 else ():
            restart_once(grid, chance.randrange(grid.partitions))
        strategy = strategy_of(name, cohort=5, rejoin=1.0)
        start(strategy, tree.top, 2)
        assert fingerprint(state_of(strategy)) == expected, (name, depth)
        restarts = [times for grid in tree.grids for times in grid.starts.values()]
        assert max(restarts) == (2 if depth > 1 else 1)


def restart_once(grid: StandInGrid, partition: int) -> None:
    """A node dies with its first reply to an order, and is back at once."""

    def lose(message: Any, reply: Any) -> Any:
        grid.faults.clear()
        grid.restart(partition)
        return []

    grid.faults[partition] = lose


def test_a_node_that_is_lost_is_absent_and_the_others_are_summed(clock: Clock, tmp_path: Path) -> None:
    path, clients = tmp_path / "edge" / "audit.jsonl", [0, 3, 5, 6, 7]
    log = EdgeLog(path)
    tree = Tree("scaffold", [[[0, 3], [4]], [[5], [6], [7]]], tmp_path, on_round=log.write, head=log.head)
    tree.grids[0].dropped = {1}  # client 4
    strategy = strategy_of("scaffold", nodes=2, quorum=0.0)
    start(strategy, tree.top, 2)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", clients, clients))
    absent = dict(strategy.records[0].absent)
    assert set(absent) == {1, 2, 4} and absent[4] == "left out of its node's reply"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(event["round"], event["event"], str(event.get("client", event.get("clients")))) for event in events}
    each = {("absent", "4"), ("accept", "[0, 3]"), ("accept", "[5, 6, 7]")}
    assert found == {(round, *event) for round in (1, 2) for event in each}
    assert events[-1]["run"] == strategy.run and read_log(path).head == log.head()
    kept = {head for file in tmp_path.rglob("heads.jsonl") for head in read_heads(file)}
    assert kept & {event["hash"] for event in events}  # the nodes below keep heads of this log
    path.write_text(path.read_text().replace("absent", "accept"))
    with pytest.raises(AuditError):
        EdgeLog(path)


def test_a_bad_reply_stops_at_the_edge(clock: Clock, tmp_path: Path) -> None:
    """The gate of the edge server rejects it; the server learns the client and the reason, and the rest counts."""
    tree = Tree("fedavg", [[[0, 3], [4]], [[5], [6, 7]]], tmp_path)

    def spoil(message: Any, reply: Any) -> Any:
        array = reply.content.array_records["arrays"]["delta"]
        array.data = b"\xff" * len(array.data)
        return reply

    tree.grids[0].faults = {1: spoil}
    strategy = strategy_of("fedavg", nodes=2, quorum=0.0)
    start(strategy, tree.top, 1)
    assert [(r.client, r.reason) for r in strategy.records[0].rejections] == [(4, Reason.FINITE)]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", [0, 3, 5, 6, 7]))


def test_a_quorum_of_its_own(clock: Clock, tmp_path: Path) -> None:
    tree = Tree("fedavg", [[[0, 3], [4]], [[5], [6, 7]]], tmp_path, quorum=0.9)
    tree.grids[0].dropped = {1}
    strategy = strategy_of("fedavg", nodes=2, quorum=0.0)
    start(strategy, tree.top, 1)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", [5, 6, 7]))


def test_what_is_refused_by_name(clock: Clock, tmp_path: Path) -> None:
    for name in ("krum", "median", "fedlaw"):
        with pytest.raises(TypeError, match=r"edge_app: aggregation=.* takes uploads one by one"):
            edge_app(name, lambda _: None)  # type: ignore[arg-type,return-value]
    for given in ({"nodes": 0}, {"quorum": 1.5}):
        with pytest.raises(ValueError, match="edge_app: nodes must be 1 or more"):
            edge_app("fedavg", lambda _: None, **given)  # type: ignore[arg-type,return-value]
    tree = Tree("fedavg", [[[0, 1, 2, 3], [4, 5, 6, 7]]], tmp_path)
    strategy = strategy_of("fedprox", quorum=0.5, patience=1)
    with pytest.raises(TooFewNodes, match="this node runs"):
        start(strategy, tree.top, 1)


@pytest.mark.quick
def test_one_client_below_an_edge_server_sends_its_upload(clock: Clock, tmp_path: Path) -> None:
    """Its displacement is checked by every gate on the way, and passes as it is; what is compressed stays short."""
    name = "fedavg + quantized(4)"
    tree = Tree(name, [[[[c]]] for c in range(POPULATION)], tmp_path)
    sizes: list[int] = []

    def note(message: Any, reply: Any) -> Any:
        sizes.extend(
            len(array.data) for name, array in reply.content.array_records["arrays"].items() if name == "delta"
        )
        return reply

    tree.top.faults = dict.fromkeys(range(POPULATION), note)
    strategy = strategy_of(name, cohort=5)
    start(strategy, tree.top, 2)
    assert fingerprint(state_of(strategy)) == fingerprint(reference(name, 2))
    assert sizes and max(sizes) < len(state_of(strategy).params)  # a byte for two parameters, and the head


class Region:
    """Nodes on a SuperLink of their own, whose ServerApp shares its grid with an edge server.

    Args:
        name: the method.
        nodes: the clients of each.
        root: folder of the states and of the file.
        monkeypatch: of the test.
    """

    def __init__(self, name: str, nodes: list[list[int]], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.modes = root / "edge" / "edge.json", list[int]()
        apps = [client_app(Job(make(name), clinic(make(name))), clients=clients) for clients in nodes]

        def serve(message: Any, context: Context) -> Any:
            return apps[int(context.node_config["partition-id"])](message, context)

        self.nodes = StandInGrid(serve, len(nodes), root / "nodes")  # type: ignore[arg-type]
        self.grid, self.link = http_grid(self.nodes)
        connect = edge_grid.HttpGrid._connect

        def connected(grid: Any) -> None:
            connect(grid)
            grid._client.close()
            grid._client = self.link

        monkeypatch.setattr(edge_grid.HttpGrid, "_connect", connected)
        monkeypatch.setattr(edge_grid, "sleep", self.stop)

    def stop(self, seconds: float) -> None:
        """End the ServerApp, and keep what it shared as if it ran."""
        self.modes.append(stat.S_IMODE(self.file.stat().st_mode))
        self.shared = self.file.read_text()
        raise KeyboardInterrupt

    def run(self) -> None:
        """Run the ServerApp."""
        with pytest.raises(KeyboardInterrupt):
            share_grid(self.grid, self.file)
        assert not self.file.exists() and self.modes == [0o600]
        self.file.write_text(self.shared)


def test_an_edge_server_reaches_its_nodes_by_the_grid_of_a_server_app(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message has a new process, and only the first one queries the nodes."""
    region = Region("scaffold", [[0, 1, 2], [3], [4, 5, 6, 7]], tmp_path, monkeypatch)
    region.run()
    app = lambda *given: edge_app(lambda _: "scaffold", region.file, nodes=3, poll=0.01)(*given)  # noqa: E731
    top = StandInGrid(app, 1, tmp_path / "top")  # type: ignore[arg-type]
    strategy = strategy_of("scaffold", cohort=5)
    start(strategy, top, 2)
    assert fingerprint(state_of(strategy)) == fingerprint(reference("scaffold", 2))
    assert region.link.senders == {(region.nodes.run_id, 1)} != {(top.run_id, 1)}
    assert region.link.requests.count("PushMessages") <= 3 + 2 * 3


def test_an_edge_server_queries_a_node_that_was_started_again(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = Region("fedavg", [[0, 1, 2], [3, 4, 5, 6, 7]], tmp_path, monkeypatch)
    region.run()
    top = StandInGrid(edge_app("fedavg", region.file, nodes=2, poll=0.01), 1, tmp_path / "top")
    strategy = strategy_of("fedavg", cohort=5, on_round=lambda *_: region.nodes.restart(1))
    start(strategy, top, 3)
    assert fingerprint(state_of(strategy)) == fingerprint(reference("fedavg", 3))


def test_an_edge_server_without_its_server_app_says_what_to_start(clock: Clock, tmp_path: Path) -> None:
    top = StandInGrid(edge_app("fedavg", tmp_path / "edge.json"), 1, tmp_path / "top")
    with pytest.raises(TooFewNodes, match=r"No such file or directory\): start the app there whose ServerApp calls"):
        start(strategy_of("fedavg"), top, 1)
    with pytest.raises(TypeError, match=r"share_grid: StandInGrid is not the grid of a SuperLink"):
        share_grid(top, tmp_path / "edge.json")
