"""The Flower engine on a SuperLink: uploads that trickle, stop, or are larger than what was ordered."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Message

from support.flower import ALL, Clock, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower import true_clock as true_clock
from support.http_grid import http_grid
from undrift.testing import fingerprint

FAST = [client for client in ALL if client % 3]
COUNTED = [client for client in FAST if client != 1]  # client 1 has no examples


@pytest.mark.sweep(every=2)
def test_a_trickle_of_objects_holds_no_other_node(real_time: None, tmp_path: Path) -> None:
    grid, link = http_grid(grid_of("scaffold", 3, tmp_path))
    link.trickle = {0: 0.7}
    strategy = strategy_of("scaffold", deadline=1.5, quorum=0.0, wait=60.0, poll=0.05)
    start(strategy, grid, 2)
    assert all(record.seconds <= 1.5 + 2.0 for record in strategy.records)
    assert [list(record.clients) for record in strategy.records] == [COUNTED, COUNTED]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", FAST, FAST))


def test_a_late_upload_is_deleted_and_enters_no_later_round(clock: Clock, tmp_path: Path) -> None:
    """Node 0 announces its reply in the round and uploads it in the next, node 1 replies after the deadline."""
    nodes = grid_of("scaffold", 3, tmp_path)
    grid, link = http_grid(nodes)
    link.trickle, nodes.delay = {0: 1.9}, {1: 25.0}
    strategy = strategy_of("scaffold", quorum=0.0)
    start(strategy, grid, 3)
    third = [client for client in ALL if client % 3 == 2]
    assert all(record.seconds <= 22.0 for record in strategy.records)
    assert [list(record.clients) for record in strategy.records] == [third] * 3
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", third, third, third))
    assert len(link.stored) <= 1, "the SuperLink's database does not grow with late replies"


def test_a_cut_upload_costs_its_own_clients_only(clock: Clock, tmp_path: Path) -> None:
    grid, link = http_grid(grid_of("fedavg", 3, tmp_path))
    link.cut = {0: 3}
    strategy = strategy_of("fedavg", quorum=0.0)
    start(strategy, grid, 1)
    assert list(strategy.records[0].clients) == COUNTED and 20.0 <= strategy.records[0].seconds <= 22.0
    assert strategy.records[0].absent[0][1].endswith("no reply in time") and not link.stored


def test_uploads_of_any_pace_give_the_bits_of_one_process(clock: Clock, tmp_path: Path) -> None:
    grid, link = http_grid(grid_of("scaffold", 3, tmp_path))
    link.trickle = {0: 0.3, 1: 0.1}
    strategy = strategy_of("scaffold")
    start(strategy, grid, 3)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL))
    assert not link.stored


def test_an_oversized_reply_is_refused_before_it_is_fetched(clock: Clock, tmp_path: Path) -> None:
    """400 MB where a few KB were expected, and a tree of a thousand small objects."""
    nodes = grid_of("fedavg", 3, tmp_path)
    grid, link = http_grid(nodes)

    def large(message: Message, reply: Message) -> Message:
        reply.content["more"] = ArrayRecord({"x": Array("uint8", (40_000_000,), "undrift.raw", bytes(40_000_000))})
        return reply

    def many(message: Message, reply: Message) -> Message:
        for number in range(1000):
            reply.content[f"more{number}"] = ConfigRecord({"x": number})
        return reply

    nodes.faults = {0: large, 1: many}
    strategy = strategy_of("fedavg", quorum=0.0)
    start(strategy, grid, 1)
    why = {rejection.client: rejection.detail for rejection in strategy.records[0].rejections}
    assert "more than the" in why[0] and "objects, at most" in why[1] and 2 not in why
    assert sum(link.fetched.values()) < 8_000_000 and len(link.fetched) < 200 and not link.stored


def test_many_replies_are_requested_at_once(clock: Clock, tmp_path: Path) -> None:
    grid, link = http_grid(grid_of("fedavg", 8, tmp_path))
    strategy = strategy_of("fedavg", poll=0.5)
    start(strategy, grid, 1)
    sweeps = link.requests.count("PullMessages")
    assert not strategy.records[0].absent and sweeps < 60, sweeps


def test_a_link_that_fails_now_and_then_costs_nothing_but_time(clock: Clock, tmp_path: Path) -> None:
    nodes = grid_of("scaffold", 3, tmp_path)
    grid, link = http_grid(nodes)

    def failing(name: str) -> None:
        if name != "PushMessages" and nodes.random.random() < 0.3:
            raise httpx.ReadError("database is locked")

    link.failing = failing
    strategy = strategy_of("scaffold")
    start(strategy, grid, 3)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL))


def test_a_reply_to_another_message_than_announced_is_refused(clock: Clock, tmp_path: Path) -> None:
    nodes = grid_of("fedavg", 2, tmp_path)
    grid, link = http_grid(nodes)
    pull = link.PullMessages

    def forged(request: object) -> object:
        response = pull(request)
        for message in response.messages_list:
            other = nodes.node_of(1) if message.metadata.src_node_id == nodes.node_of(0) else nodes.node_of(0)
            if message.metadata.message_type == "train" and other in keys:
                message.metadata.reply_to_message_id = keys[other]
        return response

    keys: dict[int, str] = {}
    link.PullMessages = forged  # type: ignore[method-assign, assignment]
    push = link.PushMessages

    def noted(request: Any) -> object:
        for message in request.messages_list:
            if message.metadata.message_type == "train":
                keys[message.metadata.dst_node_id] = message.metadata.message_id
        return push(request)

    link.PushMessages = noted  # type: ignore[method-assign, assignment]
    strategy = strategy_of("fedavg", quorum=0.0, patience=9)
    start(strategy, grid, 1)
    assert not strategy.records[0].clients and strategy.records[0].rejections
    assert all("it answers another message than announced" in r.detail for r in strategy.records[0].rejections)
