"""States on the nodes' own disks, with a stand-in for Ray; `test_ray_cluster.py` has two true raylets."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("ray")
from ray.exceptions import RayActorError

from undrift import make
from undrift.blocks.drift.feddyn import Dual
from undrift.core.records.types import ClientState
from undrift.engine.ray_backend import node_store
from undrift.engine.ray_backend.backend import RayBackend, group_by_node, prefer_home
from undrift.engine.ray_backend.node_store import Homes, Keeper, NodeReader, NodeStore, own_folder
from undrift.engine.stores.store import DiskStore, StoreError
from undrift.testing import fingerprint

ALGORITHM = make("feddyn")


def state(value: float) -> ClientState:
    return ClientState({"drift": Dual(torch.full((7,), value))})


class Handle:
    """An actor's handle: a call is done at once, with the environment of its node."""

    def __init__(self, cluster: "Nodes", node: str) -> None:
        self.cluster, self.node = cluster, node

    def __getattr__(self, name: str) -> Any:
        return Method(self, name)


class Method:
    """A method of a handle."""

    def __init__(self, handle: Handle, name: str) -> None:
        self.handle, self.name = handle, name

    def remote(self, path: str, *rest: Any) -> Callable[[], Any]:
        node = self.handle.node

        def call() -> Any:
            if node not in self.handle.cluster.up:
                raise RayActorError(error_msg="the node is gone")
            self.handle.cluster.calls.append((node, self.name))
            return getattr(Keeper(), self.name)(path.replace("$STATES", str(self.handle.cluster.root / node)), *rest)

        return call


