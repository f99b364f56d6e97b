"""The Flower engine: a node that leaves and comes back while a round waits is asked in that round, and counts once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Message

from support.flower import ALL, Clock, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from undrift.engine.flower.node import client_app as flower_client
from undrift.testing import fingerprint

FULL = [client for client in ALL if client != 1]  # client 1 has no examples
WHOLE = rounds_of("scaffold", ALL, ALL)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    flower_client._workers.clear()


def test_a_node_that_is_back_under_another_id_is_asked_in_the_round_that_runs(tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)
    grid.delay = {1: 6.0, 2: 12.0}
    grid.later(2.0, lambda: grid.kill(1))
    grid.later(5.0, lambda: grid.join(1))
    strategy = strategy_of("scaffold")
    start(strategy, grid, 2)
    assert [list(record.clients) for record in strategy.records] == [FULL, FULL]
    assert not any(record.absent for record in strategy.records)
    assert fingerprint(state_of(strategy)) == fingerprint(WHOLE)


def test_a_node_that_was_started_again_under_its_own_id_is_asked_again(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)
    grid.delay = {1: 6.0}
    grid.later(2.0, lambda: grid.restart(1))  # between two looks: it was never missing from the list
    strategy = strategy_of("scaffold")
    start(strategy, grid, 2)
    assert not any(record.absent for record in strategy.records) and clock.now < 1000 + 20
    assert fingerprint(state_of(strategy)) == fingerprint(WHOLE)


def test_a_node_whose_answer_is_lost_is_asked_again(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the SuperLink's database is locked: after 60 polls, then after 120."""
    grid = grid_of("fedavg", 3, tmp_path)
    send, asked = grid.push_messages, list[float]()

    def lose_two(messages: Iterable[Message]) -> Iterable[str]:
        for message, key in zip(messages, keys := list(send(messages)), strict=True):
            if message.metadata.message_type == "query" and message.metadata.dst_node_id == grid.node_of(1):
                asked.append(clock.now)
                if len(asked) <= 2:
                    del grid.pushed[key]
        return keys

    monkeypatch.setattr(grid, "push_messages", lose_two)
    strategy = strategy_of("fedavg", wait=300.0, poll=1.0)
    start(strategy, grid, 1)
    assert not any(record.absent for record in strategy.records) and len(asked) == 3
    assert [59 < wait < 125 for wait in (asked[1] - asked[0], asked[2] - asked[1])] == [True, True]


def test_a_round_waits_for_a_node_that_left_in_it_but_not_beyond_its_limits(clock: Clock, tmp_path: Path) -> None:
    for number, (back, rejoin, deadline, seconds) in enumerate(
        [(8.0, 10.0, 60.0, 8.0), (8.0, 3.0, 60.0, 5.0), (None, 30.0, 12.0, 12.0), (None, 0.0, 60.0, 2.0)]
    ):
        grid = grid_of("fedavg", 3, tmp_path / str(number))
        grid.delay = {1: 5.0}
        grid.later(2.0, lambda grid=grid: grid.kill(1))  # type: ignore[misc]
        if back is not None:
            grid.later(back, lambda grid=grid: (grid.delay.clear(), grid.join(1)))  # type: ignore[misc]
        strategy = strategy_of("fedavg", quorum=0.3, rejoin=rejoin, deadline=deadline, poll=0.1)
        start(strategy, grid, 1)
        (record,) = strategy.records
        assert seconds <= record.seconds <= seconds + 2, (number, record)
        here = FULL if number == 0 else [client for client in ALL if client % 3 != 1]
        assert list(record.clients) == here, number
        assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", here))


@pytest.mark.parametrize("first", ["old", "new"])
def test_of_two_replies_about_a_client_the_first_counts(first: str, tmp_path: Path) -> None:
    """The old node drops out of the list with its reply under way; its partition comes back under another ID."""
    grid = grid_of("scaffold", 4, tmp_path)
    old = grid.node_of(1)
    grid.delay = {1: 7.0, 3: 15.0}
    grid.later(2.0, lambda: grid.hidden.add(old))
    grid.later(3.0, lambda: grid.join(1))
    if first == "new":
        grid.later(4.0, lambda: grid.delay.update({1: 0.5}))  # for both; the new one is looked at as soon
    strategy = strategy_of("scaffold")
    start(strategy, grid, 2)
    assert [len(r.visits) for r in strategy.records] == [7, 7]
    assert not any(record.absent for record in strategy.records)
    assert fingerprint(state_of(strategy)) == fingerprint(WHOLE)
    assert sum(message.metadata.dst_node_id == old for message, _ in grid.pushed.values()) == 0


def test_a_late_sum_with_a_client_that_counted_already_is_left_out_as_a_whole(tmp_path: Path) -> None:
    """Another node takes over one of two clients; when the sum of both comes after all, nothing of it may count."""
    grid = grid_of("fedavg", 4, tmp_path)
    old = grid.node_of(2)
    grid.delay = {2: 6.0, 3: 15.0}

    def take_over() -> None:
        grid.hidden.add(old)
        grid.partitions = 8
        grid.join(6)  # of eight: client 6 alone
        grid.partitions = 4

    grid.later(2.0, take_over)
    strategy = strategy_of("fedavg", quorum=0.3)
    start(strategy, grid, 1)
    (record,) = strategy.records
    assert list(record.clients) == [0, 3, 4, 5, 6, 7]
    assert record.absent[0][0] == 2 and "after client 6 had been settled by another" in record.absent[0][1]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", [0, 3, 4, 5, 6, 7]))


def test_a_node_that_restarts_all_the_time_is_asked_three_times_at_most(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("fedavg", 3, tmp_path)
    grid.delay = {1: 600.0}
    for second in range(1, 19):
        grid.later(float(second), lambda: grid.restart(1))
    sent: list[Any] = []
    push = grid.push_messages

    def counting(messages: Any) -> Any:
        sent.extend(m for m in messages if m.metadata.message_type == "train")
        return push(messages)

    grid.push_messages = counting  # type: ignore[method-assign]
    strategy = strategy_of("fedavg", quorum=0.3, poll=0.1)
    start(strategy, grid, 1)
    assert sum(m.metadata.dst_node_id == grid.node_of(1) for m in sent) == 3 and len(sent) == 5
    assert strategy.records[0].seconds <= 22 and clock.now < 1030


def test_a_client_without_a_node_at_first_is_asked_when_its_node_joins(tmp_path: Path) -> None:
    grid = grid_of("scaffold", 3, tmp_path)

    def after(state: Any, record: Any) -> None:
        if record.round == 0:
            grid.kill(1)
            grid.delay = {2: 5.0}
            grid.later(2.0, lambda: grid.join(1))

    strategy = strategy_of("scaffold", on_round=after, quorum=0.3)
    start(strategy, grid, 2)
    assert [len(r.visits) for r in strategy.records] == [7, 7] and not strategy.records[1].absent
    assert fingerprint(state_of(strategy)) == fingerprint(WHOLE)
