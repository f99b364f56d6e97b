"""A cluster of two raylets: one that is lost does not stop a run, with or without a folder that all nodes share."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

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


def score(task: object, model: torch.nn.Module, client: int) -> float:
    return client + float(sum(p.detach().double().sum() for p in model.parameters())) / 2


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


@pytest.mark.sweep(every=0)
def test_states_on_the_nodes_own_disks_give_the_same_bits(found: dict[str, Any]) -> None:
    assert found["whole"]["sha256"] == EXPECTED and found["whole"]["rejected"] == {}
    first, third = found["own"]
    assert first and third and sorted(first + third) == EVERYONE  # every state is on one node, and stays there


@pytest.mark.sweep(every=0)
def test_personal_models_are_read_from_the_nodes(found: dict[str, Any]) -> None:
    reference = Simulation(make("scaffold"), Clinic(), LOCAL, seed=1)
    state = reference.run(4)
    assert found["scores"] == [score(None, reference.personal(state, client), client) for client in range(8)]
    assert found["personal"] == found["scores"][3]


def test_a_resumed_run_finds_its_states_on_the_nodes(found: dict[str, Any]) -> None:
    assert found["resumed"] == EXPECTED


def test_a_state_is_handed_over_if_another_node_must_train_the_client(found: dict[str, Any]) -> None:
    assert found["moved"] == EXPECTED


def test_a_node_that_is_lost_with_its_states_sets_its_clients_aside_or_ends_the_run(found: dict[str, Any]) -> None:
    lost = found["lost"]
    gone = {int(client) for client in lost["rejected"]}
    assert gone and gone < set(EVERYONE)
    assert lost["trained"][-1] == [client for client in EVERYONE if client not in gone]
    assert lost["sha256"] == fingerprint(after(*lost["trained"]))
    assert all(re.search(r"which is lost|on none of 1 nodes that are up", why) for why in lost["rejected"].values())
    assert re.search(r"no state of client \d after round .* failures=\"reject\" continues", found["raised"])