class Nodes:
    """Ray, as far as it is used, with the disks of some nodes in a folder."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root, self.up, self.calls, self.started = root, list(names), list[tuple[str, str]](), list[str]()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": name, "Alive": True} for name in self.up] + [{"NodeID": "old", "Alive": False}]

    def remote(self, _: type) -> "Nodes":
        return self

    def options(self, *, num_cpus: int, scheduling_strategy: Any) -> Any:
        self.started.append(scheduling_strategy.node_id)
        made = Handle(self, scheduling_strategy.node_id)
        return type("Made", (), {"remote": staticmethod(lambda: made)})

    def get(self, call: Callable[[], Any], timeout: float) -> Any:
        return call()

    def disk(self, node: str, depth: int = 0) -> DiskStore:
        return DiskStore(self.root / node, ALGORITHM, 7, depth=depth)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    found = Nodes(tmp_path, "a", "b")
    monkeypatch.setattr(node_store, "ray", found)
    monkeypatch.setattr(node_store, "actor_state", lambda _: None)
    monkeypatch.setattr(node_store, "NodeAffinitySchedulingStrategy", lambda node, soft: SimpleNamespace(node_id=node))
    return found


def test_states_are_found_once_and_then_known(nodes: Nodes) -> None:
    nodes.disk("a").save(3, 0, state(3.0), None)
    nodes.disk("b").save(4, 0, state(4.0), None)
    homes = Homes("$STATES", {})
    found = homes.find([3, 4, 5], {3: 0, 4: 0})
    assert dict(found.homes) == {3: "a", 4: "b"} and set(found.keepers) == {"a", "b"}
    nodes.calls.clear()
    assert homes.find([3, 4, 5], {3: 0, 4: 0}).homes == found.homes and nodes.calls == []
    homes.note([5], 1, "b")
    assert homes.find([5], {5: 1}).homes == {5: "b"} and nodes.calls == []
    assert found.of([4, 5]).homes == {4: "b"} and set(found.of([4, 5]).keepers) == {"b"}
    assert nodes.started == ["a", "b"]


@pytest.mark.quick
def test_a_worker_reads_its_own_disk_or_that_of_another(nodes: Nodes) -> None:
    nodes.disk("a").save(3, 0, state(3.0), None)
    nodes.disk("b").save(4, 0, state(4.0), None)
    store = NodeStore(nodes.disk("a"), "a")
    store.root = Homes("$STATES", {}).find([3, 4], {3: 0, 4: 0})
    nodes.calls.clear()
    assert fingerprint(store.load(3, 0)) == fingerprint(state(3.0)) and nodes.calls == []
    assert fingerprint(store.load(4, 0)) == fingerprint(state(4.0)) and nodes.calls == [("b", "read")]
    store.save(4, 1, state(5.0), 0)
    assert fingerprint(nodes.disk("a").load(4, 1)) == fingerprint(state(5.0))
    reader = NodeReader(Homes("$STATES", {}), DiskStore(Path(), ALGORITHM, 7))
    assert fingerprint(reader.load(4, 1)) == fingerprint(state(5.0))
    with pytest.raises(StoreError, match=r"states in node:\$STATES are written by the workers only"):
        reader.save(4, 2, state(0.0), 1)


def test_a_state_whose_node_is_lost_or_that_is_damaged_names_the_reason(nodes: Nodes) -> None:
    nodes.disk("b").save(4, 0, state(4.0), None)
    nodes.disk("b").save(5, 0, state(4.0), None)
    homes = Homes("$STATES", {})
    store = NodeStore(nodes.disk("a"), "a")
    store.root = homes.find([4, 5], {4: 0, 5: 0})
    path = next((nodes.root / "b").rglob("5/0"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"the state of client 5 after round 1 cannot be used: node b: .* cut short"):
        store.load(5, 0)
    path.unlink()
    with pytest.raises(StoreError, match=r"no state of client 5 after round 1; .* \(node b, \$STATES\)"):
        store.load(5, 0)
    nodes.up.remove("b")
    with pytest.raises(StoreError, match="the state of client 4 after round 1 was on node b, which is lost"):
        store.load(4, 0)
    store.root = homes.find([4], {4: 0})  # the next round
    with pytest.raises(StoreError, match=r"no state of client 4 after round 1; .*on none of 1 nodes that are up"):
        store.load(4, 0)
    nodes.up.append("b")  # it is back, with its disk
    store.root = homes.find([4], {4: 0})
    assert fingerprint(store.load(4, 0)) == fingerprint(state(4.0))


def test_states_of_a_run_that_went_back_are_deleted_and_two_that_differ_are_refused(nodes: Nodes) -> None:
    for node, value in (("a", 1.0), ("b", 2.0)):
        nodes.disk(node, depth=9).save(3, 0, state(0.0), None)
        nodes.disk(node, depth=9).save(3, 2, state(value), 0)
    homes = Homes("$STATES", {})
    with pytest.raises(StoreError, match="the state of client 3 differs on 2 nodes; delete the wrong ones there"):
        NodeReader(homes, nodes.disk("a")).load(3, 2)
    assert homes.find([3], {3: 0}).homes == {3: "a"}  # the same on both
    assert [path.name for path in nodes.root.rglob("3/*")] == ["0", "0"]
    homes.find([3], {})
    assert not list(nodes.root.rglob("3/*"))


class Pool:
    """Workers on nodes."""

    def __init__(self, **nodes: str) -> None:
        self.nodes = {int(number[1:]): node for number, node in nodes.items()}
        self.crew, self.lost = self, set[int]()

    def ready(self) -> list[int]:
        return [number for number in self.nodes if number not in self.lost]

    def locate(self) -> None:
        pass


def test_workers_take_clients_whose_states_are_on_their_node() -> None:
    homes = {1: "a", 2: "b", 3: "b"}
    assert group_by_node([0, 1, 2, 3], homes) == [[1], [2, 3], [0]]
    pool = Pool(w0="a", w1="b")
    take = prefer_home(pool, homes)  # type: ignore[arg-type]
    assert take(1, [[0], [1], [2]]) == 2 and take(1, [[0], [1]]) == 0
    assert take(1, [[1]]) is None  # the other node will do it
    pool.lost.add(0)
    assert take(1, [[1]]) == 0 and take(1, []) is None


def test_a_path_must_be_the_same_on_every_node() -> None:
    with pytest.raises(ValueError, match="RayBackend: root must be an absolute path on every node, as node:/var/lib"):
        RayBackend(root="node:states")


def test_a_full_disk_rejects_the_clients_of_its_node_only(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    store = NodeStore(nodes.disk("a"), "a" * 20)

    def full(*_: object, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        StoreError, match=r"the state of client 3 after round 2 cannot be written: node a{12}: .*: No space left.*free"
    ):
        store.save(3, 1, state(1.0), 0)


def test_a_state_that_a_node_cannot_read_is_not_taken_for_lost(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes.disk("b").save(4, 0, state(4.0), None)
    homes = Homes("$STATES", {})
    store = NodeStore(nodes.disk("a"), "a")
    store.root = homes.find([4], {4: 0})

    def broken(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", broken)
    with pytest.raises(
        StoreError, match="the state of client 4 after round 1 cannot be read: node b: Permission denied"
    ):
        store.load(4, 0)
    monkeypatch.undo()


def test_a_node_that_cannot_say_what_it_has_is_named(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Keeper, "list_states", broken)
    store = NodeStore(nodes.disk("a"), "a")
    store.root = Homes("$STATES", {}).find([4], {4: 0})
    with pytest.raises(StoreError, match=r"no state of client 4 .*on none of 2 nodes.*; node a: Input/output error"):
        store.load(4, 0)


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET_HERE", "/scratch")
    assert own_folder("$SET_HERE/run") == own_folder("${SET_HERE}/run") == Path("/scratch/run")
    for path in ("$NOT_SET_HERE/run", "/var/${NOT_SET_HERE}/run"):
        with pytest.raises(ValueError, match=r"node:.*: NOT_SET_HERE is not set on the node .*; set it"):
            own_folder(path)


def test_a_state_that_another_worker_deleted_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path, ALGORITHM, 7)
    store.save(3, 0, state(0.0), None)
    unlink = os.unlink

    def twice(path: Any, **given: Any) -> None:
        unlink(path, **given)
        unlink(path, **given)

    monkeypatch.setattr(os, "unlink", twice)
    store.save(3, 1, state(1.0), None)
    assert fingerprint(store.load(3, 1)) == fingerprint(state(1.0))
