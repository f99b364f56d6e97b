"""Ways through the gate, the sums, the checkpoints and the stores that no other test takes."""

import json
import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from support.rounds import part_of
from undrift import Local, Simulation, make
from undrift.blocks.drift.feddyn import Dual
from undrift.core.records.packed_sum import PackedSum
from undrift.core.records.rejection import Reason, RejectedError
from undrift.core.records.types import ClientState
from undrift.core.server import step as server
from undrift.core.server.gate import Gate, _check_sum
from undrift.core.server.partial_check import check_stated
from undrift.engine.stores.store import DiskStore, StoreError, copy_states
from undrift.runs.folder import checkpoint
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints
from undrift.testing import Clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
UNEVEN = Local(lr=0.05, epochs=1, batch_size=4, weight_decay=1e-3, step_schedule="cosine")


def served(method: str, local: Local = LOCAL, bound: float | None = None) -> Any:
    """A gate, a node's reply and one client's upload."""
    simulation = Simulation(make(method), Clinic(), local)
    broadcast = server.send(simulation.job.algorithm, simulation.start(), simulation.job.setting)
    gate = Gate(simulation.job.algorithm, local, broadcast, range(8), bound)
    part = simulation.worker.serve(broadcast, [3, 4, 5], {}, 8)
    return gate, part, simulation.worker.visit(3, broadcast, None, gate)


@pytest.mark.parametrize("gradients", [-1, 2.0, True, 2**40])
def test_the_number_of_gradients_is_checked(gradients: object) -> None:
    gate, _, upload = served("fedavg")
    whole = gate.total()
    gate.admit(replace(upload, gradients=gradients), whole)
    assert [one.reason for one in gate.rejections] == [Reason.COUNT] and whole.clients == []


def test_a_long_vector_of_large_elements_has_its_true_norm() -> None:
    gate, _, upload = served("fedavg")
    large = torch.full_like(upload.delta, 1e10)
    whole = gate.total()
    gate.admit(replace(upload, delta=large), whole)
    found = [one.reason for one in gate.rejections]
    assert found == [Reason.SIZE] or gate.measured[3][1] == pytest.approx(1e10 * len(large) ** 0.5, rel=1e-6)


def test_bytes_that_are_no_sum_are_rejected() -> None:
    with pytest.raises(RejectedError, match="are no sum of 100 elements"):
        _check_sum("delta", PackedSum(torch.zeros(3, dtype=torch.uint8)), 100, 1.0)


def test_a_client_without_steps_cannot_be_in_a_sum() -> None:
    gate, part, _ = served("fedavg")
    with pytest.raises(RejectedError) as caught:
        check_stated(part.total, part.stated(), lambda *_: 0, lambda _: gate.most, None)
    assert caught.value.reason is Reason.IDLE


def test_sums_with_decay_over_uneven_steps_keep_their_bound() -> None:
    gate, part, _ = served("scaffold", UNEVEN)
    most = max(visit.norm for visit in part.visits)
    assert "tail" in part.total.sums
    for bound, refused in ((most * 1.001, False), (most / 100, True)):
        gate, part, _ = served("scaffold", UNEVEN, bound)
        gate.rejections.clear()
        assert (gate.merge(part.total, gate.total(), part.stated()) is not None) == refused


def test_a_checkpoint_whose_hashes_agree_may_still_be_none(tmp_path: Path) -> None:
    algorithm = make("fedavg")
    simulation = Simulation(algorithm, Clinic(), LOCAL, cohort=4)
    states = [state for state, _ in simulation.rounds(2)]
    kept = Checkpoints(tmp_path / "kept", algorithm, len(states[0].params), "run")
    for state in states:
        kept.save(state)

    def forge(data: bytes) -> None:
        path = kept.folder / "0000002.json"
        manifest = json.loads(path.read_text())
        manifest |= {"bytes": len(data), "sha256": sha256(data).hexdigest()}
        manifest.pop("check")
        (kept.folder / "0000002.safetensors").write_bytes(data)
        path.write_text(json.dumps({**manifest, "check": checkpoint._check(manifest)}))

    forge(b"no tensors")
    with pytest.raises(CheckpointError, match=r"0000002.safetensors: cannot be used"):
        kept.load(2)
    forge((kept.folder / "0000001.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="contains round 1, not 2"):
        kept.load(2)


def test_states_are_copied_where_links_do_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path / "a", make("feddyn"), 7)
    store.save(1, 0, ClientState({"drift": Dual(torch.ones(7))}), None)

    def refuse(*_: object, **__: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    copy_states(tmp_path / "a", {1: 0, 2: 5}, tmp_path / "b")
    copied = DiskStore(tmp_path / "b", make("feddyn"), 7)
    assert float(part_of(copied.load(1, 0), "drift").h[0]) == 1
    with pytest.raises(StoreError, match="no state of client 2"):
        copied.load(2, 5)
