"""A hostile node among three SuperNodes over TLS: another behaviour in every round.

`make hostile` writes what was measured to benchmarks/speed/results/hostile.json.
"""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("flwr")

from faults.figures import record
from support import hostile_node
from support.deployment import TOOLS, Deployment, LightDeployment, running
from support.hostile_app import run_app, write_app
from support.hostile_rounds import DEADLINE, METHOD, ROUNDS, check, what_happened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.xdist_group("deployment"), *TOOLS]

CLIENT = """
from app.hostile import Hostile, claimed, own
from app.task import task
from undrift import make
from undrift.flower import Job, client_app

app = Hostile(client_app(lambda c: Job(make(str(c.run_config["algorithm"])), task(own(c)), depth=2), claimed))
"""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(LightDeployment(tmp_path_factory.mktemp("hostile"), 3), 20) as it:
        write_app(it.work / "app-hostile", hostile_node, CLIENT)
        yield it


def train(it: Deployment, run: str, rounds: int) -> dict[int, dict[str, Any]]:
    """A run of the app with the hostile node, and what happened in its rounds."""
    config = {"run": run, "algorithm": METHOD, "num_rounds": rounds, "cohort": 12, "nodes": 3, "deadline": DEADLINE}
    log = run_app(it, it.work / "app-hostile", **config)
    assert "claims clients of others: 0 (of node0); these claims are rejected" in log
    found = what_happened(it.folder(run), it.work / f"states-{run}")
    for place, facts in found.items():
        record(run, str(place), **facts)
    return found


@pytest.mark.parametrize("run", ["uploads", "sums"])
def test_a_run_reaches_its_rounds_whatever_a_node_does(run: str, deployment: Deployment) -> None:
    """Each round ends at most 2 s after its deadline, and nothing that is rejected leaves a trace."""
    found = train(deployment, run, ROUNDS)
    assert max(it["seconds"] for it in found.values()) <= DEADLINE + 2.0
    check(found, absent=["500 objects"])  # the proxy refuses its announcement


def test_a_hostile_node_is_quarantined(deployment: Deployment) -> None:
    """Three rejected uploads, then rounds without it."""
    found = train(deployment, "quarantine", 8)
    assert [place for place, it in found.items() if it["quarantined"]] == [5, 6, 7, 8]
    assert all(it["distance"] == 0.0 for place, it in found.items() if place > 1)
