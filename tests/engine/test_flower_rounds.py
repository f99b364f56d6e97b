"""The Flower engine: nodes that are slow, too few, dead or come back."""

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from support.flower import ALL, TASK, Clock, grid_of, reference, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower import true_clock as true_clock
from support.flower_grid import StandInGrid
from undrift import make
from undrift.core.model.random import cohort
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.core.server import wire
from undrift.engine.flower.node import client_app as flower_client
from undrift.engine.flower.node.client_app import client_app
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.worker.job import Job
from undrift.testing import fingerprint


@pytest.mark.sweep(every=2)
def test_the_deadline_holds_on_the_true_clock(real_time: None, tmp_path: Path) -> None:
    grid = grid_of("fedavg", 3, tmp_path)
    grid.delay = {0: 600.0}
    began = time.monotonic()
    strategy = strategy_of("fedavg", deadline=4.0, quorum=0.0, wait=60.0)
    start(strategy, grid, 1)
    assert 4.0 <= strategy.records[0].seconds <= 30.0 and time.monotonic() - began < 60
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", [c for c in ALL if c % 3]))


def test_a_slow_node_holds_nobody_up_and_its_late_reply_never_enters(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)
    grid.delay = {0: 30.0}  # it replies in the next round
    late: list[Any] = []

    def after(state: ServerState, record: Any) -> None:
        late.extend(key for key in grid.pushed if key not in late)

    strategy = strategy_of("scaffold", quorum=0.0, on_round=after)
    start(strategy, grid)
    assert all(20.0 <= record.seconds < 22.0 for record in strategy.records) and clock.now < 1000 + 3 * 22
    fast = [client for client in ALL if client % 3]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", fast, fast, fast))
    assert len(late) == 3 and strategy.records[0].absent[0][1].endswith("no reply in time")
    # What came too late is asked for in no later round.
    looks = [keys[0] for keys in grid.pulls if keys[0] in late]
    assert looks == sorted(looks, key=late.index) and set(looks) == set(late)


def test_a_deadline_may_be_later_than_the_timeout(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("fedavg", 2, tmp_path)
    grid.delay = {0: 5000.0}
    strategy = strategy_of("fedavg", deadline=7200.0, poll=10.0, wait=600.0)
    start(strategy, grid, 1)
    assert not strategy.records[0].absent and 5000.0 <= strategy.records[0].seconds < 5100.0
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL))


def test_a_round_may_close_early_once_its_quorum_is_reached(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("fedavg", 8, tmp_path)
    grid.delay = {7: 60.0}
    strategy = strategy_of("fedavg", deadline=60.0, quorum=0.75, grace=0.1)
    start(strategy, grid, 2)
    assert clock.now < 1000 + 10
    assert all(len(record.clients) >= 6 and 7 not in record.clients for record in strategy.records)


def test_below_quorum_a_round_is_abandoned_and_leaves_no_trace(tmp_path: Path) -> None:
    grid = grid_of("scaffold", 4, tmp_path)
    strategy = strategy_of("scaffold", quorum=0.6)

    def after(state: ServerState, record: Any) -> None:
        grid.dropped = {0, 2} if record.round == 0 else set()

    strategy.on_round = after
    result = start(strategy, grid)
    assert [record.abandoned for record in strategy.records] == [False, True, False]
    assert result.train_metrics_clientapp[2]["abandoned"] == 1
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, [], ALL))


def test_over_selection_draws_more_and_counts_all(tmp_path: Path) -> None:
    strategy = strategy_of("feddyn", cohort=3, over_selection=1.5)
    start(strategy, grid_of("feddyn", 3, tmp_path))
    assert fingerprint(state_of(strategy)) == fingerprint(reference("feddyn"))
    assert strategy.size == 5 and strategy_of("feddyn", cohort=6, over_selection=2).size == 8
    drawn = {v.client for v in strategy.records[0].visits} | {r.client for r in strategy.records[0].rejections}
    assert drawn == set(cohort(3, 0, 8, 5))


