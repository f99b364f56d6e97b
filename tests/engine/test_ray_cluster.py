"""A cluster of two raylets: one that is lost does not stop a run; states are in a shared folder or an object store."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_module
from undrift import Local, Simulation, make
from undrift.core.records.types import ServerState
from undrift.testing import Clinic, fingerprint

pytest.importorskip("ray")
pytestmark = pytest.mark.xdist_group("ray")

LOCAL = Local(lr=0.05, weight_decay=1e-3, epochs=1, batch_size=4)
EVERYONE = [0, 2, 3, 4, 5, 6, 7]  # client 1 has no examples


def result(scenario: str, folder: Path) -> dict[str, Any]:
    """What happened on the cluster."""
    lines = run_module("support.ray_cluster", scenario, folder, timeout=900).splitlines()
    found: dict[str, Any] = json.loads(lines[-1])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return result("one-after-the-other", folder)


def after(*rounds: list[int]) -> ServerState:
    """The state after rounds with these clients, in one process."""
    simulation = Simulation(make("scaffold"), Clinic(), LOCAL, seed=1)
    state = simulation.start()
    for clients in rounds:
        state, _ = simulation.round(state, clients)
    return state


EXPECTED = fingerprint(after(*[EVERYONE] * 4))


@pytest.mark.sweep(every=0)
def test_a_lost_node_hands_its_clients_to_the_others(found: dict[str, Any]) -> None:
    shared = found["shared"]
    assert shared["sha256"] == EXPECTED and shared["trained"] == [EVERYONE] * 4 and shared["rejected"] == {}
    assert shared["seconds"] < 120  # it was without end
    assert any(re.search(r"a Ray worker was lost .* its clients \d", line) for line in shared["heard"])


@pytest.mark.sweep(every=0)
def test_states_in_an_object_store_need_no_folder(found: dict[str, Any]) -> None:
    assert found["store"]["sha256"] == EXPECTED and found["store"]["rejected"] == {}
