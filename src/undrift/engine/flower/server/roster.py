"""Which nodes are connected, and which of them hosts which clients."""

import json
import logging
from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from flwr.app import Message, MessageType
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from undrift.core.server.wire import WireError
from undrift.engine.flower.records import (
    one_line,
    question,
    read_claim,
    read_evaluates,
    read_forgotten,
    read_version,
)
from undrift.engine.flower.server.hosts import Hosts, HostsError, HostsFile, find_changes
from undrift.engine.flower.server.mailbox import Mailbox, Reply
from undrift.engine.flower.server.receive import SKEW, TooFewNodes, pause
from undrift.engine.flower.versions import NEWEST, explain_refusal

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_AGAIN = 10.0  # polls until a node whose answer could not be used is queried again
_SILENT = 60.0  # polls until a node that does not answer is queried again; then twice as many, and so on
_CLAIM = 16  # the most bytes that a client takes in the list of a node
_NAMED = 5  # clients named in a message

_ADVICE = {
    "No query function": "its ClientApp does not report its clients; call host(app) there",
    "RuntimeDependencyInstallationError": (
        "Flower could not install the app's dependencies there; if undrift is installed on the node, start its "
        "SuperNode or SuperExec without --allow-runtime-dependency-installation"
    ),
}
"""Flower's words for why a node has no answer -> what to do there."""

Clients: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def wait_for_nodes(grid: Grid | Mailbox, wanted: int, seconds: float, poll: float = 1.0) -> list[int]:
    """The nodes of a grid, once there are at least `wanted`."""
    mailbox, began = Mailbox.of(grid), monotonic()
    while len(nodes := sorted(mailbox.nodes() or ())) < wanted:
        waited = monotonic() - began
        if waited >= seconds:
            raise TooFewNodes(
                f"{len(nodes)} of {wanted} nodes connected within {seconds:g} seconds; start more nodes, or wait longer"
            )
        sleep(min(pause(poll, waited), seconds - waited))
    return nodes


class Leaving(NamedTuple):
    """The clients that have left a run, whose states nodes are to delete.

    Args:
        run: the name under which nodes store the run's states.
        clients: their numbers.
        forgotten: called with a node and its clients whose states it has deleted.
    """

    run: str = ""
    clients: Sequence[int] = ()
    forgotten: Callable[[int, list[int]], object] | None = None


