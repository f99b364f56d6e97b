"""Tasks on real nodes: sent to the node of their client when they begin, awaited until a step has enough of them.

A task is one client's training from one model, in a message of its own. It is sent again if its node was started again,
or if another node hosts the client now: what a task gives is a function of the task alone, so it gives the same bits.

A SuperNode works on its messages one at a time and in order, also on those of a server that is gone. So a node has two
at most, one to work on and one to follow; the other tasks of its clients wait here. A server that was killed and is
started again then soon gets an answer from it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, sleep

from flwr.app import ConfigRecord

from undrift.core.records.rejection import Rejection
from undrift.core.records.types import Broadcast, Flight, ServerState
from undrift.core.server.step import remembers
from undrift.core.tasks.durations import SECOND
from undrift.engine.flower.server.mailbox import Mailbox, Reply
from undrift.engine.flower.server.orders import Orders
from undrift.engine.flower.server.receive import pause
from undrift.engine.flower.server.roster import Roster
from undrift.engine.flower.server.tally import Tally
from undrift.engine.round.arrivals import TaskOutcome, sent_versions
from undrift.engine.round.scheduler import TaskInFlight, tasks_of
from undrift.engine.worker.job import Timing, VersionGroup
from undrift.engine.worker.partial_sum import Partial

_ORDERS = 3  # messages about one task, at most: a node that restarts all the time gets no more
_AHEAD = 2  # messages that a node has at most
_LIFETIME = 7 * 24 * 3600.0  # seconds that a message may take: a task may outlive many steps


@dataclass(eq=False)
class _SentTask:
    """A task in flight, and what is awaited of it."""

    task: TaskInFlight
    tally: Tally | None = None  # of its latest message
    key: str | None = None  # of that message, while its reply is awaited
    node: int = 0  # that got it
    session: int = 0  # of that node
    orders: int = 0
    gone: float | None = None  # since when no reply can come
    why: str = "no node hosts it"


class NodeTasks:
    """The tasks of a run that are in flight on nodes.

    Args:
        mailbox: that of the grid.
        roster: which node hosts which clients.
        flight: what is under way before the first step, and is sent again; None if nothing is.
        poll: longest pause between two polls for replies.
        rejoin: how many seconds a task waits for a node that left; then it is given up.
        config: sent to the nodes, for custom train functions.

    `time` is in nanoseconds since the start of the run; while no server ran it stood still.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        roster: Roster,
        flight: Flight | None,
        poll: float,
        rejoin: float,
        config: ConfigRecord | None = None,
    ) -> None:
        self.mailbox, self.roster, self.poll, self.rejoin, self.config = mailbox, roster, poll, rejoin, config
        self.flying = {task.number: _SentTask(task) for task in tasks_of(flight)}
        self._queues = Counter[int]()  # node -> its messages
        self._zero = monotonic() - (0 if flight is None else flight.time) / SECOND
        self._refreshed = self._heard = monotonic()

    @property
    def time(self) -> int:
        """Now."""
        return round((monotonic() - self._zero) * SECOND)

    def stop(self) -> None:
        """Wait for no reply any more."""
        self.mailbox.discard([one.key for one in self.flying.values() if one.key is not None])

    def find_reply(self, end: float) -> tuple[_SentTask, Reply] | None:
        """A task whose reply is there, which is then no longer in flight; None if there is none.

        Args:
            end: when to stop looking.
        """
        waiting = {one.key: one for one in self.flying.values() if one.key is not None and one.tally is not None}
        for found in self.mailbox.pull({key: one.tally.messages[0] for key, one in waiting.items() if one.tally}):
            if found is not None:
                one, reply = waiting[found[0]], found[1]
                self._forget(one, replied=True)
                self._heard = monotonic()
                node = reply.sent.metadata.dst_node_id
                revoked = self.roster.revoked(node, one.task.client)
                if (reply.message is not None or reply.malformed) and not revoked:
                    return self.flying.pop(one.task.number), reply
                why = "the list of hosts no longer gives it this client" if revoked else reply.why
                one.gone, one.why = monotonic(), f"node {node}: {why}"
            if monotonic() >= end:
                break
        return None

    def find_lost(self) -> _SentTask | None:
        """A task whose node has been gone for too long, which is then no longer in flight."""
        now = monotonic()
        for one in self.flying.values():
            if one.gone is not None and now - one.gone >= self.rejoin:
                self._forget(one)
                return self.flying.pop(one.task.number)
        return None

    def wait(self, end: float) -> list[_SentTask]:
        """Sleep until the next poll; returns the tasks to send again, to nodes that came back or to others.

        Args:
            end: when to be back.
        """
        now = monotonic()
        sleep(min(pause(self.poll, now - self._heard), max(0.0, end - now)))
        if monotonic() - self._refreshed < self.poll:
            return []
        self.roster.refresh(self.mailbox, self.poll)
        self._refreshed, again = monotonic(), list[_SentTask]()
        for one in self.flying.values():
            groups, homeless = self.roster.split([one.task.client])
            if homeless:
                one.gone = one.gone or self._refreshed
            elif self.roster.session(next(iter(groups))) != one.session and one.orders < _ORDERS:
                again.append(one)
        return again

    def send(self, one: _SentTask, sent: Broadcast, accepted: Mapping[int, int], orders: Orders) -> None:
        """Send a task to the node of its client, if it has one.

        Args:
            one: the task.
            sent: what its client gets.
            accepted: the number of the last accepted state of clients that have one.
            orders: writes the message.
        """
        self._forget(one)
        task, schedule = one.task, orders.algorithm.schedule
        groups, homeless = self.roster.split([task.client])
        one.gone = monotonic() if homeless else None
        if homeless or self._queues[next(iter(groups))] >= _AHEAD:
            return
        timing = Timing(0, task.turn, task.version * schedule.visits(0) + task.turn)
        enough = max(1, schedule.enough(0))
        one.tally = orders.write(sent, groups, accepted, _LIFETIME, self.config, timing=timing, cohort=enough)
        (message,) = one.tally.messages
        one.node = message.metadata.dst_node_id
        one.session, one.orders = self.roster.session(one.node), one.orders + 1
        one.key, one.why = self.mailbox.push(message, one.tally.most_bytes(message))
        one.gone = monotonic() if one.key is None else None
        self._queues[one.node] += one.key is not None

    def held(self) -> list[_SentTask]:
        """The tasks that wait until their nodes have worked on others, as far as they can be sent now."""
        waiting = {one.task.client: one for one in self.flying.values() if one.key is None and one.gone is None}
        groups = self.roster.split(list(waiting))[0] if waiting else {}
        free = {node: max(0, _AHEAD - self._queues[node]) for node in groups}
        return [waiting[client] for node, clients in groups.items() for client in clients[: free[node]]]

    def _forget(self, one: _SentTask, *, replied: bool = False) -> None:
        """Await no further reply to the latest message of a task."""
        if one.key is not None:
            if not replied:
                self.mailbox.discard([one.key])
            self._queues[one.node] -= 1
            one.key = None


