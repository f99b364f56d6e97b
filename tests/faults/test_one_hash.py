"""R9: one hash, whatever the order of arrival, the grouping, the number of workers, the process and the engine."""

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults.figures import record
from support.flower import state_of
from undrift import Local, Simulation, make
from undrift.core.records.types import Upload
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.testing import Clinic, fingerprint

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
SHOWN = """
from undrift import Local, Simulation, make
from undrift.testing import Clinic, fingerprint
import torch
torch.set_num_threads(1)
state = Simulation(make("scaffold"), Clinic(), Local(lr=0.05, epochs=1, batch_size=4), cohort=5, seed=3).run(3)
print(fingerprint(state))
"""


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn", "fednova", "fedsmoo"])
def test_a_hundred_orders_and_groupings_of_arrival(name: str) -> None:
    """Every upload passes a gate of its own group; the groups' totals are merged in any order, as nodes' sums are."""
    simulation = Simulation(make(name), Clinic(), LOCAL, seed=3)
    state, _ = simulation.round(simulation.start(), range(8))
    broadcast = server.send(simulation.job.algorithm, state, simulation.job.setting)
    uploads = _uploads(simulation, broadcast, state.accepted)
    draw, found = random.Random(0), set()
    for _ in range(100):
        order = draw.sample(uploads, len(uploads))
        cuts = sorted(draw.sample(range(1, len(order)), draw.randrange(len(order))))
        groups = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True)]
        whole = _gate(simulation, broadcast).total()
        for group in groups:
            gate = _gate(simulation, broadcast)
            part = gate.total()
            for upload in group:
                gate.admit(upload, part)
            assert not gate.rejections
            whole.merge(part)
        found.add(fingerprint(simulation.close(state, broadcast, whole)))
    assert len(found) == 1


def _gate(simulation: Simulation, broadcast: Any) -> Gate:
    return Gate(simulation.job.algorithm, simulation.local, broadcast, range(8), seed=simulation.seed)


def _uploads(simulation: Simulation, broadcast: Any, accepted: Any) -> list[Upload]:
    gate = _gate(simulation, broadcast)
    found = [simulation.worker.visit(client, broadcast, accepted.get(client), gate) for client in range(8)]
    return [upload for upload in found if upload is not None]  # one client has no examples


def test_three_repeats_have_one_hash() -> None:
    hashes = {fingerprint(Simulation(make("scaffold"), Clinic(), LOCAL, cohort=5, seed=3).run(3)) for _ in range(3)}
    assert len(hashes) == 1


@pytest.mark.slow
@pytest.mark.faults
def test_processes_have_one_hash() -> None:
    """With other seeds of Python's own hashes, on one thread as runs, workers and nodes are."""
    found = set()
    for number in range(3):
        seen = {**os.environ, "PYTHONHASHSEED": str(number)}
        done = subprocess.run([sys.executable, "-c", SHOWN], env=seen, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    record("R9", "3 processes", distinct_hashes=len(found))
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.faults
def test_a_hundred_orders_of_replies_on_flower(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from support import flower

    expected = fingerprint(flower.reference("scaffold"))
    found = set()
    for seed in range(100):
        strategy = flower.strategy_of("scaffold", cohort=5)
        flower.start(strategy, flower.grid_of("scaffold", 1 + seed % 8, tmp_path / str(seed), seed))
        found.add(fingerprint(state_of(strategy)))
    record("R9", "100 orders of replies, 1 to 8 nodes, and the simulation", distinct_hashes=len(found | {expected}))
    assert found == {expected}
