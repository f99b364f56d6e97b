"""The Flower engine: hostile and broken replies are rejected and leave no trace."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from support.flower import ALL, TASK, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from undrift import make
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.packed_sum import PackedSum
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.engine.flower.node.client_app import client_app
from undrift.engine.flower.records import decode, encode, refusal
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.worker.job import Job
from undrift.flower import Quarantine, RoundRecord
from undrift.testing import Clinic, fingerprint

MAIN = "*"  # the largest array of a reply: an upload's displacement, or the sum of several


def edited(name: str, change: Any) -> Any:
    """A fault: one array of the reply becomes another."""

    def fault(message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records["arrays"]
        place = name if name != MAIN else "delta" if "delta" in arrays else "delta/sum"
        arrays[place] = change(arrays[place])
        return reply

    return fault


def valued(name: str, change: Any) -> Any:
    """A fault: the values of one tensor of the reply become others."""
    return edited(name, lambda array: encode({"x": change(decode(ArrayRecord({"x": array}))["x"])})["x"])


def arrayed(**changed: Any) -> Any:
    """A fault: the description of the largest array becomes another."""

    def change(a: Array) -> Array:
        new = {name: value(a) if callable(value) else value for name, value in changed.items()}
        return Array(**{"dtype": a.dtype, "shape": a.shape, "stype": a.stype, "data": a.data, **new})

    return edited(MAIN, change)


def headed(**changed: Any) -> Any:
    """A fault: the reply's numbers become others."""

    def fault(message: Message, reply: Message) -> Message:
        for name, value in changed.items():
            reply.content.config_records["undrift"][name] = value
        return reply

    return fault


def holding(change: Any) -> Any:
    """A fault: the reply holds other records."""
    return lambda message, reply: Message(change(reply.content), reply_to=message)


