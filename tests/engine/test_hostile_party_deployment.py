"""A hostile party of secure sums among five SuperNodes over TLS: another behaviour in every round.

`make hostile` writes what was measured to benchmarks/speed/results/hostile.json.
"""

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

from faults.figures import record
from support import hostile_party
from support.deployment import TOOLS, Deployment, LightDeployment, outcome, running
from support.hostile_app import run_app, write_app
from support.hostile_party import BEHAVIOURS, CLIENTS, NODES
from support.hostile_rounds import METHOD, became_of_sums

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.xdist_group("deployment"), *TOOLS]

DEADLINE = 480.0  # each of the steps without training has an eighth of it, on a busy machine
CLIENT = """
from app.hostile import HostileParty, own
from app.task import task
from undrift import make
from undrift.flower import Job, client_app

app = HostileParty(client_app(lambda c: Job(make(str(c.run_config["algorithm"])), task(own(c)), depth=2), own))
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(LightDeployment(tmp_path_factory.mktemp("party"), NODES, clients=CLIENTS), 20) as it:
        write_app(it.work / "app-party", hostile_party, CLIENT)
        yield it


def test_every_round_is_a_sum_of_honest_uploads_or_abandoned(deployment: Deployment) -> None:
    """Each is to the bit the sum of those that were accepted, or leaves the model as it was; the next one works."""
    run, rounds = "secure", len(BEHAVIOURS) + 2
    config = {"run": run, "algorithm": METHOD, "num_rounds": rounds, "cohort": CLIENTS, "nodes": NODES}
    log = run_app(deployment, deployment.work / "app-party", **config, secure=True, deadline=DEADLINE)
    found = became_of_sums(deployment.folder(run), deployment.work / f"states-{run}", outcome(log)[0])
    for place, facts in found.items():
        record(run, str(place), **facts, load=round(os.getloadavg()[2], 1))
    wanted = ["accepted", *(kind for _, _, kind in BEHAVIOURS.values()), "accepted"]
    assert [it["outcome"] for it in found.values()] == wanted
    assert all(it["exact"] for it in found.values())
    assert max(it["seconds"] for it in found.values()) <= DEADLINE + 2.0