class Roster:
    """Which node hosts which clients, according to the nodes and, if there is one, the operator's list.

    A node is queried when it is first seen and when it was started again. Of two nodes that claim the same client, the
    one that answered first keeps it for as long as it is connected; the claim of the other is rejected. With a list, a
    node hosts only what the list gives it. No claim can end the run.

    Args:
        population: how many clients there are.
        stopped: returns whether waiting has become pointless.
        hosts: which clients each node may host; None trusts the nodes. A file is read again before each round.
        newer: returns what the run has that messages of a version cannot carry; a node of such a version gets no
            clients. Without it, all nodes must have the newest.
    """

    def __init__(
        self,
        population: int,
        stopped: Callable[[], bool] = lambda: False,
        hosts: Hosts | HostsFile | None = None,
        newer: Callable[[int], str] = lambda version: "" if version == NEWEST else "this run",
    ) -> None:
        self.population, self.stopped, self.newer = population, stopped, newer
        self._file = hosts if isinstance(hosts, HostsFile) else None
        self.hosts = hosts.hosts if isinstance(hosts, HostsFile) else hosts
        self.note: Callable[..., object] | None = None  # called with the facts of a change of the list
        self.begun, self.leaving = False, Leaving()
        self.conflict = ""
        self.evaluates = False  # whether a node has an evaluate function
        self.refused: dict[int, str] = {}
        self.claims: dict[int, Clients] = {}
        self.versions: dict[int, int] = {}  # of the messages that each node understands
        self._claimed: dict[int, tuple[NodeInfo, Clients]] = {}  # what each node has claimed, allowed or not
        self._pending: dict[str, Message] = {}  # queries without an answer so far
        self._queried: dict[int, tuple[float, int]] = {}  # when each node without an answer was queried, how often
        self._retry: dict[int, float] = {}  # nodes whose answer could not be used -> when to query them again
        self._recalled: dict[int, tuple[str, int, list[int]]] = {}  # node -> its start, version and clients, see `save`
        self._started: dict[int, str] = {}  # when each node was started, by the SuperLink
        self._session: dict[int, int] = {}  # one number for each time that a node reported its clients
        self._sessions = count(1)
        self._nodes: list[int] = []
        self._home = np.full(population, -1, dtype=np.int64)

    @property
    def hosted(self) -> int:
        """How many clients have a node."""
        return int((self._home >= 0).sum())

    def session(self, node: int) -> int:
        """A number that changes when a node leaves and comes back, under any ID."""
        return self._session[node]

    def save(self) -> str:
        """What the connected nodes have answered, for `recall` in another process."""
        found = {n: (self._started[n], self.versions[n], self._claimed[n][1].tolist()) for n in self.claims}
        return json.dumps(found)

    def recall(self, saved: str) -> None:
        """Take the answers of nodes that were not started again since `save`, which are then not queried."""
        self._recalled = {int(n): (started, version, own) for n, (started, version, own) in json.loads(saved).items()}

    def find(
        self,
        grid: Grid | Mailbox,
        clients: Sequence[int],
        quorum: int,
        nodes: int | None,
        seconds: float,
        poll: float = 1.0,
        *,
        resumed: bool = False,
    ) -> tuple[dict[int, list[int]], list[int]]:
        """The clients of a round by node, and those without a node.

        Args:
            grid: the grid, or its mailbox.
            clients: the clients of the round.
            quorum: how many of them must have a node, after the first round.
            nodes: how many nodes to wait for before the first round; None waits until every client has a node.
            seconds: longest wait; then `TooFewNodes` is raised if the run has not begun, or all nodes are gone.
            poll: longest pause between two polls.
            resumed: whether the run has done rounds before: then, after the longest wait, the quorum is enough.
        """

        def enough() -> bool:
            return len(clients) - len(self.split(clients)[1]) >= quorum

        self.reread(Mailbox.of(grid))
        if self.begun:
            self.gather(grid, enough, seconds, poll)
            if not self.claims:
                raise TooFewNodes(f"all nodes disconnected and none reconnected within {seconds:g} seconds")
            return self.split(clients)
        began = monotonic()
        wait_for_nodes(grid, 1 if resumed else nodes or 1, seconds, poll)

        def complete() -> bool:
            gone = sum(self._home[client] < 0 for client in self.leaving.clients)
            return self.hosted + gone == self.population if nodes is None else len(self.claims) >= nodes

        if not self.gather(grid, complete, max(0.0, seconds - (monotonic() - began)), poll):
            found = (
                f"{len(self.claims)} nodes host {self.hosted} of {self.population} clients after {seconds:g} seconds"
            )
            if resumed and enough():
                _log.warning("%s; that is enough for the quorum, so the run resumes without the others", found)
                self.begun = True
                return self.split(clients)
            raise TooFewNodes(
                f"{found}; wanted: {'all of them' if nodes is None else f'{nodes} nodes'}"
                + "".join(f"; {why}" for why in (self.conflict, *[*self.refused.values()][-1:]) if why)
            )
        self.begun = True
        return self.split(clients)

    def reread(self, mailbox: Mailbox) -> None:
        """Read the operator's list if its file has changed: a node that is no longer in it hosts nothing."""
        if self._file is None:
            return
        before = self._file.hosts.entries
        try:
            if not self._file.refresh():
                return
        except HostsError as error:
            _log.warning("the list of hosts stays as it was: %s", error)
            return self._note(error=str(error))
        self.hosts = self._file.hosts
        changes = find_changes(before, self.hosts.entries)
        named = "; ".join(f"{what}: {', '.join(names)}" for what, names in changes.items() if names)
        _log.warning("the list of hosts has changed; %s", named or "no node is affected")
        self._note(sha256=self._file.digest, **changes)
        self.claims = {node: self._restrict(*self._claimed[node]) for node in self.claims}
        self._assign()
        if mailbox.watch is not None:
            mailbox.watch.set_hosted({node: self.granted(node) for node in self.claims})

    def note_hosts(self, note: Callable[..., object]) -> None:
        """Report the operator's list now, and every change of it.

        Args:
            note: called with the facts, by name.
        """
        self.note = note
        if self.hosts is not None:
            self._note(nodes=self.hosts.entries, **({} if self._file is None else {"sha256": self._file.digest}))

    def _note(self, **facts: Any) -> None:
        """Report a change of the list, if anyone wants to know."""
        if self.note is not None:
            self.note(**facts)

    def revoked(self, node: int, client: int) -> bool:
        """Whether the operator's list takes a client away from a node that has claimed it."""
        if self.hosts is None or node not in self._claimed:
            return False
        host = self.hosts.find(self._claimed[node][0])
        return host is None or client not in host.clients

    def gather(self, grid: Grid | Mailbox, ready: Callable[[], bool], seconds: float, poll: float = 1.0) -> bool:
        """Query nodes until the connected ones suffice or the time is over; returns whether they suffice."""
        began = monotonic()
        while True:
            self.refresh(grid, poll)
            waited = monotonic() - began
            if ready() or waited >= seconds or self.stopped():
                return ready()
            sleep(min(pause(poll, waited), seconds - waited))

    def refresh(self, grid: Grid | Mailbox, poll: float = 1.0) -> None:
        """Remove nodes that left, query new ones, and read the answers that arrived; never waits."""
        mailbox = Mailbox.of(grid)
        there = mailbox.nodes()
        if there is None:
            return
        before = dict(self._session)
        same = {node for node, info in there.items() if self._started.get(node) == info.last_activated_at}
        self._started = {node: info.last_activated_at for node, info in there.items()}
        self.claims = {node: clients for node, clients in self.claims.items() if node in same}
        self._session = {node: number for node, number in self._session.items() if node in same}
        self._queried = {node: asked for node, asked in self._queried.items() if node in same}
        self._retry = {node: when for node, when in self._retry.items() if node in same and when > monotonic()}
        self._drop_queries(mailbox, lambda node: node not in self._queried)
        for node, (started, version, clients) in self._recalled.items():
            if node in there and there[node].last_activated_at == started:
                self._enter(there[node], np.array(clients, dtype=np.int64), version)
        self._recalled = {}
        for node in sorted(set(there).difference(self.claims, self._retry)):
            self._query(mailbox, node, poll)
        for found in mailbox.pull(self._pending):
            if found is not None:
                key, reply = found
                node = self._pending.pop(key).metadata.dst_node_id
                self._queried.pop(node, None)
                self._take(there[node], reply, poll)
        self._drop_queries(mailbox, lambda node: node in self.claims)
        if before != self._session:
            self._assign()
            if mailbox.watch is not None:
                mailbox.watch.set_hosted({node: self.granted(node) for node in there})

    def granted(self, node: int) -> list[int]:
        """The clients that a node was given, sorted."""
        place = self._nodes.index(node) if node in self._nodes else -2
        return [int(client) for client in np.flatnonzero(self._home == place)]

    def _query(self, mailbox: Mailbox, node: int, poll: float) -> None:
        """Request the list of a node's clients, and again if it does not answer for long."""
        when, times = self._queried.get(node, (0.0, 0))
        if times and monotonic() - when < _SILENT * poll * 2 ** (times - 1):
            return
        asked = question(self.population, self.leaving.run, self.leaving.clients)
        message = Message(asked, node, MessageType.QUERY, ttl=SKEW)
        key, why = mailbox.push(message, _CLAIM * self.population)
        if key is None:
            self._refuse(node, f"the list of clients of node {node} could not be requested: {why}", poll)
        else:
            self._pending[key], self._queried[node] = message, (monotonic(), times + 1)

    def _drop_queries(self, mailbox: Mailbox, over: Callable[[int], bool]) -> None:
        """Forget the queries to nodes that are gone or have answered."""
        keys = [key for key, message in self._pending.items() if over(message.metadata.dst_node_id)]
        mailbox.discard(keys)
        for key in keys:
            del self._pending[key]

    def split(self, clients: Sequence[int]) -> tuple[dict[int, list[int]], list[int]]:
        """Clients by node, and those without a node."""
        groups: dict[int, list[int]] = {}
        lost: list[int] = []
        for client, place in zip(clients, self._home[np.asarray(clients, dtype=np.int64)].tolist(), strict=True):
            if place < 0:
                lost.append(client)
            else:
                groups.setdefault(self._nodes[place], []).append(client)
        return groups, lost

    def _take(self, node: NodeInfo, reply: Reply, poll: float) -> None:
        """Read a node's answer; after an unusable one the node is queried again later."""
        number = int(node.node_id)
        try:
            if reply.message is None:
                raise WireError(reply.why)
            claimed = read_claim(reply.message.content, self.population)
            version = read_version(reply.message.content)
            if what := self.newer(version) or self._left(version, claimed):
                return self._refuse(number, f"node {number} gets no clients: {explain_refusal(version, what)}", poll)
            if not len(claimed):
                _log.warning("node %d hosts no client: %d clients are fewer than the nodes", number, self.population)
            self._enter(node, claimed, version)
            self.evaluates |= read_evaluates(reply.message.content)
            gone = read_forgotten(reply.message.content, self.leaving.clients)
            if gone and self.leaving.forgotten is not None:
                self.leaving.forgotten(number, gone)
            self.refused.pop(number, None)
        except WireError as error:
            hint = "".join(f": {advice}" for words, advice in _ADVICE.items() if words in str(error))
            self._refuse(number, f"node {number} sent no valid list of its clients{hint}: {error}", poll)

    def _enter(self, node: NodeInfo, claimed: Clients, version: int) -> None:
        """Note what a node has answered."""
        number = int(node.node_id)
        self._claimed[number], self.versions[number] = (node, claimed), version
        self.claims[number], self._session[number] = self._restrict(node, claimed), next(self._sessions)

    def _left(self, version: int, claimed: Clients) -> str:
        """The clients of a claim that have left the run, if the node cannot delete their states; empty if it can."""
        left = [] if version == NEWEST else sorted({*claimed.tolist()} & {*self.leaving.clients})
        return f"the deletion of the states of {left}, who have left the run" if left else ""

    def _refuse(self, node: int, why: str, poll: float) -> None:
        """Record why a node's answer cannot be used, and query it again later."""
        if self.refused.get(node) != why:
            _log.warning("%s", why)
        self.refused[node] = why
        self._retry[node] = monotonic() + _AGAIN * poll

    def _restrict(self, node: NodeInfo, clients: Clients) -> Clients:
        """The clients of a claim that the node may host by the operator's list; a warning names the others."""
        if self.hosts is None:
            return clients
        host = self.hosts.find(node)
        own = np.isin(clients, host.clients) if host else np.zeros(len(clients), dtype=bool)
        if len(others := clients[~own].tolist()):
            named = ", ".join(f"{client} (of {self.hosts.owner(client)})" for client in others[:_NAMED])
            known = f"{host.name}, node {node.node_id}," if host else f"node {node.node_id}, which is not in the list,"
            more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            self.conflict = one_line(f"{known} claims clients of others: {named}{more}; these claims are rejected")
            _log.warning("%s", self.conflict)
        return clients[own]

    def _assign(self) -> None:
        """Assign every client to a node, in the order in which the nodes first answered."""
        self._home.fill(-1)
        self._nodes = list(self.claims)
        for place, (node, clients) in enumerate(self.claims.items()):
            taken = self._home[clients] >= 0
            if taken.any():
                first = int(clients[taken][0])
                other = self._nodes[int(self._home[first])]
                self.conflict = (
                    f"client {first} is claimed by node {other} and by node {node}; the first one keeps it: "
                    "do both have one partition-id?"
                )
                _log.warning("%s", self.conflict)
            self._home[clients[~taken]] = place