@dataclass(eq=False)
class NodeArrivals:
    """The arrivals of one step, from real nodes: see `undrift.engine.round.scheduler.Arrivals`.

    Args:
        tasks: those of the run.
        state: the state before the step.
        broadcast: what is sent in its round.
        orders: writes its messages.
        end: when the step is made with the uploads that arrived, on the monotonic clock.

    `keys` has the numbers of the new states of accepted tasks, `rejections` those that were rejected, `ended` the same
    by task, `lost` the clients without an upload and why, `uploads` the digests of accepted displacements, `nodes` the
    node that each client was ordered from.
    """

    tasks: NodeTasks
    state: ServerState
    broadcast: Broadcast
    orders: Orders
    end: float
    keys: dict[int, int] = field(default_factory=dict)
    rejections: list[Rejection] = field(default_factory=list)
    lost: dict[int, str] = field(default_factory=dict)
    ended: dict[int, TaskOutcome] = field(default_factory=dict)
    uploads: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sent, self._accepted = sent_versions(self.state, self.broadcast), dict(self.state.accepted)
        self._remembers = remembers(self.orders.algorithm, self.orders.local)
        self._waves = Counter[int]()
        self._sums: dict[tuple[int, int, int], Partial] = {}  # by wave, version and turn
        self._sum_of: dict[tuple[int, int], Partial] = {}  # by client and number of its new state
        for one in self.tasks.flying.values():
            if not one.orders:
                self._send(one)

    @property
    def time(self) -> int:
        """Now, in nanoseconds since the start of the run."""
        return self.tasks.time

    there = None  # a node is there while it is connected

    def join(self) -> bool:
        """False: tasks wait for their nodes."""
        return False

    def begin(self, number: int, client: int, version: int, turn: int) -> TaskInFlight:
        """Send a task to the node of its client."""
        one = _SentTask(TaskInFlight(number, client, version, turn, self.time, 0))
        self.tasks.flying[number] = one
        self._send(one)
        return one.task

    def next(self) -> tuple[TaskInFlight, bool] | None:
        """The next task whose reply arrives, or that is given up; None if the time of the step is over."""
        while self.tasks.flying and monotonic() < self.end:
            for one in self.tasks.held():
                self._send(one)
            found = self.tasks.find_reply(self.end)
            if found is not None:
                self._arrived = found
                return found[0].task._replace(end=self.time), True
            lost = self.tasks.find_lost()
            if lost is not None:
                self.lost[lost.task.client] = lost.why
                return lost.task._replace(end=self.time), False
            for one in self.tasks.wait(self.end):
                self._send(one)
        return None

    def accept(self, task: TaskInFlight, age: int) -> bool:
        """Add the upload of the task that has just arrived to the sum of its model, or reject it."""
        one, reply = self._arrived
        tally, client = one.tally, task.client
        assert tally is not None
        tally.timing = tally.timing._replace(age=age)
        tally.take(reply)
        self.rejections += tally.rejections
        if not tally.visits:
            self.lost |= tally.absent
            reasons = [rejection.reason.name.lower() for rejection in tally.rejections]
            self.ended[task.number] = TaskOutcome((*reasons, "absent")[0], 0)
            return False
        key = self.keys[task.number] = tally.timing.key or 0
        group = self._waves[client], task.version, task.turn
        total = self._sums.setdefault(group, Partial(tally.empty()))
        total.merge(tally.partial())
        total.total.merge(tally.total)
        self._sum_of[client, key] = total
        self._waves[client] += 1
        self._accepted[client] = key
        self.uploads |= tally.uploads
        return True

    def collect(self, groups: Sequence[VersionGroup], known: Mapping[int, int]) -> list[Partial]:
        """The sums of groups of accepted tasks."""
        return [self._sum_of[group.clients[0], group.timing.key or 0] for group in groups]

    def _send(self, one: _SentTask) -> None:
        """Send a task to the node of its client."""
        known = self._accepted if self._remembers else {}
        self.tasks.send(one, self._sent[one.task.version], known, self.orders)
        self.nodes |= {} if one.tally is None else one.tally.nodes
