"""The Flower engine: one node of five is a hostile party of secure sums, with another behaviour in every round."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from support.deployment import load
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from support.hostile_party import BAD, BEHAVIOURS, CLIENTS, NODES, HostileParty, own
from support.new_app import NEW_APP
from undrift import Local, Secure, Simulation, make
from undrift.core.records.types import ServerState
from undrift.deploying.deploy import deploy
from undrift.engine.round.record import Record
from undrift.flower import Job, client_app
from undrift.testing import fingerprint

LOCAL = Local(lr=0.1, batch_size=10, epochs=1)


@pytest.mark.sweep(every=3)
def test_no_round_has_anything_but_a_sum_of_honest_uploads(tmp_path: Path) -> None:
    """Each is the exact sum of those that were accepted, or abandoned with the model as it was; the next one works."""
    task = load(NEW_APP / "app" / "task.py").task()
    honest = client_app(lambda context: Job(make("fedavg"), task, depth=2), own)
    grid = StandInGrid(HostileParty(honest), NODES, tmp_path / "nodes")
    simulation = Simulation(make("fedavg"), task, LOCAL, seed=0)
    others, before, found = [c for c in range(CLIENTS) if c % NODES != BAD], simulation.start(), []

    def compare(state: ServerState, record: Record) -> None:
        nonlocal before
        clients = sorted(record.clients)
        expected = simulation.round(before, clients)[0] if clients else replace(before, round=before.round + 1)
        kind = {len(others): "left out", CLIENTS: "accepted", 0: "abandoned"}[len(clients)]
        assert fingerprint(state) == fingerprint(expected)
        assert clients == [c for c in range(CLIENTS) if kind == "accepted" or (kind == "left out" and c in others)]
        before = state
        found.append(kind)

    given: dict[str, Any] = {"rounds": len(BEHAVIOURS) + 2, "population": CLIENTS, "secure": Secure()}
    given |= {"poll": 0.01, "wait": 5.0, "deadline": 40.0, "test": lambda _: {"accuracy": 0.0}, "on_round": compare}
    deploy(grid, "fedavg", task.model(), LOCAL, folder=tmp_path / "run", **given)
    wanted = ["accepted", *(kind for _, _, kind in BEHAVIOURS.values()), "accepted"]
    names = ["honest", *BEHAVIOURS, "honest"]
    assert dict(enumerate(zip(names, found, strict=True))) == dict(enumerate(zip(names, wanted, strict=True)))
