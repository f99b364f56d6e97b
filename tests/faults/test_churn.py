"""Thirty SuperNodes over TLS for a hundred rounds: killed, stopped, slowed, leaving and joining at random."""

import json
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from faults.figures import record
from support.deployment import TOOLS, LightDeployment, load, outcome, running, seconds, until
from support.new_app import copy_app
from undrift import Local, Simulation, make
from undrift.testing import fingerprint

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(9000),
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]
NODES, FIRST, COHORT, ROUNDS, DEADLINE = 30, 26, 6, 100, 20.0
AWAY = 70.0  # seconds until a killed node may come back: the SuperLink waits for its heartbeats for a minute
METHOD = "scaffold"


@dataclass
class Churn:
    """What happens to the nodes: an event in every other round, drawn by its number.

    Args:
        it: the deployment.
    """

    it: LightDeployment
    counts: Counter[str] = field(default_factory=Counter)
    here: set[int] = field(default_factory=lambda: set(range(FIRST)))
    _due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def event(self, round: int) -> None:
        """Let something happen in a round."""
        draw = Random(round)
        kind = draw.choice([*4 * ["nothing"], "kill", "stop", "trickle", "leave", "join"])
        joins = kind == "join"
        nodes = sorted(set(range(NODES)) - self.here if joins else self.here)
        if kind == "nothing" or not nodes or (not joins and len(nodes) <= NODES // 2):
            return
        node = draw.choice(nodes)
        self.counts[kind] += 1
        if joins:
            self._later(0.0, node, lambda: self.it.start(node))
        elif kind == "trickle":
            self.it.trickle(node, 2 * DEADLINE)
            self._later(2 * DEADLINE, node, lambda: self.it.trickle(node, 0.0))
        elif kind == "stop":
            self.it.signal(node, signal.SIGSTOP)
            self._later(20.0, node, lambda: self.it.signal(node, signal.SIGCONT))
        else:
            self.it.signal(node, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            self._later(AWAY, node, lambda: self.it.start(node))

    def _later(self, after: float, node: int, act: Callable[[], None]) -> None:
        """Leave a node alone for some seconds, then do something to it."""

        def end() -> None:
            act()
            self.here.add(node)

        self.here.discard(node)
        self._due.append((time.monotonic() + after, end))

    def pass_time(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        due = [act for at, act in self._due if at <= now]
        self._due = [(at, act) for at, act in self._due if at > now]
        for act in due:
            act()


def replay(simulation: Simulation, log: Path) -> tuple[list[list[int]], str]:
    """The clients of each round by an audit log, and the fingerprint of the state after them, in one process.

    Args:
        simulation: that of the deployment, which draws its cohorts.
        log: the audit log, which has everyone who was drawn and does not count.
    """
    lost: dict[int, set[int]] = {}
    for event in map(json.loads, log.read_text().splitlines()):
        assert event["event"] != "abandoned", event
        if event["event"] in ("reject", "absent"):
            lost.setdefault(event["round"], set()).add(event["client"])
    state, counted = simulation.start(), list[list[int]]()
    for round in range(1, ROUNDS + 1):
        counted.append(sorted(set(simulation.sample(round - 1)) - lost.get(round, set())))
        state, _ = simulation.round(state, counted[-1])
    return counted, fingerprint(state)


def test_a_hundred_rounds_while_nodes_come_and_go(tmp_path: Path) -> None:
    """No round is late, no client counts twice, and the state is that of the clients in the audit log."""
    with running(LightDeployment(tmp_path / "it", NODES, clients=NODES, restarts=True), 30) as it:
        it.app = copy_app(it.work / "app-churn", NODES)
        churn = Churn(it)
        for node in sorted(churn.here):
            it.start(node)
        until(lambda: it.admitted() >= FIRST, 900)
        config: dict[str, Any] = {"algorithm": METHOD, "num_rounds": ROUNDS, "cohort": COHORT, "nodes": FIRST}
        run = it.submit(run="churn", deadline=DEADLINE, rejoin=0.0, quorum=0.1, **config)
        seen, end = 0, time.monotonic() + 8000
        while (done := it.rounds("churn")) < ROUNDS and time.monotonic() < end:
            if done > seen:
                seen = done
                churn.event(done)
            churn.pass_time()
            time.sleep(0.2)
        log = it.finish(run, 600)
        accepted, final = outcome(log)
        took = seconds(log)
        facts = {"nodes": NODES, "cohort": COHORT, "deadline": DEADLINE, "rounds": len(took)}
        facts |= {"slowest": max(took), "late": sum(x > DEADLINE + 2.0 for x in took)}
        facts |= {"full": sum(len(clients) == COHORT for clients in accepted), "events": sum(churn.counts.values())}
        twice = sum(len(clients) - len(set(clients)) for clients in accepted)
        record("R17", "churn over TLS", **facts, **dict(sorted(churn.counts.items())), counted_twice=twice)
        task, local = load(it.app / "app" / "task.py").task(), Local(lr=0.1, batch_size=10)
        again = Simulation(make(METHOD), task, local, cohort=COHORT, seed=0)
        assert (accepted, final) == replay(again, it.folder("churn") / "audit.jsonl")
        assert len(took) == ROUNDS and not facts["late"] and not twice
