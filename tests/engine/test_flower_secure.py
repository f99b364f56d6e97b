"""Secure sums over Flower's messages: the bits of one process over the nodes that are left, and no upload sent."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from dataclasses import replace

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from support.flower import LOCAL, TASK, grid_of, start, state_of, strategy_of, task_of
from support.flower import own_clock as own_clock
from support.losing_grid import WORKING, Losing
from undrift import Simulation, make
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.core.server.wire import WireError
from undrift.engine.flower.secure_records import (
    pack_keys,
    read_step,
    read_terms,
    read_texts,
    step_content,
    unpack_keys,
    write_terms,
    write_texts,
)
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.flower.versions import NEWEST
from undrift.flower import AdaptiveBound, Job, client_app
from undrift.secure.exchange import STEPS
from undrift.secure.members import Terms
from undrift.secure.party import Party
from undrift.secure.settings import Secure
from undrift.testing import fingerprint

KEEP = replace(LOCAL, buffers="keep")
SECURE = Secure(least=3)


def losing(name: str, nodes: int, root: Path, lost: dict[str, set[int]]) -> Losing:
    grid = Losing(client_app(Job(make(name), task_of(name))), nodes, root)
    grid.lost, grid.seen = lost, []
    return grid


def expected(name: str, rounds: list[list[int]]) -> ServerState:
    """The state of one process after rounds with these clients."""
    simulation = Simulation(make(name), TASK, KEEP, seed=3)
    state = simulation.start()
    for clients in rounds:
        state, _ = simulation.round(state, clients)
    return state


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("nodes", [4, 8])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedfft-d"])
def test_the_state_is_that_of_one_process(name: str, nodes: int, tmp_path: Path) -> None:
    """A node with two clients is one party, which sends their sum."""
    strategy = strategy_of(name, local=KEEP, secure=SECURE)
    start(strategy, grid_of(name, nodes, tmp_path), rounds=2)
    assert fingerprint(state_of(strategy)) == fingerprint(expected(name, [WORKING] * 2))
    plain = strategy_of(name, local=KEEP)
    start(plain, grid_of(name, nodes, tmp_path / "plain"), rounds=2)
    assert fingerprint(state_of(plain)) == fingerprint(state_of(strategy))
    ours, other = strategy.records[-1], plain.records[-1]
    assert ours.norm == pytest.approx(other.norm) and ours.drift == pytest.approx(other.drift, abs=1e-9)
    assert {(visit.examples, visit.loss, visit.norm) for visit in ours.visits} == {(0, 0.0, 0.0)}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("step", STEPS)
def test_nodes_that_are_lost_in_a_step_are_left_out(step: str, tmp_path: Path) -> None:
    strategy = strategy_of("scaffold", local=KEEP, secure=SECURE)
    start(strategy, losing("scaffold", 8, tmp_path, {step: {2, 6}}), rounds=1)
    left = [0, 3, 4, 5, 7] if STEPS.index(step) < 3 else WORKING
    record = strategy.records[0]
    assert list(record.clients) == left and [r.client for r in record.rejections] == [1]
    assert dict(record.absent).keys() == set(WORKING) - set(left)
    assert record.seconds <= 20.1
    assert fingerprint(state_of(strategy)) == fingerprint(expected("scaffold", [left]))


def test_a_run_continues_after_a_node_was_lost(tmp_path: Path) -> None:
    grid = losing("scaffold", 8, tmp_path, {"masked": {2}})
    strategy = strategy_of("scaffold", local=KEEP, secure=SECURE)
    start(strategy, grid, rounds=1)
    grid.lost = {}
    again = strategy_of("scaffold", local=KEEP, secure=SECURE, state=strategy.state, run=strategy.run)
    start(again, grid, rounds=1)
    assert fingerprint(state_of(again)) == fingerprint(expected("scaffold", [[0, 3, 4, 5, 6, 7], WORKING]))


def test_nothing_but_the_masked_sum_is_on_the_wire(tmp_path: Path) -> None:
    strategy, grid = strategy_of("fedavg", local=KEEP, secure=SECURE), losing("fedavg", 8, tmp_path, {})
    start(strategy, grid, rounds=1)
    trained = [reply for reply in grid.seen if reply.metadata.message_type == "train"]
    assert len(trained) == 8
    for reply in trained:
        records = reply.content
        assert set(records) == {"undrift", "arrays"}
        assert set(records["undrift"]) == {"version", "round", "summary"}
        assert set(json.loads(str(records["undrift"]["summary"]))) == {"clients", "rejections"}
        arrays = records.array_records["arrays"]
        assert [(name, array.dtype) for name, array in arrays.items()] in (
            [("masked", "uint8")],
            [],
        )
    named = {reply.content.config_records["undrift"].get("step") for reply in grid.seen}
    assert {step for step in named if isinstance(step, str)} == set(STEPS) - {"masked"}
    for context in grid.nodes.values():
        assert "undrift-secure" not in context.state, "secrets are deleted after the round"


@pytest.mark.parametrize(
    "fault",
    [
        lambda message, _: Message(RecordDict(), reply_to=message),
        lambda _, reply: shortened(reply),
        lambda _, reply: renamed(reply, {"clients": [0, 99], "rejections": []}),
        lambda _, reply: renamed(reply, {"clients": [], "rejections": "none"}),
    ],
)
def test_a_wrong_reply_drops_its_node(fault: Any, tmp_path: Path) -> None:
    strategy, grid = strategy_of("fedavg", local=KEEP, secure=SECURE), grid_of("fedavg", 8, tmp_path)
    grid.faults[5] = fault
    start(strategy, grid, rounds=1)
    left = [client for client in WORKING if client != 5]
    assert list(strategy.records[0].clients) == left and 5 in dict(strategy.records[0].absent)
    assert fingerprint(state_of(strategy)) == fingerprint(expected("fedavg", [left]))


def shortened(reply: Message) -> Message:
    array = reply.content.array_records["arrays"]["masked"]
    reply.content.array_records["arrays"]["masked"] = Array(
        dtype="uint8", shape=(len(array.data) - 13,), stype=array.stype, data=array.data[:-13]
    )
    return reply


def renamed(reply: Message, facts: dict[str, Any]) -> Message:
    reply.content.config_records["undrift"]["summary"] = json.dumps(facts)
    return reply


def test_a_sum_that_no_uploads_can_give_is_rejected(tmp_path: Path) -> None:
    """A node that adds noise of its own spoils the sum; what is left is out of range, and the model is not changed."""

    def spoil(_: Message, reply: Message) -> Message:
        array = reply.content.array_records["arrays"]["masked"]
        data = bytes(255 - byte for byte in array.data)
        reply.content.array_records["arrays"]["masked"] = Array(
            dtype="uint8", shape=array.shape, stype=array.stype, data=data
        )
        return reply

    strategy, grid = strategy_of("fedavg", local=KEEP, secure=SECURE), grid_of("fedavg", 8, tmp_path)
    grid.faults[5] = spoil
    start(strategy, grid, rounds=1)
    record = strategy.records[0]
    assert record.abandoned and {rejection.reason for rejection in record.rejections} == {Reason.EMPTY, Reason.SIZE}


def test_too_few_nodes_are_not_unmasked(tmp_path: Path) -> None:
    strategy = strategy_of("fedavg", local=KEEP, secure=Secure(least=7), patience=1)
    with pytest.raises(TooFewNodes, match="not unmasked"):
        start(strategy, losing("fedavg", 8, tmp_path, {"masked": {2}}), rounds=1)
    assert {rejection.reason for rejection in strategy.records[0].rejections} == {Reason.EMPTY, Reason.MASKED}
    before = Simulation("fedavg", TASK, KEEP).start()
    assert fingerprint(replace(state_of(strategy), round=0)) == fingerprint(before)


def test_a_node_for_secure_sums_refuses_orders_without_masks(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 8, tmp_path)
    for context in grid.nodes.values():
        context.node_config["secure"] = True
    strategy = strategy_of("fedavg", local=KEEP, patience=1)
    with pytest.raises(TooFewNodes, match="takes part in secure sums only"):
        start(strategy, grid, rounds=1)
    strategy = strategy_of("fedavg", local=KEEP, secure=True)
    start(strategy, grid, rounds=1)
    assert list(strategy.records[0].clients) == WORKING


def test_a_node_may_demand_more_parties_than_the_server(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 8, tmp_path)
    grid.nodes[grid.node_of(4)].node_config["secure-least"] = 5
    strategy = strategy_of("fedavg", local=KEEP, secure=SECURE)
    start(strategy, grid, rounds=1)
    assert dict(strategy.records[0].absent).keys() == {4}
    assert "this node demands 5" in dict(strategy.records[0].absent)[4]


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        ("median", {}, "takes uploads one by one"),
        ("fedavg", {"adaptive": AdaptiveBound()}, "an adaptive bound follows the norms of single clients"),
        ("fedavg", {"share": 0.5}, "share = 0.5 compares the weights of nodes"),
        ("fedavg", {"local": LOCAL}, "counters of batches"),
    ],
)
def test_what_cannot_be_secure_is_refused(method: str, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"secure: .*{why}"):
        strategy_of(method, **{"local": KEEP, "secure": True, **settings})


def test_flowers_own_loop_is_refused(tmp_path: Path) -> None:
    strategy = strategy_of("fedavg", local=KEEP, secure=True)
    with pytest.raises(RuntimeError, match="a secure sum takes several exchanges; call start"):
        strategy.configure_train(
            1, ArrayRecord(TASK.model().state_dict()), ConfigRecord(), grid_of("fedavg", 3, tmp_path)
        )


def test_messages_of_a_secure_sum_and_what_is_wrong_with_them() -> None:
    terms = Terms(Secure(least=4, neighbours=8), "run, round 1")
    assert read_terms(ConfigRecord(write_terms(terms, 7))) == (terms, 7)
    keys = Party(7, terms).advertise()
    assert unpack_keys(7, pack_keys(keys)) == keys
    texts = {3: b"three", 9: b""}
    step, record = read_step(step_content("shares", **write_texts(texts)))
    assert step == "shares" and read_texts(record) == texts
    with pytest.raises(WireError, match="step 'shares' of a secure sum, expected 'keys'"):
        read_step(step_content("shares"), "keys")
    with pytest.raises(WireError, match="keys: 3 bytes of party 7, expected 160"):
        unpack_keys(7, b"abc")
    for wrong in (
        {"parties": [1], "texts": []},
        {"parties": [1], "texts": ["text"]},
        {"parties": [1, 1], "texts": [b"", b""]},
    ):
        with pytest.raises(WireError, match=r"texts: expected|parties: one"):
            read_texts(ConfigRecord({"version": NEWEST, **wrong}))  # type: ignore[dict-item]
    with pytest.raises(WireError, match="least"):
        read_terms(ConfigRecord({**write_terms(terms, 7), "least": 1}))
