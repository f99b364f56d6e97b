"""The Flower engine, row by row: killed and slow nodes, dropout, version skew, clocks and malformed object graphs."""

import json
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_object import get_object_head_values_from_object_content as head_of
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from support.flower import ALL, Clock, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower import true_clock as true_clock
from support.flower_grid import StandInGrid
from undrift.core.records.rejection import Reason
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.flower.versions import NEWEST
from undrift.flower import Quarantine
from undrift.testing import fingerprint

HAS_DATA = [client for client in ALL if client != 1]  # client 1 has no examples


# R1: k of n nodes killed in mid-round


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("injection", range(12))
def test_r1_killed_nodes_cost_their_own_clients_only(injection: int, clock: Clock, tmp_path: Path) -> None:
    draw = Random(injection)
    grid = grid_of("scaffold", 6, tmp_path, injection)
    dead = draw.sample(range(6), 1 + injection % 3)
    silent = injection % 2 == 0  # the SuperLink still lists a killed node for a minute

    def strike() -> None:
        for partition in dead:
            grid.dropped.add(partition) if silent else grid.kill(partition)

    def after(state: Any, record: Any) -> None:
        if record.round == 0:
            grid.delay = dict.fromkeys(dead, 6.0)
            grid.later(draw.uniform(0.0, 5.0), strike)
        for partition in dead if record.round == 1 else ():
            grid.kill(partition)  # its heartbeat is over

    strategy = strategy_of("scaffold", on_round=after, quorum=0.1, rejoin=3.0)
    start(strategy, grid, 3)
    left = [client for client in ALL if client % 6 not in dead]
    assert [list(r.clients) for r in strategy.records] == [HAS_DATA, *[[c for c in HAS_DATA if c in left]] * 2]
    assert all(record.seconds <= 20.0 + 2.0 for record in strategy.records)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, left, left))


