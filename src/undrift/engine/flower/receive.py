"""The server's receive loop on any Flower grid: which nodes are connected, and which replies arrive in time.

Messages are pushed and replies pulled one at a time, so that each reply is summed before the next is read and an
unreadable reply does not end the round. Deadlines use a monotonic clock. There is no mathematics here.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

import numpy as np

from undrift.core.wire import WireError
from undrift.engine.flower.records import claimed, one_line, question

try:
    from flwr.app import Message, MessageType
    from flwr.serverapp import Grid
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error

_log = logging.getLogger("flwr")  # Flower shows what is logged here

SKEW = 600.0
"""Seconds by which the clocks of server and nodes may differ; a message outlives its deadline by this much."""

LATE = "no reply in time"
"""The reason for a missing reply after the deadline."""


class TooFewNodes(RuntimeError):  # noqa: N818  clear without Error
    """Fewer nodes or clients than the run needs connected in time."""


class ClaimError(RuntimeError):
    """Two nodes claim to host the same client."""


@dataclass(frozen=True)
class Reply:
    """The outcome of a message: the node's reply, or why there is none.

    Args:
        sent: the message it answers.
        message: the reply; None if none arrived in time or it could not be read.
        why: what went wrong, in one line.
    """

    sent: Message
    message: Message | None
    why: str = ""


def receive(
    grid: Grid,
    messages: Iterable[Message],
    seconds: float,
    *,
    poll: float = 1.0,
    enough: Callable[[], bool] | None = None,
    grace: float = 0.0,
) -> Iterator[Reply]:
    """Send messages and yield the outcome of each as it is known: every message gives exactly one reply.

    Args:
        grid: the grid.
        messages: the messages to send, at most one per node.
        seconds: how long to wait.
        poll: longest pause between two polls of all missing replies; the first pauses are a hundredth of it.
        enough: returns whether the remaining replies need not be waited for.
        grace: seconds that remaining replies still have after that.
    """
    began = monotonic()
    end = began + seconds
    waiting: dict[str, Message] = {}
    for message in messages:
        key, why = _push(grid, message)
        if key is None:
            yield Reply(message, None, why)
        else:
            waiting[key] = message
    while waiting:
        for key in list(waiting):
            if reply := pull(grid, key, waiting[key]):
                del waiting[key]
                yield reply
            if enough is not None and enough():
                end, enough = min(end, monotonic() + grace), None
            if monotonic() >= end:
                break
        now = monotonic()
        if now >= end or not waiting:
            break
        sleep(min(pause(poll, now - began), end - now))
    for message in waiting.values():
        yield Reply(message, None, LATE)


def pull(grid: Grid, key: str, sent: Message) -> Reply | None:
    """The reply to one message, or None while there is none; an unreadable reply is not retried."""
    try:
        pulled = list(grid.pull_messages([key]))
    except Exception as error:
        # A malformed body raises here, after the grid has discarded it; a lost connection may come back.
        return None if _passing(error) else Reply(sent, None, f"unreadable reply: {one_line(repr(error))}")
    for message in pulled:
        if message.metadata.reply_to_message_id == key:
            return settle(sent, message)
    return None


def settle(sent: Message, message: Message) -> Reply:
    """A reply that arrived; if it is an error, with the reason."""
    if message.has_error():
        return Reply(sent, None, f"error {message.error.code}: {one_line(message.error.reason)}")
    if not message.has_content():
        return Reply(sent, None, "empty reply")
    return Reply(sent, message)


def pause(poll: float, waited: float) -> float:
    """How long to sleep between two polls: a tenth of the time waited so far, at most `poll`."""
    return min(poll, max(poll / 100, waited / 10))


def wait_for_nodes(grid: Grid, wanted: int, seconds: float, poll: float = 1.0) -> list[int]:
    """The nodes of a grid, once there are at least `wanted`."""
    began = monotonic()
    while len(nodes := sorted(_present(grid) or ())) < wanted:
        waited = monotonic() - began
        if waited >= seconds:
            raise TooFewNodes(f"{len(nodes)} of {wanted} nodes connected within {seconds:g} seconds")
        sleep(min(pause(poll, waited), seconds - waited))
    return nodes


class Roster:
    """Which node hosts which clients, according to the nodes; node IDs have no meaning.

    A node is asked once, when it is first seen. Before the run has begun, two nodes that claim the same client are an
    error; afterwards the first node keeps the client for as long as it is connected.

    Args:
        population: how many clients there are.
        stopped: returns whether waiting has become pointless.
    """

    def __init__(self, population: int, stopped: Callable[[], bool] = lambda: False) -> None:
        self.population, self.stopped = population, stopped
        self.begun = False
        self.claims: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._pending: dict[int, tuple[str, Message]] = {}
        self._nodes: list[int] = []
        self._home = np.full(population, -1, dtype=np.int64)

    @property
    def hosted(self) -> int:
        """How many clients have a node."""
        return int((self._home >= 0).sum())

    def find(
        self, grid: Grid, clients: Sequence[int], quorum: int, nodes: int | None, seconds: float, poll: float = 1.0
    ) -> tuple[dict[int, list[int]], list[int]]:
        """The clients of a round by node, and those without a node.

        Args:
            grid: the grid.
            clients: the clients of the round.
            quorum: how many of them must have a node, after the first round.
            nodes: how many nodes to wait for before the first round; None waits until every client has a node.
            seconds: longest wait; then `TooFewNodes` is raised if the run has not begun, or all nodes are gone.
            poll: longest pause between two polls.
        """
        if self.begun:
            self.gather(grid, lambda: len(clients) - len(self.split(clients)[1]) >= quorum, seconds, poll)
            if not self.claims:
                raise TooFewNodes(f"all nodes are gone, none came back in {seconds:g} seconds")
            return self.split(clients)
        began = monotonic()
        wait_for_nodes(grid, nodes or 1, seconds, poll)

        def complete() -> bool:
            return self.hosted == self.population if nodes is None else len(self.claims) >= nodes

        if not self.gather(grid, complete, max(0.0, seconds - (monotonic() - began)), poll):
            raise TooFewNodes(
                f"{len(self.claims)} nodes host {self.hosted} of {self.population} clients after {seconds:g} seconds; "
                f"wanted: {'all of them' if nodes is None else f'{nodes} nodes'}"
            )
        self.begun = True
        return self.split(clients)

    def gather(self, grid: Grid, ready: Callable[[], bool], seconds: float, poll: float = 1.0) -> bool:
        """Keep asking until the connected nodes suffice or the time is over; returns whether they suffice."""
        began = monotonic()
        while True:
            self.refresh(grid)
            waited = monotonic() - began
            if ready() or waited >= seconds or self.stopped():
                return ready()
            sleep(min(pause(poll, waited), seconds - waited))

    def refresh(self, grid: Grid) -> None:
        """Remove nodes that left, ask new ones, and read the answers that arrived; never waits."""
        there = _present(grid)
        if there is None:
            return
        before = list(self.claims)
        self.claims = {node: clients for node, clients in self.claims.items() if node in there}
        self._pending = {node: asked for node, asked in self._pending.items() if node in there}
        for node in sorted(there - set(self.claims) - set(self._pending)):
            message = Message(question(self.population), node, MessageType.QUERY, ttl=SKEW)
            key, why = _push(grid, message)
            if key is None:
                _log.warning("node %d could not be asked for its clients: %s", node, why)
            else:
                self._pending[node] = key, message
        for node, (key, message) in list(self._pending.items()):
            if reply := pull(grid, key, message):
                del self._pending[node]
                self._take(node, reply)
        if before != list(self.claims):
            self._settle()

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

    def _take(self, node: int, reply: Reply) -> None:
        """Read a node's answer; after an unusable one the node is asked again in the next round."""
        try:
            if reply.message is None:
                raise WireError(reply.why)
            self.claims[node] = claimed(reply.message.content, self.population)
        except WireError as error:
            _log.warning("node %d does not say which clients it hosts: %s", node, error)

    def _settle(self) -> None:
        """Assign every client to a node, in the order in which the nodes first answered."""
        self._home.fill(-1)
        self._nodes = list(self.claims)
        for place, (node, clients) in enumerate(self.claims.items()):
            taken = self._home[clients] >= 0
            if taken.any():
                first = int(clients[taken][0])
                other = self._nodes[int(self._home[first])]
                text = f"client {first} is claimed by node {other} and by node {node}: do both have one partition-id?"
                if not self.begun:
                    raise ClaimError(text)
                _log.warning("%s The first one keeps it.", text)
            self._home[clients[~taken]] = place


def _present(grid: Grid) -> set[int] | None:
    """The connected nodes; None if the grid cannot list them at the moment."""
    try:
        return set(grid.get_node_ids())
    except Exception as error:
        if not _passing(error):
            raise
        _log.warning("the nodes cannot be listed at the moment: %s", one_line(repr(error)))
        return None


def _push(grid: Grid, message: Message) -> tuple[str | None, str]:
    """Send one message; its key, or why it could not be sent."""
    try:
        for key in grid.push_messages([message]):
            if key:
                return str(key), ""
    except Exception as error:
        return None, f"not sent: {one_line(repr(error))}"
    return None, "not sent: the grid refused the message"


def _passing(error: Exception) -> bool:
    """Whether an error comes from the connection, so that a retry may succeed."""
    home = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(home & {"httpx", "httpcore"})
