"""The exchange of messages with the nodes in one round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from flwr.app import ConfigRecord, Message

from undrift.engine.flower.server.mailbox import Mailbox
from undrift.engine.flower.server.orders import Orders
from undrift.engine.flower.server.receive import receive
from undrift.engine.flower.server.roster import Roster
from undrift.engine.flower.server.tally import Tally

_ORDERS = 3  # messages about one client in a round, at most: a node that restarts all the time gets no more


@dataclass(eq=False)
class Exchange:
    """The exchange of messages with the nodes in one round, from the first message to the last reply.

    A client without an outcome is ordered again if its node has restarted, or if another node hosts it now. The tally
    counts it once, by the reply that comes first.

    Args:
        mailbox: that of the grid.
        roster: which node hosts which clients.
        orders: writes the messages.
        tally: counts the replies.
        accepted: for each client with state, the last round in which its upload was accepted.
        config: sent to the nodes, for custom train functions.
        seconds: how long the round may take.
        poll: longest pause between two polls.
        rejoin: how long a round whose other replies are there waits for a node that left in it.
    """

    mailbox: Mailbox
    roster: Roster
    orders: Orders
    tally: Tally
    accepted: Mapping[int, int]
    config: ConfigRecord | None
    seconds: float
    poll: float
    rejoin: float
    _ordered: dict[int, tuple[int, int]] = field(default_factory=dict)  # client -> session of its node, orders so far
    _latest: dict[int, Message] = field(default_factory=dict)  # client -> the last message about it
    _over: set[int] = field(default_factory=set)  # messages, by their `id`, whose outcome is known
    _gone: dict[int, float] = field(default_factory=dict)  # client with an order -> when its node was found to be gone

    def __post_init__(self) -> None:
        self._refreshed, self._absent = monotonic(), dict(self.tally.absent)
        self._pending: list[Message] | None = None  # an empty list while nodes may come back
        for node, clients in self.roster.split(self.tally.open_clients())[0].items():
            self._ordered |= dict.fromkeys(clients, (self.roster.session(node), 1))
        self._remember(self.tally.messages)

    def collect(self, need: int, grace: float | None) -> None:
        """Send the messages and count the replies, until all are there or the time is over.

        Args:
            need: how many uploads the round needs.
            grace: if given, the round ends so many seconds after it has them.
        """
        enough = None if grace is None else partial(self.tally.has_uploads, need)
        first, tally = list(self.tally.messages), self.tally
        replies = receive(
            self.mailbox,
            first,
            self.seconds,
            poll=self.poll,
            enough=enough,
            grace=grace or 0.0,
            more=self.more,
            wanted=self.awaits,
            most=tally.most_bytes,
        )
        for reply in replies:
            self._over.add(id(reply.sent))
            tally.take(reply)

    def awaits(self, message: Message) -> bool:
        """Whether the reply to a message may still decide the outcome of one of its clients."""
        missing = (client for client in self.tally.clients_of(message) if not self.tally.has_outcome(client))
        return any(self._latest[client] is message or id(self._latest[client]) not in self._over for client in missing)

    def more(self) -> list[Message] | None:
        """Orders to nodes that came back; none while such nodes are awaited, None if no node is."""
        now = monotonic()
        if self.tally.complete:
            return None
        if now - self._refreshed < self.poll and self.tally.absent == self._absent:
            return self._pending
        self.roster.refresh(self.mailbox, self.poll)
        self._refreshed, self._absent = now, dict(self.tally.absent)
        groups, homeless = self.roster.split(self.tally.open_clients())
        again: dict[int, list[int]] = {}
        for node, clients in groups.items():
            session = self.roster.session(node)
            for client in clients:
                before, orders = self._ordered.get(client, (0, 0))
                if before != session and orders < _ORDERS:
                    self._ordered[client] = session, orders + 1
                    again.setdefault(node, []).append(client)
        if again:
            left = max(0.0, self.seconds - (now - self.tally.began))
            return self._remember(self.orders.add(self.tally, again, self.accepted, left, self.config))
        for client in homeless:
            if client in self._ordered:
                self._gone.setdefault(client, now)
        waited = (now - self._gone[client] for client in homeless if client in self._gone)
        self._pending = [] if any(seconds < self.rejoin for seconds in waited) else None
        return self._pending

    def _remember(self, messages: list[Message]) -> list[Message]:
        """Remember the last message about each client."""
        for message in messages:
            self._latest |= dict.fromkeys(self.tally.clients_of(message), message)
        return messages
