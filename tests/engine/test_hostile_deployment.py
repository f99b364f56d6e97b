"""A hostile node among three SuperNodes over TLS: another behaviour in every round.

`make hostile` writes what was measured to benchmarks/speed/results/hostile.json.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from faults.figures import record
from support import hostile_node
from support.deployment import TOOLS, Deployment, LightDeployment, running, until
from support.hostile_rounds import DEADLINE, METHOD, ROUNDS, check, what_happened
from support.new_app import NEW_APP

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.xdist_group("deployment"), *TOOLS]

CLIENT = """
from app.hostile import Hostile, claimed, own
from app.task import task
from undrift import make
from undrift.flower import Job, client_app

app = Hostile(client_app(lambda c: Job(make(str(c.run_config["algorithm"])), task(own(c)), depth=2), claimed))
"""
KEEP = """
def keep(config, state):
    folder = Path(os.environ["UNDRIFT_RUNS"]).parent / f"states-{config['run']}"
    folder.mkdir(exist_ok=True)
    (folder / str(state.round)).write_bytes(to_bytes(state))


@app.main()
"""
SERVER = {
    "from undrift import Local": "from undrift.core.server.wire import to_bytes\nfrom undrift import Local",
    "@app.main()\n": KEEP,
    "failures=5)": 'failures=5) if config["run"] == "quarantine" else None',
    "on_round=lambda _, record:": "on_round=lambda state, record: keep(config, state) or",
}
"""What the server's app has in addition: it keeps every state, and quarantine only in the run of this name."""


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(LightDeployment(tmp_path_factory.mktemp("hostile"), 3), 20) as it:
        folder = it.work / "app-hostile"
        shutil.copytree(NEW_APP, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        server = (folder / "app" / "server.py").read_text()
        for old, new in SERVER.items():
            assert server.count(old) == 1, old
            server = server.replace(old, new)
        hostile = Path(hostile_node.__file__ or "").read_text()
        for name, text in {"server": server, "client": CLIENT, "hostile": hostile}.items():
            (folder / "app" / f"{name}.py").write_text(text)
        yield it


def train(it: Deployment, run: str, rounds: int) -> dict[int, dict[str, Any]]:
    """A run of the app with the hostile node, and what happened in its rounds."""
    config = {"run": run, "algorithm": METHOD, "num-rounds": rounds, "cohort": 12, "nodes": 3, "deadline": DEADLINE}
    given = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    app = str(it.work / "app-hostile")
    number = str(json.loads(it.flwr("run", app, "tls", "--format=json", "-c", given))["run-id"])
    until(lambda: it.rounds(run) == rounds, 1800, pause=1.0)
    log = it.finish(number, 60)
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
