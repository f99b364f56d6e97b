"""A stateful property test of the Flower server, under faults in any order.

Replies that are late, stale, sent twice or rejected, nodes that leave and join, a server that crashes and resumes.
Nodes send made-up uploads, so that an independent reference in exact fractions can say what the model must be.
`UNDRIFT_MACHINES` sets how many machines the slow test runs.
"""

import logging
import os
import time
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from faults.figures import record
from support import flower_grid
from support.flower import Clock, state_of
from support.flower_grid import StandInGrid
from undrift import Local, make
from undrift.core.records.types import ServerState, Upload
from undrift.core.server import wire
from undrift.core.server.total import Total
from undrift.engine.flower.records import Answer, Order, claim
from undrift.engine.flower.server import exchange, receive, roster, tally
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.engine.round.quarantine import Quarantine
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.flower import UndriftStrategy

NODES, CLIENTS, SEED, DEADLINE = 4, 9, 5, 20.0
ALGORITHM, LOCAL, RULE = make("fedavg"), Local(lr=0.1, batch_size=4), Quarantine(after=2, rounds=2)
PARTITIONS = st.integers(0, NODES - 1)
NOW = st.booleans()  # whether a round follows at once
MOMENTS = st.sampled_from([0.5, 2.0, 5.0, 9.0, 15.0])


class Crashed(BaseException):
    """The server was killed."""


def model() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(2, 1)


def truth(round: int, client: int) -> tuple[int, list[float]]:
    """The examples and the displacement of a client in a round."""
    draw = Random(1000 * round + client)
    return draw.randint(1, 40), [draw.randint(-(2**12), 2**12) / 2**11 for _ in range(3)]


def upload(round: int, client: int) -> Upload:
    examples, delta = truth(round, client)
    steps = LOCAL.step_count(examples, client, round, SEED)
    empty = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    return Upload(client, round, torch.tensor(delta), examples, steps, 1.0, *empty, {})


def app(message: Message, context: Any) -> Message:
    """A node that needs no time for training."""
    config = context.node_config
    if message.metadata.message_type == "query":
        return Message(claim(range(config["partition-id"], CLIENTS, config["num-partitions"])), reply_to=message)
    order = Order.read(message.content)
    return Message(answer(order.round, order.clients), reply_to=message)


def answer(round: int, clients: list[int]) -> RecordDict:
    """What an honest node sends about its clients."""
    uploads = [upload(round, client) for client in clients]
    part = Partial(Total(ALGORITHM, LOCAL, round))
    for one in uploads:
        part.total.add(one)
        part.visits.append(Visit(one.client, one.examples, 1.0, 0.1, float(one.examples), float(one.delta.norm())))
    tensors, summary = part.flatten()
    return Answer(round, summary, tensors if len(uploads) > 1 else wire.flatten(uploads[0])).content()


def twice(message: Message, reply: Message) -> list[Message]:
    return [reply, reply]


def stale(message: Message, reply: Message) -> Message:
    """The reply of an earlier round, as it was; in the first round that of a later one."""
    order = Order.read(message.content)
    return Message(answer(order.round - 1 if order.round else 1, order.clients), reply_to=message)


def relabelled(message: Message, reply: Message) -> Message:
    """The values of an earlier round under this round's number; the uploads themselves still have theirs."""
    order = Order.read(message.content)
    if len(order.clients) > 1:
        return stale(message, reply)  # a sum has no round of its own; only its label tells
    content = answer(order.round + 1, order.clients)
    content.config_records["undrift"]["round"] = order.round
    return Message(content, reply_to=message)


def poisoned(message: Message, reply: Message) -> Message:
    head = reply.content.config_records["undrift"]
    head["summary"] = str(head["summary"]).replace("1.0", "NaN", 1)
    arrays = reply.content.array_records["arrays"]
    name = "delta" if "delta" in arrays else "delta/sum"
    array = arrays[name]
    arrays[name] = type(array)(array.dtype, array.shape, array.stype, array.data[:-4] + b"\xff\xff\xff\x7f")
    return reply


def foreign(message: Message, reply: Message) -> Message:
    """A sum that has a client of another node in it."""
    order = Order.read(message.content)
    others = [client for client in range(CLIENTS) if client not in order.clients]
    return Message(answer(order.round, [*order.clients[1:], others[0], others[1]]), reply_to=message)


def broken(message: Message, reply: Message) -> Message:
    return StandInGrid.error(message, "out of memory")


