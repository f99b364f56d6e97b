"""Clients' states on disk: atomic, checksummed, the last two kept, read only when needed."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from support.rounds import part_of
from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.blocks.drift.feddyn import Dual
from undrift.core.records.types import ClientState
from undrift.engine.round.backend import InProcess
from undrift.engine.stores.store import DiskStore, MemoryStore, Store, StoreError
from undrift.testing import Clinic, fingerprint

ALGORITHM = make("feddyn")


def state(value: float, size: int = 7) -> ClientState:
    return ClientState({"drift": Dual(torch.full((size,), value))})


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    return DiskStore(tmp_path, ALGORITHM, 7)


def test_the_accepted_and_the_provisional_state_are_kept(store: Store) -> None:
    store.save(3, 0, state(0.0), None)
    store.save(3, 4, state(4.0), 0)
    store.save(3, 5, state(5.0), 0)  # the round with index 4 was not accepted
    assert fingerprint(store.load(3, 0)) == fingerprint(state(0.0))
    assert fingerprint(store.load(3, 5)) == fingerprint(state(5.0))
    with pytest.raises(StoreError, match="no state of client 3 after round 5; resume with the clients' states"):
        store.load(3, 4)
    with pytest.raises(StoreError, match="no state of client 9 after round 1"):
        store.load(9, 0)


def test_a_run_on_disk_equals_one_in_memory(tmp_path: Path) -> None:
    local = Local(lr=0.05, batch_size=4)
    for name in ("feddyn", "fedlesam-s"):
        algorithm = make(name)
        size = len(Simulation(algorithm, Clinic()).start().params)
        backend = InProcess(DiskStore(tmp_path / name, algorithm, size))
        on_disk = Simulation(algorithm, Clinic(), local, cohort=4, backend=backend)
        assert fingerprint(on_disk.run(4)) == fingerprint(Simulation(algorithm, Clinic(), local, cohort=4).run(4))
        assert {path.name for path in (tmp_path / name / "0").iterdir()} <= {str(client) for client in range(8)}


def test_damage_is_named(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, ALGORITHM, 7)
    store.save(12, 3, state(1.0), None)
    (path,) = (p for p in tmp_path.rglob("*") if p.is_file())
    data = path.read_bytes()
    for broken in (data[:-1], data[:20], b"", data[:-1] + bytes([data[-1] ^ 1]), os.urandom(len(data))):
        path.write_bytes(broken)
        with pytest.raises(StoreError, match="the state of client 12 after round 4 cannot be used"):
            store.load(12, 3)


def test_a_write_that_fails_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path, ALGORITHM, 7)
    store.save(1, 0, state(1.0), None)

    def full(*_: object, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(1, 1, state(2.0), 0)
    monkeypatch.undo()
    assert fingerprint(store.load(1, 0)) == fingerprint(state(1.0))
    store.save(1, 2, state(3.0), 0)  # and what was left aside is swept away
    assert sorted(path.name for path in (tmp_path / "0" / "1").iterdir()) == ["0", "2"]


def test_many_clients_cost_only_what_is_touched(tmp_path: Path) -> None:
    """The time of a load does not grow with the clients that have a state."""
    store = DiskStore(tmp_path, ALGORITHM, 7)
    for client in range(0, 1_000_000, 500):
        store.save(client, 0, state(float(client)), None)
    begin = time.perf_counter()
    for client in range(0, 1_000_000, 5000):
        assert float(part_of(store.load(client, 0), "drift").h[0]) == float(client)
    assert (time.perf_counter() - begin) / 200 < 0.1  # 0.5 ms on a free machine


def test_states_last_as_long_as_a_checkpoint_may_name_them(tmp_path: Path) -> None:
    """With checkpoints up to four rounds back, a server of any of these rounds finds the state it accepted last."""
    store = DiskStore(tmp_path, ALGORITHM, 7, depth=4)
    history = [0, 2, 3, 7, 9, 10]  # rounds in which the client took part, all accepted but the one of round 9
    last: int | None = None
    for round in history:
        store.save(5, round, state(float(round)), last)
        last = last if round == 9 else round
        for server in range(max(round - 3, 1), round + 1):  # the round a checkpoint would go on with
            named = max((r for r in history if r < server and r != 9), default=None)
            if named is not None:
                assert float(part_of(store.load(5, named), "drift").h[0]) == named
    assert sorted(int(path.name) for path in (tmp_path / "0" / "5").iterdir()) == [3, 7, 10]


def test_a_server_that_went_back_sweeps_later_states_away(tmp_path: Path) -> None:
    store = DiskStore(tmp_path, ALGORITHM, 7, depth=4)
    for round, accepted in ((0, None), (2, 0), (3, 2)):
        store.save(1, round, state(float(round)), accepted)
    store.save(1, 1, state(1.0), 0)  # again from a checkpoint before round 1
    assert sorted(path.name for path in (tmp_path / "0" / "1").iterdir()) == ["0", "1"]


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
