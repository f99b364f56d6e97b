"""Who is asked in a round, and who is asked again: clients whose node left while the round waits for replies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from undrift.engine.flower.orders import Orders
from undrift.engine.flower.receive import receive
from undrift.engine.flower.roster import Roster
from undrift.engine.flower.tally import Tally

try:
    from flwr.app import ConfigRecord, Message
    from flwr.serverapp import Grid
except ImportError as error:  # pragma: no cover
    raise ImportError("the Flower engine needs Flower: pip install 'undrift[flower]'") from error

_ORDERS = 3  # how often a client is asked in a round, at most: a node that restarts all the time gets no more


@dataclass(eq=False)
class Asking:
    """The messages of one round, from the first to the last reply.

    A client is asked again if it has no outcome yet and its node is another than the one asked, or was started again.
    The tally counts it once, whichever reply comes first.

    Args:
        grid: the grid.
        roster: which node hosts which clients.
        orders: writes the messages.
        tally: counts the replies.
        accepted: for each client with state, the last round in which its upload was accepted.
        config: sent to the nodes, for custom train functions.
        seconds: how long the round may take.
        poll: longest pause between two polls.
        rejoin: how long a round whose other replies are there waits for a node that left in it.
    """

    grid: Grid
    roster: Roster
    orders: Orders
    tally: Tally
    accepted: Mapping[int, int]
    config: ConfigRecord | None
    seconds: float
    poll: float
    rejoin: float
    _asked: dict[int, tuple[int, int]] = field(default_factory=dict)  # client -> session of its node, times asked
    _latest: dict[int, Message] = field(default_factory=dict)  # client -> the last message about it
    _over: set[int] = field(default_factory=set)  # messages, by their `id`, whose outcome is known
    _gone: dict[int, float] = field(default_factory=dict)  # client that was asked -> when its node was found to be gone

    def __post_init__(self) -> None:
        self._looked, self._absent = monotonic(), dict(self.tally.absent)
        self._pending: list[Message] | None = None  # an empty list while nodes may come back
        for node, clients in self.roster.split(self.tally.open())[0].items():
            self._asked |= dict.fromkeys(clients, (self.roster.session(node), 1))
        self._note(self.tally.asked)

    def collect(self, need: int, grace: float | None) -> None:
        """Send the messages and count the replies, until all are there or the time is over.

        Args:
            need: how many uploads the round needs.
            grace: if given, the round ends so many seconds after it has them.
        """
        enough = None if grace is None else partial(self.tally.reached, need)
        first, tally = list(self.tally.asked), self.tally
        replies = receive(
            self.grid,
            first,
            self.seconds,
            poll=self.poll,
            enough=enough,
            grace=grace or 0.0,
            more=self.more,
            wanted=self.wanted,
        )
        for reply in replies:
            self._over.add(id(reply.sent))
            tally.take(reply)

    def wanted(self, message: Message) -> bool:
        """Whether a reply may still give one of its clients an outcome that no later message has given."""
        missing = (client for client in self.tally.about(message) if not self.tally.settled(client))
        return any(self._latest[client] is message or id(self._latest[client]) not in self._over for client in missing)

    def more(self) -> list[Message] | None:
        """Messages to nodes that came back; None if nobody is waited for who has not been asked."""
        now = monotonic()
        if self.tally.complete:
            return None
        if now - self._looked < self.poll and self.tally.absent == self._absent:
            return self._pending
        self.roster.refresh(self.grid, self.poll)
        self._looked, self._absent = now, dict(self.tally.absent)
        groups, homeless = self.roster.split(self.tally.open())
        again: dict[int, list[int]] = {}
        for node, clients in groups.items():
            session = self.roster.session(node)
            for client in clients:
                before, times = self._asked.get(client, (0, 0))
                if before != session and times < _ORDERS:
                    self._asked[client] = session, times + 1
                    again.setdefault(node, []).append(client)
        if again:
            left = max(0.0, self.seconds - (now - self.tally.began))
            return self._note(self.orders.add(self.tally, again, self.accepted, left, self.config))
        for client in homeless:
            if client in self._asked:
                self._gone.setdefault(client, now)
        waited = (now - self._gone[client] for client in homeless if client in self._gone)
        self._pending = [] if any(seconds < self.rejoin for seconds in waited) else None
        return self._pending

    def _note(self, messages: list[Message]) -> list[Message]:
        """Remember the last message about each client."""
        for message in messages:
            self._latest |= dict.fromkeys(self.tally.about(message), message)
        return messages