def renamed(old: str, new: str) -> Any:
    """A fault: an array comes under another name."""

    def fault(message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records["arrays"]
        place = old if old != MAIN else "delta" if "delta" in arrays else "delta/sum"
        arrays[new] = arrays.pop(place)
        return reply

    return fault


def added(name: str, x: torch.Tensor) -> Any:
    """A fault: the reply holds an array too many."""

    def fault(message: Message, reply: Message) -> Message:
        reply.content.array_records["arrays"][name] = encode({name: x})[name]
        return reply

    return fault


def posing(*clients: int) -> Any:
    """A fault: the sum is said to be that of other clients."""
    summary = json.dumps({"visits": [[client, 5, 3, 1.0, 1.0, 1.0, 1.0, {}] for client in clients], "rejections": []})

    def fault(message: Message, reply: Message) -> Message:
        reply = headed(summary=summary)(message, reply)
        out: Message = valued("clients", lambda x: torch.tensor(clients))(message, reply)
        return out

    return fault


def put(index: int | slice, value: float) -> Any:
    """Set one element, or some."""

    def change(x: torch.Tensor) -> torch.Tensor:
        x.view(-1)[index] = value
        return x

    return change


def resummed(change: Any) -> Any:
    """Put other values into a sum, and pack it again."""

    def repacked(x: torch.Tensor) -> torch.Tensor:
        total = ExactSum(PackedSum(x).size)
        total.add(change(PackedSum(x).value()))
        return total.pack().data

    return repacked


def raising(message: Message, reply: Message) -> Message:
    raise ValueError("malformed object body")


def astray(message: Message, reply: Message) -> Message:
    reply.metadata.__dict__["_reply_to_message_id"] = "message-0"
    return reply


NAN = float("nan")
ANY = {
    "another serialisation": (arrayed(stype="numpy.ndarray"), Reason.TREE),
    "pickle": (arrayed(stype="numpy.ndarray", dtype="object", data=b"\x80\x04N."), Reason.TREE),
    "unknown dtype": (arrayed(dtype="complex64"), Reason.TREE),
    "short": (arrayed(data=lambda a: a.data[:-1]), Reason.TREE),
    "long": (arrayed(data=lambda a: a.data + bytes(8)), Reason.TREE),
    "negative shape": (arrayed(shape=lambda a: (-1, -a.shape[0])), Reason.TREE),
    "many dimensions": (arrayed(shape=lambda a: (1,) * 40 + a.shape), Reason.TREE),
    "too large": (added("more", torch.zeros(10**6)), Reason.TREE),
    "shape": (valued(MAIN, lambda x: x.reshape(1, -1)), None),
    "length": (valued(MAIN, lambda x: x[:-1]), None),
    "half precision": (valued(MAIN, lambda x: x.half()), Reason.DTYPE),
    "integers": (valued(MAIN, lambda x: x.long()), Reason.DTYPE),
    "missing": (renamed(MAIN, "other"), Reason.TREE),
    "undeclared": (added("other/sum", torch.zeros(3)), Reason.TREE),
    "stale": (headed(round=0), Reason.ROUND),
    "future": (headed(round=9), Reason.ROUND),
    "version": (headed(version=0), Reason.VERSION),
    "no numbers": (holding(lambda c: RecordDict({"undrift": ConfigRecord(), "arrays": c["arrays"]})), Reason.TREE),
    "round of text": (headed(round="1"), Reason.TREE),
    "summary: garbage": (headed(summary="{not json"), Reason.TREE),
    "summary: nothing": (headed(summary="{}"), Reason.TREE),
    "summary: a list": (headed(summary="[1, 2]"), Reason.TREE),
    "summary: too deep": (headed(summary="[" * 4000), Reason.TREE),
    "summary: too much": (headed(summary=" " * 10**6), Reason.TREE),
    "empty": (holding(lambda c: RecordDict()), Reason.TREE),
    "no arrays": (holding(lambda c: RecordDict({"undrift": c["undrift"]})), Reason.TREE),
    "other records": (
        holding(lambda c: RecordDict({"undrift": c["undrift"], "arrays": ConfigRecord({"a": 1})})),
        Reason.TREE,
    ),
    "plain Flower": (holding(lambda c: RecordDict({"arrays": ArrayRecord([np.zeros(3)])})), Reason.TREE),
    "refused": (holding(lambda c: refusal("I will not\n\x1b[31m")), Reason.FAILED),
    "malformed body": (raising, None),
    "reply to another message": (astray, None),
    "error": (lambda message, reply: StandInGrid.error(message, "out of\nmemory"), None),
}
UPLOAD = {
    "NaN": (valued("delta", put(3, NAN)), Reason.FINITE),
    "infinite": (valued("delta", put(0, float("inf"))), Reason.FINITE),
    "1e35": (valued("delta", put(0, 1e35)), Reason.SIZE),
    "foreign client": (valued("client", lambda x: x * 0 + 4), Reason.SENDER),
    "unknown client": (valued("client", lambda x: x * 0 - 7), Reason.SENDER),
    "stale upload": (valued("round", lambda x: x - 1), Reason.ROUND),
    "no examples": (valued("examples", lambda x: x * 0), Reason.EMPTY),
    "negative examples": (valued("examples", lambda x: -x), Reason.COUNT),
    "too many examples": (valued("examples", lambda x: x * 0 + 2**40), Reason.COUNT),
    "examples as a float": (valued("examples", lambda x: x.double()), Reason.TREE),
    "wrong steps": (valued("steps", lambda x: x + 1), Reason.COUNT),
    "NaN loss": (valued("loss", lambda x: x * NAN), Reason.FINITE),
    "beyond the bound": (valued("delta", lambda x: x + 100.0), Reason.SIZE),
    "NaN buffers": (valued("buffers", put(0, NAN)), Reason.FINITE),
    "counts": (valued("counts", lambda x: x.repeat(2)), Reason.SHAPE),
    "another model": (valued("delta", lambda x: torch.zeros(5)), Reason.TREE),
}
SUM = {
    "another length": (valued(MAIN, put(0, 1)), Reason.SHAPE),
    "no bytes": (valued(MAIN, lambda x: x[:5]), Reason.SHAPE),
    "another width": (valued(MAIN, put(9, 14)), Reason.SHAPE),
    "another shift": (valued(MAIN, put(8, 51)), Reason.SIZE),
    "not the shortest form": (valued(MAIN, put(slice(10, None), 0)), Reason.SIZE),
    "oversized": (valued(MAIN, resummed(lambda x: x + 2.0**41)), Reason.SIZE),
    "beyond the bound": (valued(MAIN, resummed(lambda x: x + 5318.0)), Reason.SIZE),
    "slopes beyond the bound": (valued("paced/sum", resummed(lambda x: x + 1e6)), Reason.SIZE),
    "more weight than stated": (valued("weight/sum", resummed(lambda x: 2 * x)), Reason.WEIGHT),
    "negative weight": (valued("weight/sum", resummed(lambda x: -x)), Reason.WEIGHT),
    "foreign client": (posing(2, 5, 7), Reason.SENDER),
    "client twice": (posing(3, 3, 5), Reason.DUPLICATE),
    "summary of others": (
        headed(summary='{"visits": [[3, 9, 3, 1.0, 1.0, 1.0, 1.0, {}]], "rejections": []}'),
        Reason.TREE,
    ),
    "summary in NaN": (
        headed(summary='{"visits": [[3,9,3,NaN,1,1,1,{}], [5,5,3,1,1,1,1,{}], [7,7,3,1,1,1,1,{}]], "rejections": []}'),
        Reason.TREE,
    ),
    "clients as floats": (valued("clients", lambda x: x.double()), Reason.TREE),
    "clients in a table": (valued("clients", lambda x: x.reshape(1, -1)), Reason.TREE),
    "no weight": (renamed("weight/sum", "other"), Reason.TREE),
    "no counts": (renamed("counts", "tnuoc"), Reason.TREE),
    "an upload too many": (added("upload0/client", torch.zeros(1, dtype=torch.int64)), Reason.TREE),
}
CASES = (
    [(nodes, name) for nodes in (8, 2) for name in ANY] + [(8, name) for name in UPLOAD] + [(2, name) for name in SUM]
)


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize(("nodes", "case"), CASES)
def test_hostile_replies_are_rejected(nodes: int, case: str, tmp_path: Path) -> None:
    """A sound round, then one in which a node does its worst, then a sound one: nothing of it is left."""
    kinds = {**ANY, **(UPLOAD if nodes == 8 else SUM)}
    (fault, reason), partition, grid = kinds[case], 5 if nodes == 8 else 1, grid_of("scaffold", nodes, tmp_path)

    def after(state: ServerState, record: Any) -> None:
        grid.faults = {partition: fault} if record.round == 0 else {}

    strategy = strategy_of("scaffold", quorum=0.0, bound=10.0, on_round=after)
    start(strategy, grid)
    own = [client for client in ALL if client % nodes == partition]
    record = strategy.records[1]
    lost = {r.client: r.reason for r in record.rejections} | {client: None for client, _ in record.absent}
    assert set(own) <= set(lost) and not set(own) & set(record.clients)
    assert reason is None or all(lost[client] is reason for client in own), record.rejections
    assert str(record).isprintable()
    left = [client for client in ALL if client not in own]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, left, ALL))


