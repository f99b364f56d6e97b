"""The edge server: a Flower node that is itself the server of other nodes, and passes on one partial sum.

    app = edge_app("scaffold", "edge.json")

A region or a group of hospitals has a SuperLink of its own, with nodes that run `client_app` or again `edge_app`, to
any depth; see `edge_grid`. The edge server passes its server's orders on, checks every reply at its own gate, adds it
to an exact sum and replies with that sum; it has no model and no data. The result is bit-identical to that of nodes
which are connected to the server directly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from torch import Tensor

from undrift.core.method.aggregation import Gathering
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Broadcast
from undrift.core.server import wire
from undrift.core.server.gate import Gate
from undrift.core.server.total import Total
from undrift.core.server.wire import WireError
from undrift.engine.flower.node.client_app import check_method, guard, note_head, shares_errors, state_folder
from undrift.engine.flower.node.edge_grid import open_grid
from undrift.engine.flower.node.secure_node import is_secure
from undrift.engine.flower.records import Answer, Order, claim, decode, read_offer, read_population, read_withdrawn
from undrift.engine.flower.server.exchange import Exchange
from undrift.engine.flower.server.hosts import Hosting, Hosts
from undrift.engine.flower.server.mailbox import Mailbox
from undrift.engine.flower.server.orders import Orders
from undrift.engine.flower.server.receive import SKEW
from undrift.engine.flower.server.roster import Leaving, Roster
from undrift.engine.flower.server.tally import RoundRecord, Tally
from undrift.engine.round.arguments import read_method
from undrift.engine.worker.partial_sum import Partial

_STATE = "undrift-edge"
_SHARE = 0.9  # of the time that its server waits, an edge server waits for its own nodes


def edge_app(
    algorithm: Algorithm | str | Callable[[Context], Algorithm | str],
    grid: Callable[[Context], Grid] | str | Path,
    *,
    nodes: int = 1,
    wait: float = 300.0,
    quorum: float = 0.0,
    poll: float = 1.0,
    rejoin: float = 30.0,
    hosts: Hosting = None,
    on_round: Callable[[str, RoundRecord], object] | None = None,
    head: Callable[[], str] | None = None,
) -> ClientApp:
    """A ClientApp that is the server of other nodes.

    It waits for them for nine tenths of the time that its own server waits, so that its sum is there in time.

    Args:
        algorithm: the method, or its name or composition, or a function of the context that returns it; server and
            nodes must use the same.
        grid: the file that `share_grid` writes on the SuperLink of the nodes below; or a function that returns their
            grid, called once for each message.
        nodes: how many of them to wait for before the server learns which clients are here.
        wait: the most seconds to wait for them.
        quorum: fraction of an order's clients whose uploads must be accepted here; with fewer the sum is left out.
        poll: longest pause in seconds between two polls for replies.
        rejoin: how many seconds a round waits for a node that left.
        hosts: which clients each node may host; None trusts what nodes claim.
        on_round: called after every round with the run's name and the record: see `undrift.flower.EdgeLog`.
        head: returns the hash of the last event in this edge server's audit log; the nodes below keep it.
    """
    method = algorithm if callable(algorithm) else _check_method(algorithm)
    if nodes < 1 or not 0 <= quorum <= 1:
        raise ValueError(f"edge_app: nodes must be 1 or more and quorum from 0 to 1, got {nodes} and {quorum}")
    edge = _Edge(method, open_grid(grid), nodes, wait, quorum, poll, rejoin, Hosts.of(hosts), on_round, head)
    app = ClientApp()
    app.query()(guard(shares_errors)(edge.answer))
    app.train()(guard(shares_errors)(edge.train))
    return app


def _check_method(algorithm: Algorithm | str) -> Algorithm:
    """The method; raises if its uploads cannot be summed."""
    method = read_method("edge_app", algorithm)
    if isinstance(method.aggregation, Gathering):
        raise TypeError(
            f"edge_app: aggregation={method.aggregation!r} takes uploads one by one, and an edge server passes on "
            "their sum: connect the nodes to the server, or use a rule of sums"
        )
    return method


@dataclass(eq=False)
class _Edge:
    """An edge server; the arguments are those of `edge_app`."""

    method: Algorithm | Callable[[Context], Algorithm | str]
    grid: Callable[[Context], Grid]
    nodes: int
    wait: float
    quorum: float
    poll: float
    rejoin: float
    hosts: Hosts | None
    on_round: Callable[[str, RoundRecord], object] | None
    head: Callable[[], str] | None

    def answer(self, message: Message, context: Context) -> Message:
        """The clients of all nodes below."""
        population, (run, left) = read_population(message.content), read_withdrawn(message.content)
        forgotten: list[int] = []
        leaving = Leaving(run, left, lambda _, clients: forgotten.extend(clients))
        roster, mailbox = self._roster(population), Mailbox(self.grid(context))
        roster.leaving = leaving
        if not roster.gather(mailbox, lambda: len(roster.claims) >= self.nodes, self.wait, self.poll):
            found = f"{len(roster.claims)} of {self.nodes} nodes of this edge server answered"
            raise WireError("; ".join([f"{found} within {self.wait:g} seconds", *[*roster.refused.values()][-1:]]))
        _save(roster, context)
        own = [client for node in roster.claims for client in roster.granted(node)]
        return Message(claim(own, forgotten=forgotten, version=read_offer(message.content)), reply_to=message)

    def train(self, message: Message, context: Context) -> Message:
        """One round: the order goes to the nodes below, and the sum of their replies to the server."""
        order = Order.read(message.content)
        method = _check_method(self.method(context)) if callable(self.method) else self.method
        check_method(order, method)
        if is_secure(message):
            raise WireError("an edge server sees the sums that it adds: connect the nodes to the server directly")
        note_head(state_folder(None, context, order.run), order)
        tally = _Relay(
            method,
            order.local,
            order.bound,
            _read_broadcast(method, message),
            frozenset(order.clients),
            order.seed,
            {} if self.hosts is None else self.hosts.examples,
            timing=order.timing,
            cohort=order.cohort,
        )
        self._exchange(tally, order, message, context)
        kept = len(tally.visits) >= ceil(self.quorum * len(order.clients))
        if self.on_round is not None:
            self.on_round(order.run, tally.record({}, (), abandoned=not kept))
        summary = tally.partial() if kept else replace(tally.partial(), total=tally.empty(), visits=[])
        tensors, line = summary.flatten()
        if len(order.clients) == 1:  # the server checks a single upload itself
            tensors = dict(tally.upload) if kept else {}
        return Message(Answer(order.round, line, tensors).content(order.version), reply_to=message)

    def _exchange(self, tally: "_Relay", order: Order, message: Message, context: Context) -> None:
        """Order the clients from their nodes, and count the replies."""
        roster, mailbox = self._recall(context), Mailbox(self.grid(context))
        seconds = _SHARE * max(0.0, message.metadata.ttl - SKEW)
        within = min(self.rejoin, seconds)
        roster.gather(mailbox, lambda: not roster.split(order.clients)[1], within, self.poll)
        _save(roster, context)
        groups, lost = roster.split(order.clients)
        config, head = message.content.get("config"), None if self.head is None else self.head()
        orders = Orders(order.run, tally.algorithm, order.local, order.seed, order.bound, tally.examples, head=head)
        given = config if isinstance(config, ConfigRecord) else None
        orders.add(tally, groups, order.accepted, seconds, given)
        tally.mark_absent(lost, "no node hosts it")
        limits = (seconds, self.poll, self.rejoin)
        Exchange(mailbox, roster, orders, tally, order.accepted, given, *limits).collect(1, None)

    def _recall(self, context: Context) -> Roster:
        """Which node hosts which clients, as far as it is known from the messages before."""
        known = context.state.get(_STATE)
        if not isinstance(known, ConfigRecord):
            raise WireError("this edge server does not know the population; restart it, and the server sends it again")
        roster = self._roster(int(known["population"]))  # type: ignore[arg-type]
        roster.recall(str(known["answers"]))
        return roster

    def _roster(self, population: int) -> Roster:
        """Which node hosts which clients, before any has answered."""
        return Roster(population, hosts=self.hosts)


def _save(roster: Roster, context: Context) -> None:
    """Keep what the nodes below have answered for the next message, which a new process gets."""
    context.state[_STATE] = ConfigRecord({"population": roster.population, "answers": roster.save()})


def _read_broadcast(method: Algorithm, message: Message) -> Broadcast:
    """What the server sent."""
    arrays = message.content.get("arrays")
    tensors = decode(arrays) if isinstance(arrays, ArrayRecord) else {}
    if "params" not in tensors:
        raise WireError("there is no array record named 'arrays' with a model")
    return wire.restore(Broadcast, method, tensors, len(tensors["params"]))


@dataclass(eq=False)
class _Relay(Tally):
    """A tally that keeps the last upload, for an order of one client."""

    upload: Mapping[str, Tensor] = field(default_factory=dict)

    def _enter_upload(
        self, answer: Answer, clients: list[int], gate: Gate, total: Total, before: int | None
    ) -> tuple[Partial, Any]:
        """Pass one client's upload through the gate, and keep it if it was accepted."""
        part, refused = super()._enter_upload(answer, clients, gate, total, before)
        self.upload = answer.tensors if refused is None and len(self.clients) == 1 else {}
        return part, refused
