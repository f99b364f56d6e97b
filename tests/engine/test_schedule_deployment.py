"""A schedule without a barrier on real SuperNodes over TLS: one is stopped, one killed, and the server killed.

`UNDRIFT_NODES` sets how many nodes there are.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from support.deployment import TOOLS, Deployment, deploy, running, until
from support.new_app import NEW_APP
from support.processes import run_module
from undrift.runs import verify

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.xdist_group("deployment"), *TOOLS]
NODES, ROUNDS = int(os.environ.get("UNDRIFT_NODES", "6")), 8
CLIENTS, STOPPED = 12, 20.0  # of the app; seconds


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("schedule"), nodes=NODES), 20) as it:
        yield it


def send_signal(fleet: Deployment, node: str, number: int) -> None:
    """Send a signal to all processes of a SuperNode: a machine that is suspended, or goes on."""
    pid = deploy.alive(fleet.work, node)
    assert pid
    os.killpg(pid, number)


def count_uploads(fleet: Deployment) -> int:
    """How many uploads the nodes have sent."""
    logs = [fleet.work / "logs" / f"node{number}.log" for number in range(NODES)]
    return sum(log.read_text(errors="replace").count("Sending: train message") for log in logs)


def phase(fleet: Deployment, run: str) -> tuple[int, str]:
    """The process of a run and what it does."""
    found = json.loads((fleet.folder(run) / "status.json").read_text())
    return int(found["process"]), str(found["phase"])


@pytest.mark.parametrize("method", ["fedbuff(3)", "scaffold + buffered(3)"])
def test_every_step_is_replayed_to_its_hash_with_nodes_and_server_killed(fleet: Deployment, method: str) -> None:
    """One node is suspended for 20 s and one killed for good; the server is killed in the middle of a buffer."""
    fleet.up()
    run, seconds = method.partition("(")[0].partition(" ")[0], dict[str, float]()
    config = {"run": run, "algorithm": method, "num_rounds": ROUNDS, "wait": 120.0, "nodes": NODES - 1}
    began = time.monotonic()
    fleet.submit(**config)
    until(lambda: fleet.rounds(run) >= 1, 240)
    seconds["first step"] = time.monotonic() - began
    suspended = time.monotonic()
    send_signal(fleet, "node1", signal.SIGSTOP)
    fleet.kill("node2")
    until(lambda: fleet.rounds(run) >= 3 and time.monotonic() - suspended >= STOPPED, 400)
    send_signal(fleet, "node1", signal.SIGCONT)
    done = fleet.rounds(run)
    until(lambda: fleet.rounds(run) > done, 240)
    sent = count_uploads(fleet)
    until(lambda: count_uploads(fleet) > sent, 120)  # one of the next buffer
    killed, (process, _) = time.monotonic(), phase(fleet, run)
    fleet.kill_server_app(run)
    last = fleet.submit(**config)
    until(lambda: phase(fleet, run)[0] != process, 120)
    seconds["server is back"] = time.monotonic() - killed
    until(lambda: phase(fleet, run)[1] == "training", 120)
    seconds["nodes have answered"] = time.monotonic() - killed
    fleet.finish(last, 600)
    seconds["all"] = time.monotonic() - began
    rows = [json.loads(line) for line in (fleet.folder(run) / "arrivals.jsonl").read_text().splitlines()]
    ended = [one for row in rows for one in row["arrivals"]]
    accepted = [one for one in ended if one["result"] == "accepted"]
    print(json.dumps({"method": method, "nodes": NODES, "steps": len(rows), "tasks": len(ended), **seconds}))
    assert len(rows) == ROUNDS and len({one["task"] for one in accepted}) == len(accepted) == 3 * ROUNDS
    assert max(one["age"] for one in accepted) > 0
    assert {one["client"] for one in ended if one["result"] == "cancelled"} <= set(range(2, CLIENTS, NODES))
    path = os.pathsep.join([*sys.path, str(NEW_APP)])
    said = run_module("undrift", "replay", fleet.folder(run), "--task", "app.task:task", PYTHONPATH=path)
    assert f"{ROUNDS} steps, {3 * ROUNDS} uploads" in said and "every step ended as in the run" in said
    assert verify(fleet.folder(run)).steps == ROUNDS and fleet.status(run)["restarts"] == 1
