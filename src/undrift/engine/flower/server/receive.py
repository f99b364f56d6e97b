"""The server's receive loop on any Flower grid: which nodes are connected, and which replies arrive in time.

Messages are pushed and replies pulled one at a time, so that each reply is summed before the next is read and an
unreadable reply does not end the round. Deadlines use a monotonic clock. There is no mathematics here.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from flwr.app import Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from undrift.engine.flower.records import one_line

_log = logging.getLogger("flwr")  # Flower shows what is logged here

SKEW = 600.0
"""Seconds by which the clocks of server and nodes may differ; a message outlives its deadline by this much."""

LATE = "no reply in time"
"""The reason for a missing reply after the deadline."""


class TooFewNodes(RuntimeError):  # noqa: N818  clear without Error
    """Fewer nodes or clients than the run needs connected in time."""


@dataclass(frozen=True)
class Reply:
    """The outcome of a message: the node's reply, or why there is none.

    Args:
        sent: the message it answers.
        message: the reply; None if none arrived in time or it could not be read.
        why: why there is no reply, in one line.
        malformed: whether a reply arrived that cannot be read.
    """

    sent: Message
    message: Message | None
    why: str = ""
    malformed: bool = False


def receive(
    grid: Grid,
    messages: Iterable[Message],
    seconds: float,
    *,
    poll: float = 1.0,
    enough: Callable[[], bool] | None = None,
    grace: float = 0.0,
    more: Callable[[], Iterable[Message] | None] = lambda: None,
    wanted: Callable[[Message], bool] = lambda _: True,
) -> Iterator[Reply]:
    """Send messages and yield the outcome of each as it is known: every message that is wanted gives one reply.

    Args:
        grid: the grid.
        messages: the messages to send.
        seconds: how long to wait.
        poll: longest pause between two polls of all missing replies; the first pauses are a hundredth of it.
        enough: returns whether the remaining replies need not be waited for.
        grace: seconds that remaining replies still have after that.
        more: called between two polls for further messages; None ends the wait once every reply is there.
        wanted: returns whether the reply to a message is still waited for.
    """
    began = monotonic()
    end = began + seconds
    waiting: dict[str, Message] = {}
    while True:
        for message in messages:
            key, why = push(grid, message)
            if key is None:
                yield Reply(message, None, why)
            else:
                waiting[key] = message
        for key in list(waiting):
            if reply := pull(grid, key, waiting[key]):
                del waiting[key]
                yield reply
            if enough is not None and enough():
                end, enough = min(end, monotonic() + grace), None
            if monotonic() >= end:
                break
        if monotonic() >= end:
            break
        further = more()
        waiting = {key: message for key, message in waiting.items() if wanted(message)}
        if further is None and not waiting:
            break
        messages = list(further or ())
        now = monotonic()
        if not messages and now < end:
            sleep(min(pause(poll, now - began), end - now))
    for message in waiting.values():
        yield Reply(message, None, LATE)


def pull(grid: Grid, key: str, sent: Message) -> Reply | None:
    """The reply to one message, or None while there is none; an unreadable reply is not retried."""
    try:
        pulled = list(grid.pull_messages([key]))
    except Exception as error:
        # A malformed body raises here, after the grid has discarded it; a lost connection may come back.
        if is_transient(error):
            return None
        return Reply(sent, None, f"unreadable reply: {one_line(repr(error))}", malformed=True)
    for message in pulled:
        if message.metadata.reply_to_message_id == key:
            return read_reply(sent, message)
    return None


def read_reply(sent: Message, message: Message) -> Reply:
    """A reply that arrived; if it is an error, with the reason."""
    if message.has_error():
        return Reply(sent, None, f"error {message.error.code}: {one_line(message.error.reason)}")
    if not message.has_content():
        return Reply(sent, None, "empty reply")
    return Reply(sent, message)


def pause(poll: float, waited: float) -> float:
    """How long to sleep between two polls: a tenth of the time waited so far, at most `poll`."""
    return min(poll, max(poll / 100, waited / 10))


def connected_nodes(grid: Grid) -> dict[int, NodeInfo] | None:
    """The connected nodes by ID; None if the grid cannot list them at the moment."""
    try:
        return {int(node.node_id): node for node in grid.get_nodes()}
    except Exception as error:
        if not is_transient(error):
            raise
        _log.warning("the nodes cannot be listed at the moment: %s", one_line(repr(error)))
        return None


def push(grid: Grid, message: Message) -> tuple[str | None, str]:
    """Send one message; its key, or why it could not be sent."""
    try:
        for key in grid.push_messages([message]):
            if key:
                return str(key), ""
    except Exception as error:
        return None, f"not sent: {one_line(repr(error))}"
    return None, "not sent: the grid refused the message"


def is_transient(error: Exception) -> bool:
    """Whether an error comes from the connection, so that a retry may succeed."""
    home = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(home & {"httpx", "httpcore"})