REJECTED = {"stale": stale, "relabelled": relabelled, "poisoned": poisoned, "foreign": foreign}
FAULTS = {"twice": twice, "broken": broken, **REJECTED}


class ServerMachine(RuleBasedStateMachine):
    """Faults are prepared by rules, and `play` runs a round in which they happen."""

    ended: ClassVar[list[tuple[int, int]]] = []  # of every machine: its rounds, and its rejections

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.saved = [(m, n, getattr(m, n)) for m in (receive, roster) for n in ("sleep", "monotonic")]
        self.saved += [(m, "monotonic", m.monotonic) for m in (exchange, tally, flower_grid)]
        self.saved.append((flower_grid, "travel", flower_grid.travel))
        fakes = {"sleep": self.clock.sleep, "monotonic": self.clock, "travel": lambda message: message}
        for module, name, _ in self.saved:
            setattr(module, name, fakes[name])
        self.grid = StandInGrid(app, NODES, Path("unused"))  # type: ignore[arg-type]
        self.grid.lazy = 0.3
        self.log: list[tuple[int, int, str]] = []  # rejections of stored rounds: the audit log
        self.rounds: list[int] = []  # stored rounds
        self.stored: bytes | None = None
        self.expected = [np.float32(x) for p in model().parameters() for x in p.detach().flatten().tolist()]
        self.disturbed: set[int] = set()
        self.strategy = self.server()

    def server(self) -> UndriftStrategy:
        """A server that starts from what is stored."""
        size = len(self.expected)
        state = None if self.stored is None else wire.from_bytes(ServerState, ALGORITHM, self.stored, size)
        strategy = UndriftStrategy(
            ALGORITHM,
            model(),
            LOCAL,
            population=CLIENTS,
            seed=SEED,
            quorum=0.3,
            nodes=1,
            wait=30.0,
            patience=10**9,
            state=state,
            quarantine=RULE,
            rejoin=4.0,
        )
        strategy.state = state or strategy._open(ArrayRecord(model().state_dict()))
        strategy.quarantined.restore(self.log, strategy.state.round)
        return strategy

    def teardown(self) -> None:
        self.ended.append((len(self.rounds), len(self.log)))
        for module, name, value in self.saved:
            setattr(module, name, value)

    @initialize()
    def begin(self) -> None:
        self.play()

    @rule(partition=PARTITIONS, seconds=st.sampled_from([1.0, 6.0, 12.0, 19.0, 30.0, 500.0]), now=NOW)
    def slow(self, partition: int, seconds: float, now: bool) -> None:
        self.grid.delay[partition] = seconds
        self.disturbed.add(partition)
        self.play_if(now)

    @rule(partition=PARTITIONS, kind=st.sampled_from(sorted(FAULTS)), now=NOW)
    def faulty(self, partition: int, kind: str, now: bool) -> None:
        self.grid.faults[partition] = FAULTS[kind]  # type: ignore[assignment]
        self.disturbed.add(partition)
        self.play_if(now)

    @rule(partition=PARTITIONS, moment=MOMENTS, now=NOW)
    def leave(self, partition: int, moment: float, now: bool) -> None:
        self.grid.later(moment, lambda: self.grid.kill(partition))
        self.disturbed.add(partition)
        self.play_if(now)

    @rule(partition=PARTITIONS, moment=MOMENTS, now=NOW)
    def join(self, partition: int, moment: float, now: bool) -> None:
        """Also while the node is there: then its claim is the second one."""
        self.grid.later(moment, lambda: self.grid.join(partition))
        self.play_if(now)

    @rule(partition=PARTITIONS, moment=MOMENTS, now=NOW)
    def restart(self, partition: int, moment: float, now: bool) -> None:
        def again() -> None:
            if partition in {c.node_config["partition-id"] for c in self.grid.nodes.values()}:
                self.grid.restart(partition)

        self.grid.later(moment, again)
        self.disturbed.add(partition)
        self.play_if(now)

    @rule(partition=PARTITIONS, moment=MOMENTS, now=NOW)
    def hide(self, partition: int, moment: float, now: bool) -> None:
        """The SuperLink no longer lists a node whose reply is under way."""
        self.grid.later(
            moment,
            lambda: self.grid.hidden.update(
                n for n, c in self.grid.nodes.items() if c.node_config["partition-id"] == partition
            ),
        )
        self.disturbed.add(partition)
        self.play_if(now)

    @rule(client=st.integers(0, CLIENTS - 1), moment=MOMENTS, later=MOMENTS, now=NOW)
    def move(self, client: int, moment: float, later: float, now: bool) -> None:
        """A client gets a node of its own; the reply of its old node, about all its clients, may still come."""

        def take_over() -> None:
            self.grid.hidden.update(self.grid.nodes)
            for partition in set(range(NODES)) - {client % NODES}:
                self.grid.hidden -= {
                    n for n, c in self.grid.nodes.items() if c.node_config["partition-id"] == partition
                }
            self.grid.partitions = CLIENTS
            self.grid.join(client)
            self.grid.partitions = NODES

        self.grid.delay[client % NODES] = moment + later
        self.grid.later(moment, take_over)
        self.disturbed.add(client % NODES)
        self.play_if(now)

    @rule(moment=MOMENTS, now=NOW)
    def crash(self, moment: float, now: bool) -> None:
        def die() -> None:
            raise Crashed

        self.grid.later(moment, die)
        self.play_if(now)

    @rule()
    def resume(self) -> None:
        self.strategy = self.server()

    @rule()
    def mend(self) -> None:
        """All nodes are as they should be."""
        self.grid.nodes.clear()
        for partition in range(NODES):
            self.grid.join(partition)
        self.grid.delay, self.grid.faults, self.grid.plan = {}, {}, []
        self.grid.hidden.clear()
        self.disturbed.clear()

    def play_if(self, now: bool) -> None:
        if now:
            self.play()

    @rule()
    def play(self) -> None:
        before = state_of(self.strategy)
        out = self.strategy.quarantined.out(before.round)
        try:
            self.strategy._train(self.grid, ConfigRecord(), DEADLINE)  # type: ignore[arg-type]
        except Crashed:
            self.strategy = self.server()
            return
        except TooFewNodes:
            self.mend()
            self.strategy = self.server()
            return
        state, record = state_of(self.strategy), self.strategy.records[-1]
        assert state.round == before.round + 1 and record.round == before.round not in self.rounds
        accepted, rejected = list(record.clients), [r.client for r in record.rejections]
        absent = [client for client, _ in record.absent]
        assert sorted(accepted + rejected + absent) == list(range(CLIENTS)), "each client has one outcome"
        assert record.seconds <= DEADLINE + 2
        assert set(out) <= set(absent)
        if not self.disturbed and not record.absent:
            assert accepted == list(range(CLIENTS)), "honest nodes are counted"
        need = max(1, int(np.ceil(0.3 * (CLIENTS - len(out)))))
        assert record.abandoned == (len(accepted) < need)
        if not record.abandoned:
            self.expected = reference(self.expected, record.round, accepted)
        self.rounds.append(record.round)
        self.log += [(record.round, r.client, r.reason.name) for r in record.rejections]
        self.stored = wire.to_bytes(state)
        self.grid.faults.clear()

    @invariant()
    def the_model_is_that_of_the_reference(self) -> None:
        assert self.rounds == list(range(len(self.rounds)))
        assert state_of(self.strategy).params.tolist() == [float(x) for x in self.expected]