def test_a_reply_that_comes_twice_counts_once(tmp_path: Path) -> None:
    for nodes in (2, 8):
        grid = grid_of("scaffold", nodes, tmp_path / str(nodes))
        grid.faults = {1: lambda message, reply: [reply, reply]}
        strategy = strategy_of("scaffold")
        start(strategy, grid)
        assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL))


SECRET = "name=Ada, born=1815"


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "kept"])
@pytest.mark.parametrize("words", [SECRET, 20_000 * "long " + SECRET], ids=["short", "long"])
def test_a_client_that_fails_does_not_take_its_neighbours_along(words: str, shared: bool, tmp_path: Path) -> None:
    """The text of its exception leaves the node only if the node's operator allows it."""

    class Broken(Clinic):
        def batches(self, client: Any, size: Any, generator: Any) -> Any:
            if client == 0:
                raise ValueError(words)
            return super().batches(client, size, generator)

    grid = StandInGrid(client_app(Job(make("fedavg"), Broken())), 2, tmp_path)
    for context in grid.nodes.values():
        context.node_config["share-errors"] = shared
    strategy = strategy_of("fedavg")
    start(strategy, grid, 1)
    (failed,) = [r for r in strategy.records[0].rejections if r.client == 0]
    assert failed.reason is Reason.FAILED and {2, 4, 6} <= set(strategy.records[0].clients)
    assert (SECRET in failed.detail) == shared
    assert shared or re.fullmatch(r"ValueError; its text is in the node's log as error \w{12}", failed.detail)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL[1:]))