def test_a_connection_that_fails_now_and_then_costs_nothing_but_time(tmp_path: Path) -> None:
    class Flaky(StandInGrid):
        def get_node_ids(self) -> Any:
            return self.fail() or super().get_node_ids()  # type: ignore[func-returns-value]

        def pull_messages(self, message_ids: Any) -> Any:
            return self.fail() or super().pull_messages(message_ids)  # type: ignore[func-returns-value]

        def fail(self) -> None:
            if self.random.random() < 0.3:
                raise ConnectionResetError("reset by peer")

    strategy = strategy_of("scaffold")
    start(strategy, Flaky(client_app(Job(make("scaffold"), TASK)), 3, tmp_path))
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL))


def test_a_message_that_cannot_be_sent_costs_its_clients_only(tmp_path: Path) -> None:
    class Full(StandInGrid):
        def push_messages(self, messages: Any) -> Any:
            (message,) = messages
            part = self.nodes[message.metadata.dst_node_id].node_config["partition-id"]
            if message.metadata.message_type == "train" and part < 2:  # type: ignore[operator]
                return [None] if part else self.refuse()
            return super().push_messages([message])

        def refuse(self) -> None:
            raise RuntimeError("too large")

    strategy = strategy_of("fedavg", quorum=0.0)
    start(strategy, Full(client_app(Job(make("fedavg"), TASK)), 8, tmp_path), 1)
    assert [client for client, why in strategy.records[0].absent if "not sent" in why] == [0, 1]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL[2:]))


def test_too_few_nodes_are_a_typed_error(clock: Clock, tmp_path: Path) -> None:
    with pytest.raises(TooFewNodes, match=r"2 of 3 nodes connected within 0.2 seconds"):
        start(strategy_of("fedavg", nodes=3, wait=0.2), grid_of("fedavg", 2, tmp_path))
    lonely = grid_of("fedavg", 4, tmp_path)
    lonely.kill(3)
    with pytest.raises(TooFewNodes, match=r"3 nodes host 6 of 8 clients after 0.5 seconds; wanted: all of them"):
        start(strategy_of("fedavg", wait=0.5), lonely)
    with pytest.raises(TooFewNodes, match="0 of 1 nodes connected"):
        start(strategy_of("fedavg", wait=0.1), grid_of("fedavg", 0, tmp_path))
    dying = grid_of("fedavg", 1, tmp_path)
    strategy = strategy_of("fedavg", wait=0.2, on_round=lambda state, record: dying.kill(0))
    with pytest.raises(TooFewNodes, match=r"all nodes disconnected and none reconnected within 0.2 seconds"):
        start(strategy, dying)
    assert state_of(strategy).round == 1 and clock.now < 1000 + 10


def test_a_run_in_which_nothing_arrives_ends(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 2, tmp_path)
    with pytest.raises(
        TooFewNodes, match=r"3 rounds in a row below quorum; .*this node runs Algorithm\(\), the server"
    ):
        start(strategy_of("scaffold"), grid, 10)


def test_a_run_that_stays_below_its_quorum_ends(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 4, tmp_path)
    grid.dropped = {0, 1, 2}
    strategy = strategy_of("fedavg", patience=2)
    with pytest.raises(TooFewNodes, match="2 rounds in a row below quorum; start more nodes, or lower it; round 2: 2"):
        start(strategy, grid, 10)
    assert [len(record.visits) for record in strategy.records] == [2, 2]


def test_a_client_has_one_node(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 3, tmp_path)
    grid.join(1)
    strategy = strategy_of("fedavg")
    start(strategy, grid)  # the later claim is rejected, and the run is that of the other nodes
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL, ALL, ALL))
    few = grid_of("fedavg", 3, tmp_path)
    few.kill(2)
    few.join(1)
    with pytest.raises(TooFewNodes, match=r"nodes host 6 of 8 clients .* client 1 is claimed by node .* partition-id"):
        start(strategy_of("fedavg"), few)
    late = grid_of("fedavg", 3, tmp_path)
    strategy = strategy_of("fedavg", on_round=lambda state, record: late.join(1) if record.round == 0 else None)
    start(strategy, late, 4)  # one that comes later is not heard while the first is there
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL, ALL, ALL, ALL))


