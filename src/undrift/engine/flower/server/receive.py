"""The server's receive loop: which replies arrive in time.

Each reply is summed before the next is read, and an unreadable reply does not end the round. Deadlines use a monotonic
clock. There is no mathematics here.
"""

from collections.abc import Callable, Iterable, Iterator
from time import monotonic, sleep

from flwr.app import Message
from flwr.serverapp import Grid

from undrift.engine.flower.server.mailbox import Mailbox, Reply

SKEW = 600.0
"""Seconds by which the clocks of server and nodes may differ; a message outlives its deadline by this much."""

LATE = "no reply in time"
"""The reason for a missing reply after the deadline."""


class TooFewNodes(RuntimeError):  # noqa: N818  clear without Error
    """Fewer nodes or clients than the run needs connected in time."""


def receive(
    grid: Grid | Mailbox,
    messages: Iterable[Message],
    seconds: float,
    *,
    poll: float = 1.0,
    enough: Callable[[], bool] | None = None,
    grace: float = 0.0,
    more: Callable[[], Iterable[Message] | None] = lambda: None,
    wanted: Callable[[Message], bool] = lambda _: True,
    most: Callable[[Message], int | None] = lambda _: None,
) -> Iterator[Reply]:
    """Send messages and yield the outcome of each as it is known: every message that is wanted gives one reply.

    Args:
        grid: the grid, or its mailbox.
        messages: the messages to send.
        seconds: how long to wait.
        poll: longest pause between two polls of all missing replies; the first pauses are a hundredth of it.
        enough: returns whether the remaining replies need not be waited for.
        grace: seconds that remaining replies still have after that.
        more: called between two polls for further messages; None ends the wait once every reply is there.
        wanted: returns whether the reply to a message is still waited for.
        most: returns the most bytes that the reply to a message may have; None has no limit.
    """
    mailbox, began = Mailbox.of(grid), monotonic()
    end = began + seconds
    waiting: dict[str, Message] = {}
    while True:
        for message in messages:
            key, why = mailbox.push(message, most(message))
            if key is None:
                yield Reply(message, None, why)
            else:
                waiting[key] = message
        for found in mailbox.pull(waiting):
            if found is not None:
                del waiting[found[0]]
                yield found[1]
            if enough is not None and enough():
                end, enough = min(end, monotonic() + grace), None
            if monotonic() >= end:
                break
        if monotonic() >= end:
            break
        further = more()
        waiting = _drop(mailbox, waiting, wanted)
        if further is None and not waiting:
            break
        messages = list(further or ())
        now = monotonic()
        if not messages and now < end:
            sleep(min(pause(poll, now - began), end - now))
    mailbox.discard(waiting)
    for message in waiting.values():
        yield Reply(message, None, LATE)


def _drop(mailbox: Mailbox, waiting: dict[str, Message], wanted: Callable[[Message], bool]) -> dict[str, Message]:
    """The messages whose replies are still wanted; those to the others are discarded."""
    kept = {key: message for key, message in waiting.items() if wanted(message)}
    mailbox.discard(waiting.keys() - kept.keys())
    return kept


def pause(poll: float, waited: float) -> float:
    """How long to sleep between two polls: a tenth of the time waited so far, at most `poll`."""
    return min(poll, max(poll / 100, waited / 10))
