"""Schedules without a barrier on Flower: nodes get a task when they report, and a trace makes every step again."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord

from support import deploy_runs
from support.flower import LOCAL, own_clock  # noqa: F401  a fixture
from support.flower_grid import StandInGrid
from undrift import Simulation, parse
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.core.server.wire import fingerprint, from_bytes, to_bytes
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.flower.server.tally import RoundRecord
from undrift.engine.round.arrivals import arrival_row
from undrift.flower import AdaptiveBound, Job, UndriftStrategy, client_app, edge_app
from undrift.runs import replay, verify
from undrift.testing import clinic

METHODS = ["fedavg + buffered(3)", "scaffold + buffered(4)", "feddyn + buffered(3, restart='flush')", "fedbuff(2)"]
METHODS += ["fedasync", "krum + buffered(4)", "ca2fl(3)"]


class Deployed:
    """A strategy on a stand-in grid, with every state and the trace."""

    def __init__(self, method: str, root: Path, nodes: int = 3, seed: int = 0, **settings: Any) -> None:
        self.algorithm = parse(method)
        self.task = clinic(self.algorithm)
        self.grid = StandInGrid(client_app(Job(self.algorithm, self.task, depth=2)), nodes, root, seed)
        self.states, self.records, self.rows = list[ServerState](), list[RoundRecord](), list[dict[str, Any]]()
        given = {"population": 8, "cohort": 5, "seed": 3, "wait": 2.0, "poll": 0.01, "deadline": 20.0, **settings}
        self.strategy = UndriftStrategy(self.algorithm, self.task.model(), LOCAL, on_round=self.keep, **given)

    def keep(self, state: ServerState, record: RoundRecord) -> None:
        assert record.plan is not None
        self.states.append(state)
        self.records.append(record)
        self.rows.append(arrival_row(state, record.plan, record.outcomes))

    def start(self, rounds: int) -> "Deployed":
        self.strategy.start(self.grid, ArrayRecord(self.task.model().state_dict()), rounds)
        return self

    @property
    def arrived(self) -> list[dict[str, Any]]:
        return [one for row in self.rows for one in row["arrivals"]]

    def check_replay(self, before: "Deployed | None" = None) -> None:
        """Every step again in one process, from the trace alone."""
        rows = [*(before.rows if before else ()), *self.rows]
        states = [*(before.states if before else ()), *self.states]
        simulation = Simulation(self.algorithm, self.task, LOCAL, cohort=5, seed=3)
        state = simulation.start()
        for expected, row in zip(states, rows, strict=True):
            state, _ = simulation.round(state, trace=row)
            assert fingerprint(state) == fingerprint(expected), f"step {state.round}"


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("method", METHODS)
def test_a_run_on_nodes_is_replayed_in_one_process_to_the_same_hash_after_every_step(
    method: str, tmp_path: Path
) -> None:
    run = Deployed(method, tmp_path)
    run.grid.delay[0] = 0.3  # one node is slow
    run.start(8).check_replay()
    accepted = [one for one in run.arrived if one["result"] == "accepted"]
    assert len({one["task"] for one in accepted}) == len(accepted)
    size = run.algorithm.schedule.enough(5)
    assert {len(record.visits) for record in run.records} == {size} and len(accepted) == 8 * size
    assert all(one["age"] >= 0 and one["end"] >= one["begun"] for one in accepted)
    assert max(one["age"] for one in accepted) > 0 or "flush" in method
    for state in run.states:
        assert state.flight is not None
        flying = Counter(state.flight.tasks[:, 1].tolist())
        assert max(flying.values(), default=0) <= 1
        data = to_bytes(state)
        assert fingerprint(from_bytes(ServerState, run.algorithm, data, len(state.params))) == fingerprint(state)


def test_a_stale_reply_is_rejected_with_its_age_and_its_client_keeps_its_state(tmp_path: Path) -> None:
    run = Deployed("scaffold + buffered(2, max_age=1)", tmp_path)
    run.grid.delay[0] = 0.5
    run.start(10).check_replay()
    late = [
        (before, after, r)
        for before, after, record in zip(run.states, run.states[1:], run.records[1:], strict=False)
        for r in record.rejections
        if r.reason is Reason.STALE
    ]
    assert late and all(int(rejection.detail.removeprefix("age ")) > 1 for *_, rejection in late)
    for before, after, rejection in late:
        assert after.accepted.get(rejection.client) == before.accepted.get(rejection.client)


def test_a_server_that_is_killed_sends_what_was_in_flight_again(tmp_path: Path) -> None:
    first = Deployed("scaffold + buffered(4)", tmp_path / "nodes").start(3)
    lost = Deployed("scaffold + buffered(4)", tmp_path / "nodes", state=first.states[-1], seed=5)
    lost.strategy.on_round = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # killed before its step is stored
    with pytest.raises(KeyboardInterrupt):
        lost.start(1)
    state = from_bytes(ServerState, first.algorithm, to_bytes(first.states[-1]), len(first.states[-1].params))
    second = Deployed("scaffold + buffered(4)", tmp_path / "nodes", state=state, seed=9).start(5)
    second.check_replay(first)
    assert state.flight is not None and second.states[0].flight is not None
    again = {int(number) for number in state.flight.tasks[:, 0]}
    assert again & {one["task"] for one in second.arrived}
    assert [row["time"] for row in (*first.rows, *second.rows)] == sorted(
        row["time"] for row in (*first.rows, *second.rows)
    )


def test_an_edge_server_passes_on_tasks_without_a_barrier(tmp_path: Path) -> None:
    run = Deployed("scaffold + buffered(3)", tmp_path)
    below = run.grid
    app = edge_app(run.algorithm, lambda _: below, nodes=3, poll=0.01)
    run.grid = StandInGrid(app, 1, tmp_path / "top")
    run.start(6).check_replay()


def test_a_server_that_comes_back_waits_for_two_messages_of_a_node_at_most(tmp_path: Path) -> None:
    """A SuperNode works on one message at a time, in order, also on those of a server that is gone."""
    first = Deployed("fedavg + buffered(4)", tmp_path, nodes=1, cohort=8)
    first.grid.pace = {0: 1.0}
    first.start(1)
    second = Deployed("fedavg + buffered(4)", tmp_path, nodes=1, cohort=8, state=first.states[-1], wait=3.5)
    second.grid = first.grid
    second.start(2).check_replay(first)


def test_a_node_that_restarts_gets_its_tasks_again_and_one_that_is_gone_holds_nobody_up(tmp_path: Path) -> None:
    run = Deployed("scaffold + buffered(3)", tmp_path, rejoin=0.3, poll=0.05)
    run.grid.delay = {0: 0.4, 1: 0.1, 2: 0.1}
    run.grid.later(0.2, lambda: run.grid.restart(0))
    run.grid.later(0.5, lambda: run.grid.kill(1))
    run.start(25).check_replay()
    cancelled = [one for one in run.arrived if one["result"] == "cancelled"]
    assert cancelled and all(one["client"] % 3 == 1 for one in cancelled)
    assert any("node" in why for record in run.records for _, why in record.absent)
    assert all(len(record.visits) == 3 for record in run.records)


def test_a_client_that_fails_is_rejected_and_waits_for_the_next_step(tmp_path: Path) -> None:
    run = Deployed("fedavg + buffered(4)", tmp_path)
    run.grid.faults[1] = lambda message, reply: run.grid.error(message, "broken")
    run.start(4).check_replay()

    def broken(message: Any, reply: Any) -> Any:
        reply.content.config_records["undrift"]["round"] = 99
        return reply

    other = Deployed("fedavg + buffered(4)", tmp_path / "other")
    other.grid.faults[1] = broken
    other.start(4).check_replay()
    rejected = [one for one in other.arrived if one["result"] == "round"]
    assert rejected and {one["client"] % 3 for one in rejected} == {1}
    for row in other.rows:
        times = Counter(one["client"] for one in row["arrivals"] if one["result"] == "round")
        assert max(times.values(), default=0) <= 1


def test_the_timer_makes_a_step_of_what_arrived_and_none_of_nothing(tmp_path: Path) -> None:
    run = Deployed("fedavg + buffered(6, restart='flush', concurrency=8)", tmp_path, deadline=0.5)
    run.grid.delay[0] = run.grid.delay[1] = 3.0
    run.start(2).check_replay()
    assert 0 < len(run.records[0].visits) < 6 and not run.records[0].abandoned
    run = Deployed("fedavg + asynchronous", tmp_path, deadline=0.5, patience=2)
    run.grid.dropped = {0, 1, 2}
    with pytest.raises(TooFewNodes, match="2 rounds in a row below quorum"):
        run.start(4)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"adaptive": AdaptiveBound()}, "adaptive"),
        ({"grace": 1.0}, "grace"),
        ({"secure": True}, "secure"),
        ({"share": 0.5}, "share"),
        ({"over_selection": 1.5}, "over_selection"),
    ],
)
def test_options_about_a_whole_cohort_are_refused(given: dict[str, Any], name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"{name}: schedule=Buffered.* has no rounds of a cohort; leave {name} out"):
        Deployed("fedavg + buffered(3)", tmp_path, **given)


def test_what_cannot_run_on_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"OverSelected.*give over_selection= with grace="):
        Deployed("fedavg + over-selected(1.5)", tmp_path)
    with pytest.raises(ValueError, match="in flight as the buffer takes, got 5 and size=6"):
        Deployed("fedavg + buffered(6, restart='flush')", tmp_path)
    run = Deployed("fedavg + buffered(3)", tmp_path)
    with pytest.raises(RuntimeError, match="a schedule without a barrier has no rounds; call start"):
        run.strategy.configure_train(1, ArrayRecord(run.task.model().state_dict()), ConfigRecord(), run.grid)


def test_a_deployments_folder_has_a_trace_that_is_replayed_and_verified(tmp_path: Path) -> None:
    """Also of a run that was ended in the middle of a buffer and went on."""
    method = "scaffold + buffered(3)"

    def stopped(state: ServerState, _: Any) -> None:
        if state.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy_runs.deployed(method, tmp_path, on_round=stopped)
    outcome = deploy_runs.deployed(method, tmp_path)
    found = replay(outcome.folder, task=clinic(parse(method)))
    assert found.same and found.steps == deploy_runs.ROUNDS and found.sha256 == outcome.sha256
    assert verify(outcome.folder).steps == deploy_runs.ROUNDS
    rows = [json.loads(line) for line in (outcome.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row["clients"] == 3 and row["in_flight"] > 0 and "age" in row for row in rows)
    with pytest.raises(ValueError, match="does not follow durations: tasks take as long as they take"):
        deploy_runs.deployed(method, tmp_path / "other", settings={"durations": 2.0})
