"""Real SuperNodes over TLS: killed in mid-round, back in the same round, and tied to their clients by their keys.

`UNDRIFT_INJECTIONS` sets how often nodes are killed, `UNDRIFT_NODES` how many there are.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("flwr")

from support.deployment import TOOLS, Deployment, cohorts, deploy, outcome, replay, running, seconds, until
from support.new_app import NEW_APP

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]
NODES = int(os.environ.get("UNDRIFT_NODES", "6"))
SERVER = """
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp

from app.task import CLIENTS, task
from undrift import Local, make
from undrift.flower import UndriftStrategy
from undrift.testing import fingerprint

app = ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    model = task(hosted=()).model()
    strategy = UndriftStrategy(
        make(str(config["algorithm"])),
        model,
        Local(lr=float(config["lr"]), batch_size=int(config["batch-size"]), epochs=int(config["epochs"])),
        population=CLIENTS,
        cohort=int(config["cohort"]),
        seed=int(config["seed"]),
        deadline=float(config["deadline"]),
        quorum=float(config["quorum"]),
        wait=240.0,
        rejoin=120.0,
        hosts="HOSTS",
        on_round=lambda _, record: print(f"accepted in round {record.round + 1}: {list(record.clients)}"),
    )
    strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=int(config["num-rounds"]))
    print(f"final state: {fingerprint(strategy.state)}")
"""


class Fleet(Deployment):
    """A deployment whose server has a list of hosts."""

    def hosts(self, name: str, given: dict[str, str]) -> Path:
        """A list of hosts: the clients of each node, as a range."""
        path = self.work / name
        lines = []
        for node, clients in given.items():
            key = (self.work / "keys" / f"{node}.pub").read_text().strip()
            lines.append(f"[{node}]\nkey = {json.dumps(key)}\nclients = [{json.dumps(clients)}]\n")
        path.write_text("".join(lines))
        return path

    def submit_with(self, hosts: Path, **config: Any) -> str:
        """Start a run of the app's clients, with a server of its own; its number."""
        folder = self.work / f"app-{hosts.stem}"
        shutil.copytree(NEW_APP, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        (folder / "app" / "server.py").write_text(SERVER.replace("HOSTS", str(hosts)))
        given = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
        return str(json.loads(self.flwr("run", str(folder), "tls", "--format=json", "-c", given))["run-id"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet(tmp_path_factory.mktemp("fleet"), NODES)) as it:
        yield it


@pytest.fixture(scope="module")
def own(fleet: Fleet) -> Path:
    """The list that gives every node what it claims."""
    return fleet.hosts("hosts.toml", {f"node{i}": f"{i}:12:{NODES}" for i in range(NODES)})


def test_a_killed_supernode_is_back_in_the_round_in_which_it_died(fleet: Fleet, own: Path) -> None:
    run = fleet.submit_with(own, num_rounds=3, pause=6.0, deadline=400.0)
    fleet.reaches(run, "node1", 1, 300)
    fleet.kill("node1")
    fleet.up()
    log = fleet.finish(run, 900)
    accepted, final = outcome(log)
    assert accepted == cohorts(3), log
    assert final == replay("fedfft-d", accepted)
    print(f"rounds took {seconds(log)} s")


def test_a_node_does_not_get_clients_that_belong_to_another(fleet: Fleet) -> None:
    given = {f"node{i}": f"{i}:12:{NODES}" for i in range(NODES)}
    given["node0"], given["node1"] = given["node1"], given["node0"]
    run = fleet.submit_with(fleet.hosts("swapped.toml", given), num_rounds=1)
    until(lambda: "Error" in fleet.log(run) or "final state" in fleet.log(run), 600, pause=2.0)
    log = fleet.log(run)
    assert "node1, node " in log and "claims clients of others: 1 (of node0)" in log, log
    assert "TooFewNodes" in log and "final state" not in log, log


@pytest.mark.parametrize("injection", range(int(os.environ.get("UNDRIFT_INJECTIONS", "5"))))
def test_r1_killed_supernodes_cost_their_own_clients_only(fleet: Fleet, own: Path, injection: int) -> None:
    fleet.up()
    draw, deadline = Random(injection), 40.0
    dead = draw.sample(range(NODES), 1 + injection % 3)
    run = fleet.submit_with(own, num_rounds=3, pause=5.0, deadline=deadline, quorum=0.1)
    for node in dead:
        fleet.reaches(run, f"node{node}", 1, 300)
    for node in dead:
        fleet.kill(f"node{node}")
    log = fleet.finish(run, 400)
    accepted, final = outcome(log)
    asked = cohorts(3)
    assert accepted[0] == asked[0], log
    assert set(accepted[1]) >= {client for client in asked[1] if client % NODES not in dead}, log
    assert not any(client % NODES in dead for client in accepted[2]), log
    assert max(seconds(log)) <= deadline + 2, log
    assert final == replay("fedfft-d", accepted)
    assert all(deploy.alive(fleet.work, f"node{node}") for node in range(NODES) if node not in dead)
    print(f"killed {dead}: rounds took {seconds(log)} s")