def reference(w: list[np.float32], round: int, clients: list[int]) -> list[np.float32]:
    """FedAvg in exact fractions: the sum is rounded once, the mean once, the step once."""
    weight = sum(truth(round, client)[0] for client in clients)
    sums = [sum(Fraction(n) * Fraction(d[i]) for n, d in (truth(round, c) for c in clients)) for i in range(len(w))]
    return [np.float32(x + np.float32(float(total) / float(weight))) for x, total in zip(w, sums, strict=True)]


def run_machines(count: int) -> None:
    """Run so many machines of 50 steps, and record their rounds."""
    ServerMachine.ended.clear()
    begun = time.monotonic()
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(max_examples=count, stateful_step_count=50, deadline=None, suppress_health_check=quiet)
    logging.disable(logging.CRITICAL)  # thousands of warnings, as intended
    try:
        run_state_machine_as_test(ServerMachine, settings=chosen)
    finally:
        logging.disable(logging.NOTSET)
    assert len(ServerMachine.ended) >= count
    rounds, rejected = (sum(one) for one in zip(*ServerMachine.ended, strict=True))
    found = {"machines": len(ServerMachine.ended), "steps": 50, "rounds": rounds, "rejected": rejected, "failed": 0}
    record("R10", "state machines", **found, seconds=round(time.monotonic() - begun, 1))


@pytest.mark.sweep(every=0)
def test_every_client_counts_at_most_once_whatever_happens() -> None:
    run_machines(100)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_every_client_counts_at_most_once_in_many_machines() -> None:
    run_machines(int(os.environ.get("UNDRIFT_MACHINES", "2000")))