# R2: dropout


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_r2_dropout_for_200_rounds(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quorum of half: no round is abandoned in vain, and below the quorum the model does not change."""
    import test_flower_machine as made_up

    monkeypatch.setattr("support.flower_grid.travel", lambda message: message)
    grid = StandInGrid(made_up.app, 9, tmp_path)  # type: ignore[arg-type]
    grid.lazy = 0.0
    draw, states = Random(int(10 * share)), []

    def drop(state: Any, record: Any) -> None:
        states.append(state.params.tolist())
        grid.faults = {p: made_up.broken for p in range(9) if draw.random() < share}

    strategy = made_up.UndriftStrategy(
        made_up.ALGORITHM,
        made_up.model(),
        made_up.LOCAL,
        population=9,
        seed=made_up.SEED,
        quorum=0.5,
        patience=200,
        on_round=drop,
    )
    expected = [p for x in made_up.model().parameters() for p in x.detach().flatten().tolist()]
    start(strategy, grid, 200, task=made_up)  # type: ignore[arg-type]
    assert len(strategy.records) == 200
    for record, state in zip(strategy.records, states, strict=True):
        assert record.abandoned == (len(record.visits) < 5)
        if not record.abandoned:
            expected = made_up.reference(expected, record.round, list(record.clients))
        assert state == [float(x) for x in expected], record.round
        assert len(record.absent) == 9 - len(record.visits), "each one that dropped out has a reason"
    abandoned = sum(record.abandoned for record in strategy.records)
    assert abandoned <= {0.1: 1, 0.3: 40, 0.5: 140}[share]


# R4: a client that sleeps ten times the deadline


@pytest.mark.sweep(every=4)
def test_r4_a_client_that_sleeps_ten_deadlines(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("scaffold", 6, tmp_path)
    grid.delay = {4: 200.0}
    strategy = strategy_of("scaffold", quorum=0.5)
    start(strategy, grid, 12)  # the sleeper's first reply is there in the eleventh round
    fast = [client for client in ALL if client != 4]
    assert all(record.seconds <= 20.0 + 2.0 for record in strategy.records) and clock.now <= 1000 + 12 * 22
    assert not any(4 in record.clients for record in strategy.records)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", *[fast] * 12))


# R14: too few nodes


def test_an_app_that_does_not_report_its_clients_is_named(tmp_path: Path) -> None:
    grid = StandInGrid(ClientApp(), 2, tmp_path)
    with pytest.raises(TooFewNodes, match=r"0 nodes host 0 of 8.*does not report its clients; call host\(app\)"):
        start(strategy_of("fedavg"), grid, 1)


def test_a_node_that_answered_later_is_not_named(tmp_path: Path) -> None:
    grid = StandInGrid(ClientApp(), 3, tmp_path)
    grid.kill(0)
    reporting = grid_of("fedavg", 0, tmp_path).app
    grid.later(0.5, lambda: setattr(grid, "app", reporting))
    with pytest.raises(TooFewNodes, match="2 nodes host 5 of 8 clients") as raised:
        start(strategy_of("fedavg"), grid, 1)
    assert "does not report its clients" not in str(raised.value)


def test_r14_too_few_nodes_end_the_wait_on_the_true_clock(real_time: None, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(TooFewNodes, match="0 of 1 nodes connected within 1 seconds"):
        start(strategy_of("fedavg", wait=1.0), grid_of("fedavg", 0, tmp_path))
    assert 1.0 <= time.monotonic() - began < 30.0
    assert strategy_of("fedavg", wait=300.0).wait == 300.0


# R15: other versions of the messages


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("version", [NEWEST - 1, NEWEST + 1, str(NEWEST), None])
def test_r15_a_node_with_another_message_schema(version: object, tmp_path: Path) -> None:
    """Its replies are refused with the reason; also what it says about its clients, and then it hosts nothing."""
    grid = grid_of("fedavg", 8, tmp_path)

    def other(message: Message, reply: Message) -> Message:
        record = reply.content.config_records["undrift"]
        head = {k: v for k, v in record.items() if k != "version"} | ({} if version is None else {"version": version})
        return Message(RecordDict({**reply.content, "undrift": ConfigRecord(head)}), reply_to=message)  # type: ignore[arg-type]

    grid.faults = {5: other}
    strategy = strategy_of("fedavg", quorum=0.5)
    start(strategy, grid, 2)
    for record in strategy.records:
        (refused,) = [r for r in record.rejections if r.client == 5]
        assert (
            refused.reason is (Reason.VERSION if isinstance(version, int) else Reason.TREE)
            and f"message version {version}, expected {NEWEST}" in refused.detail
        )
    left = [client for client in ALL if client != 5]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", left, left))

    old = grid_of("fedavg", 8, tmp_path / "old")
    app = old.app
    foreign = old.node_of(5)

    def asked(message: Message, context: Any) -> Message:
        reply = app(message, context)
        return other(message, reply) if context.node_id == foreign else reply

    old.app = asked  # type: ignore[assignment]
    strategy = strategy_of("fedavg", nodes=7, quorum=0.5)
    start(strategy, old, 2)
    assert dict(strategy.records[0].absent) == {5: "no node hosts it"}
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", left, left))


# R16: clocks


@pytest.mark.parametrize("step", [-600.0, 600.0])
@pytest.mark.sweep(every=2)
def test_r16_a_clock_that_jumps_in_mid_round(
    step: float, real_time: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock of the server jumps while replies are missing: the deadline is that of a monotonic clock."""
    grid = grid_of("fedavg", 4, tmp_path)
    grid.delay = {0: 600.0, 1: 1.0}
    wall, began = time.time, time.monotonic()
    monkeypatch.setattr(time, "time", lambda: wall() + (step if time.monotonic() - began > 0.5 else 0.0))
    strategy = strategy_of("fedavg", deadline=3.0, quorum=0.2, wait=60.0)
    start(strategy, grid, 1)
    (record,) = strategy.records
    assert 3.0 <= record.seconds <= 5.0 + 25.0
    here = [client for client in ALL if client % 4 != 0]
    assert list(record.clients) == [client for client in here if client != 1]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", here))


# S2: malformed object graphs, taken apart and put together by Flower's own code


def rebuilt(change: Any) -> Any:
    """A fault: the objects of a reply, as bytes by their names, become others before they are put together."""

    def fault(message: Message, reply: Message) -> Message:
        contents = {key: thing.deflate() for key, thing in get_all_nested_objects(reply).items()}
        kinds = {head_of(data)[0]: key for key, data in contents.items()}
        change(contents, reply.object_id, kinds)
        out: Any = inflate_object_from_contents(reply.object_id, contents)
        out.metadata.__dict__["_message_id"] = reply.metadata.message_id
        result: Message = out
        return result

    return fault


def header(kind: str, children: list[str], length: int) -> bytes:
    return f"{kind} {','.join(children)} {length}".encode() + b"\0"


def replaced(kind: str, make: Any) -> Any:
    """The body of an object of some kind becomes another; its children stay."""

    def change(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
        key = kinds[kind]
        name, children, _ = head_of(contents[key])
        body = make(contents[key].partition(b"\0")[2], children)
        contents[key] = header(name, children, len(body)) + body

    return change


def with_children(kind: str, make: Any) -> Any:
    """The children of an object of some kind become others."""

    def change(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
        key = kinds[kind]
        name, children, _ = head_of(contents[key])
        body = contents[key].partition(b"\0")[2]
        contents[key] = header(name, make(children, root, kinds), len(body)) + body

    return change


def dropped_child(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
    del contents[kinds["Array"]]


def retyped(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
    key = kinds["ArrayRecord"]
    contents[key] = contents[key].replace(b"ArrayRecord", b"MetricRecord", 1)


def unknown(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
    key = kinds["ConfigRecord"]
    contents[key] = contents[key].replace(b"ConfigRecord", b"os.system", 1)


def wide(contents: dict[str, bytes], root: str, kinds: dict[str, str]) -> None:
    """Twenty thousand names for one array."""
    key, child = kinds["ArrayRecord"], kinds["Array"]
    body = json.dumps({f"a{i}": 0 for i in range(20_000)}).encode()
    contents[key] = header("ArrayRecord", [child], len(body)) + body


GRAPHS = {
    "bad JSON": replaced("ArrayRecord", lambda body, children: b"{not json"),
    "bad UTF-8": replaced("ArrayRecord", lambda body, children: b"\xff\xfe\x00"),
    "bad index": replaced("ArrayRecord", lambda body, children: json.dumps({"x": 10**6}).encode()),
    "index of another type": replaced("ArrayRecord", lambda body, children: json.dumps({"x": "y"}).encode()),
    "a list for a table": replaced("RecordDict", lambda body, children: b"[1, 2]"),
    "deep nesting": replaced("ArrayRecord", lambda body, children: b"[" * 100_000),
    "cycle": with_children("ArrayRecord", lambda children, root, kinds: [root, *children]),
    "a child that does not exist": with_children("RecordDict", lambda children, root, kinds: ["0" * 64, *children]),
    "missing child": dropped_child,
    "wrong type": retyped,
    "unknown type": unknown,
    "huge tree": wide,
}


def test_a_round_whose_clients_are_all_in_quarantine_does_not_wait(clock: Clock, tmp_path: Path) -> None:
    grid = grid_of("fedavg", 8, tmp_path)
    grid.faults = dict.fromkeys(range(8), rebuilt(GRAPHS["wrong type"]))
    strategy = strategy_of("fedavg", wait=300.0, quarantine=Quarantine(after=1, rounds=5))
    start(strategy, grid, 2)
    assert len(strategy.records[0].rejections) == 8 and len(strategy.records[1].absent) == 8
    assert clock.now < 1000 + 30.0


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("graph", GRAPHS)
def test_s2_malformed_object_graphs(graph: str, tmp_path: Path) -> None:
    """The run survives, nothing of it counts, and its sender is in quarantine afterwards."""
    grid = grid_of("scaffold", 8, tmp_path)
    grid.faults = {5: rebuilt(GRAPHS[graph])}
    strategy = strategy_of("scaffold", quorum=0.5, quarantine=Quarantine(after=2, rounds=5))
    start(strategy, grid, 3)
    assert [r.reason for record in strategy.records[:2] for r in record.rejections if r.client == 5] == [
        Reason.TREE
    ] * 2
    assert strategy.records[1].quarantined[0][:2] == (5, 8)
    assert dict(strategy.records[2].absent)[5].startswith("quarantined until round 8")
    assert all(str(record).isprintable() for record in strategy.records)
    left = [client for client in ALL if client != 5]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", left, left, left))