def test_a_node_that_dies_and_comes_back_goes_on_with_its_clients_states(tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)
    grid.lazy = 0.0

    def after(state: ServerState, record: Any) -> None:
        flower_client._workers.clear()  # every message finds a new process
        if record.round == 0:
            grid.kill(1)
        if record.round == 1:
            grid.join(1)

    strategy = strategy_of("scaffold", on_round=after, quorum=0.3)
    start(strategy, grid)
    left = [client for client in ALL if client % 3 != 1]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, left, ALL))
    assert strategy.records[1].absent == ((1, "no node hosts it"), (4, "no node hosts it"), (7, "no node hosts it"))


def test_a_lost_state_is_named_and_the_round_goes_on(tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)

    def after(state: ServerState, record: Any) -> None:
        for path in tmp_path.rglob("4/0"):
            path.unlink()

    strategy = strategy_of("scaffold", on_round=after)
    start(strategy, grid, 2)
    (lost,) = [r for r in strategy.records[1].rejections if r.client == 4]
    assert lost.reason is Reason.FAILED
    assert "no state of client 4 after round 1" in lost.detail


@pytest.mark.parametrize("name", ["fedavgm", "scaffold", "feddyn"])
def test_a_server_goes_on_from_its_state(name: str, tmp_path: Path) -> None:
    first = strategy_of(name, cohort=5)
    start(first, grid_of(name, 3, tmp_path), 2)
    flower_client._workers.clear()
    state = wire.from_bytes(ServerState, make(name), wire.to_bytes(state_of(first)), len(state_of(first).params))
    second = strategy_of(name, cohort=5, state=state)
    result = start(second, grid_of(name, 3, tmp_path), 2)
    assert fingerprint(state_of(second)) == fingerprint(reference(name, 4))
    assert set(result.train_metrics_clientapp) == {3, 4}


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong in ({"cohort": 9}, {"quorum": 2.0}, {"over_selection": 0.5}, {"seed": 2**64}, {"run": "../up"}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if "run" not in wrong else "not a valid run name"):
            strategy_of("fedavg", **wrong)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bound": -1.0}, "bound must be a positive norm, got -1.0; None allows any"),
        ({"deadline": 0.0}, "deadline must be a positive number of seconds, got 0.0; None takes the timeout"),
        ({"deadline": float("nan")}, "deadline must be a positive number of seconds, got nan"),
        ({"grace": -1.0}, "grace must be 0 or more seconds, got -1.0; None waits until the deadline"),
        ({"nodes": 0}, "nodes must be 1 or more, got 0; None waits until every client has a node"),
        ({"wait": -1.0}, "wait must be 0 or more seconds, got -1.0"),
        ({"poll": 0.0}, "poll must be a positive number of seconds, got 0.0"),
        ({"patience": 0}, "patience must be 1 or more rounds, got 0"),
    ],
)
def test_limits_that_no_round_can_meet_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        strategy_of("fedavg", **given)


def test_a_resumed_run_needs_its_quorum_only(clock: Clock, tmp_path: Path) -> None:
    """Node 0 has left for good: a new run waits for it and fails, a resumed one continues after the wait."""
    state = rounds_of("scaffold", ALL)
    grid = grid_of("scaffold", 3, tmp_path)
    start(strategy_of("scaffold", run="it"), grid, 1)
    grid.kill(0)
    with pytest.raises(TooFewNodes, match="2 nodes host 5 of 8 clients after 2 seconds; wanted: all of them"):
        start(strategy_of("scaffold"), grid, 1)
    for nodes in (None, 3):
        resumed = strategy_of("scaffold", run="it", state=state, nodes=nodes)
        began = clock.now
        start(resumed, grid, 1)
        assert 2.0 <= clock.now - began < 4.0 and len(resumed.records[0].absent) == 3
    with pytest.raises(TooFewNodes, match="2 nodes host 5 of 8 clients"):
        start(strategy_of("scaffold", run="it", state=state, quorum=0.9), grid, 1)