@pytest.mark.parametrize("place", ["job", "clients"])
def test_no_text_of_a_node_reaches_the_server(place: str, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """Also if the app itself fails on a node, in the job or the list of clients."""

    def failing(context: Context) -> Any:
        if context.node_config["partition-id"] == 0:
            raise OSError(28, SECRET)
        return Job(make("fedavg"), TASK) if place == "job" else range(1, 8, 2)

    own = client_app(failing) if place == "job" else client_app(Job(make("fedavg"), TASK), failing)
    strategy = strategy_of("fedavg", quorum=0.0, nodes=None if place == "job" else 1)
    start(strategy, StandInGrid(own, 2, tmp_path), 1)
    server = f"{strategy.records[0]}{strategy._roster.refused}"
    assert SECRET not in server and "OSError (No space left on device); its text is in the node's log" in server
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", ALL[1::2]))


def test_a_cohort_that_fails_is_an_abandoned_round(tmp_path: Path) -> None:
    """One node that hosts every client replies that all have failed: the run waits, and ends when patience is over."""
    broken = {"now": True}

    class Broken(Clinic):
        def batches(self, client: int, size: int, generator: Any) -> Any:
            if broken["now"]:
                raise ValueError("no luck")
            return super().batches(client, size, generator)

    def after(state: ServerState, record: RoundRecord) -> None:
        broken["now"] = record.round < 1

    grid = StandInGrid(client_app(Job(make("fedavg"), Broken())), 1, tmp_path)
    strategy = strategy_of("fedavg", on_round=after)
    start(strategy, grid, 3)
    assert [record.abandoned for record in strategy.records] == [True, True, False]
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", [], [], ALL))
    strategy.on_round, broken["now"] = None, True
    with pytest.raises(TooFewNodes, match=r"3 rounds in a row below quorum; see the nodes' logs; .*node \d+, client 0"):
        start(strategy, grid, 3)


@pytest.mark.parametrize("kind", ["failing", "silent"])
def test_a_node_that_fails_or_is_silent_is_quarantined(kind: str, tmp_path: Path) -> None:
    class Broken(Clinic):
        def batches(self, client: int, size: int, generator: Any) -> Any:
            if kind == "failing" and client % 2 == 0:
                raise ValueError("no luck")
            return super().batches(client, size, generator)

    grid = StandInGrid(client_app(Job(make("fedavg"), Broken())), 2, tmp_path)
    grid.dropped = {0} if kind == "silent" else set()
    strategy = strategy_of("fedavg", quorum=0.0, quarantine=Quarantine(after=1, rounds=2, failures=2))
    start(strategy, grid, 5)
    out = [sum("quarantined until" in why for _, why in record.absent) for record in strategy.records]
    assert out == [0, 0, 4, 4, 0]
    assert set(strategy.records[0].nodes) == set(ALL) and len(set(strategy.records[0].nodes.values())) == 2


def test_a_node_of_another_version_is_not_quarantined(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 2, tmp_path)
    grid.faults = {0: headed(version=4)}
    strategy = strategy_of("fedavg", quorum=0.0, quarantine=Quarantine(after=1, failures=1))
    start(strategy, grid, 2)
    assert [{r.reason for r in record.rejections if r.client % 2 == 0} for record in strategy.records] == [
        {Reason.VERSION},
        {Reason.VERSION},
    ]


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fednova"])
def test_with_a_bound_a_node_whose_clients_are_all_left_out_is_no_fault(algorithm: str, tmp_path: Path) -> None:
    """All clients of node 0 are without examples: its sum is empty, and it is neither rejected nor quarantined."""

    class Half(Clinic):
        def examples(self, client: int) -> int:
            return super().examples(client) if client % 2 else 0

    grid = StandInGrid(client_app(Job(make(algorithm), Half())), 2, tmp_path)
    strategy = strategy_of(algorithm, bound=1e6, quarantine=Quarantine(after=1), quorum=0.0)
    start(strategy, grid, 1)
    assert {r.reason for r in strategy.records[0].rejections if r.client % 2 == 0} == {Reason.EMPTY}
    assert not strategy.records[0].quarantined
