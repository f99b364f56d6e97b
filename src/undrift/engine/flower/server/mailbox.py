"""The server's mailbox on any Flower grid: it sends messages and collects replies, and waits for no node.

On a SuperLink a reply is announced before it is uploaded, and Flower's `pull_messages` then waits for all its objects.
So here only what is there is fetched, object by object; a reply that is larger than expected is refused and deleted.
Other grids hold whole replies; these are pulled one at a time, so that an unreadable one costs no other.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flwr.app import Message
from flwr.common.constant import FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE as CHUNK
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import RunNotRunningException
from flwr.superlink.grid.http_grid import HttpGrid

from undrift.engine.flower.records import one_line

_log = logging.getLogger("flwr")  # Flower shows what is logged here
_SPARE = 1 << 20  # bytes that names, shapes and headers of a reply may take
_OBJECTS = 400  # objects of a reply besides the chunks of its arrays
_UNWANTED = 1000  # late replies that are deleted when they come
_FAILURES = 3  # failed requests for many replies; after these, replies are requested one at a time


class Watch(Protocol):
    """Sees what the server does with its nodes."""

    def set_connected(self, nodes: Iterable[int]) -> None:
        """These nodes are connected."""

    def set_hosted(self, hosted: Mapping[int, Sequence[int]]) -> None:
        """Each node hosts these clients."""

    def await_replies(self, nodes: Iterable[int]) -> None:
        """Nodes were sent a request to train."""

    def receive_replies(self, nodes: Iterable[int]) -> None:
        """Nodes replied to it, or nothing new has come."""


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


@dataclass(eq=False)
class _Upload:
    """A reply that was announced, and what of it has been fetched."""

    message_id: str
    missing: list[str]  # the object that is uploaded last comes first
    contents: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


class Mailbox:
    """Sends messages over a grid and collects the replies.

    Args:
        grid: the grid.
        watch: sees which nodes are connected and whose replies are awaited; None has no such observer.
    """

    def __init__(self, grid: Grid, watch: Watch | None = None) -> None:
        self.grid, self.watch = grid, watch
        self._most: dict[str, int] = {}
        self._uploads: dict[str, _Upload] = {}
        self._unwanted: dict[str, None] = {}
        self._failures = 0

    @classmethod
    def of(cls, grid: "Grid | Mailbox") -> "Mailbox":
        """The mailbox of a grid, or the mailbox itself."""
        return grid if isinstance(grid, Mailbox) else cls(grid)

    def nodes(self) -> dict[int, NodeInfo] | None:
        """The connected nodes by ID; None if the grid cannot list them at the moment."""
        try:
            found = {int(node.node_id): node for node in self.grid.get_nodes()}
        except Exception as error:
            if not is_transient(error):
                raise
            _log.warning("the nodes cannot be listed at the moment: %s", one_line(repr(error)))
            return None
        if self.watch is not None:
            self.watch.set_connected(found)
        return found

    def push(self, message: Message, most: int | None = None) -> tuple[str | None, str]:
        """Send one message; its key, or why it could not be sent.

        Args:
            message: the message.
            most: the most bytes that its reply may have; None has no limit.
        """
        try:
            key = next((str(key) for key in self.grid.push_messages([message]) if key), None)
        except RunNotRunningException:
            raise
        except Exception as error:
            return None, f"not sent: {one_line(repr(error))}"
        if key is None:
            return None, "not sent: the grid refused the message"
        if most is not None:
            self._most[key] = most
        if self.watch is not None and _trains(message):
            self.watch.await_replies([message.metadata.dst_node_id])
        return key, ""

    def pull(self, waiting: Mapping[str, Message]) -> Iterator[tuple[str, Reply] | None]:
        """The replies to messages that are there, by the message's key; None between two requests, to read the clock.

        Args:
            waiting: the messages whose replies are awaited.
        """
        found = self._fetch(waiting) if isinstance(self.grid, HttpGrid) else self._pull_whole(waiting)
        for pair in found:
            if pair is not None:
                self._most.pop(pair[0], None)
            if self.watch is not None:
                trained = pair is not None and _trains(pair[1].sent)
                self.watch.receive_replies([pair[1].sent.metadata.dst_node_id] if pair and trained else [])
            yield pair

    def discard(self, keys: Iterable[str]) -> None:
        """Wait no longer for the replies to these messages; what comes of them is deleted unread."""
        for key in keys:
            self._most.pop(key, None)
            if (upload := self._uploads.pop(key, None)) is not None:
                self._delete(upload.message_id)
            elif isinstance(self.grid, HttpGrid):
                self._unwanted[key] = None
        while len(self._unwanted) > _UNWANTED:
            del self._unwanted[next(iter(self._unwanted))]

    def _pull_whole(self, waiting: Mapping[str, Message]) -> Iterator[tuple[str, Reply] | None]:
        """Pull replies one at a time."""
        for key, sent in list(waiting.items()):
            reply = _pull_one(self.grid, key, sent)
            yield None if reply is None else (key, reply)

    def _fetch(self, waiting: Mapping[str, Message]) -> Iterator[tuple[str, Reply] | None]:
        """Fetch what is there of the replies on a SuperLink."""
        for key, message_id, tree in self._announced([*waiting, *self._unwanted]):
            if key in self._unwanted:
                del self._unwanted[key]
                self._delete(message_id)
            elif key in waiting:
                objects = list(dict.fromkeys(part.object_id for part in iterate_object_tree(tree)))
                self._uploads[key] = _Upload(message_id, objects[::-1])
            yield None
        for key, sent in list(waiting.items()):
            for reply in self._advance(key, sent):
                yield None if reply is None else (key, reply)

    def _announced(self, keys: list[str]) -> Iterator[tuple[str, str, ObjectTree]]:
        """The replies that nodes have announced since the last call: message, ID and tree of objects of each."""
        fresh = [key for key in keys if key not in self._uploads]
        step = max(1, len(fresh)) if self._failures < _FAILURES else 1
        for first in range(0, len(fresh), step):
            try:
                found = self._link.PullMessages(PullAppMessagesRequest(message_ids=fresh[first : first + step]))
            except RunNotRunningException:
                raise
            except Exception as error:
                self._failures += step > 1
                _log.warning("replies cannot be requested at the moment: %s", one_line(repr(error)))
                continue
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                yield message.metadata.reply_to_message_id, message.metadata.message_id, tree

    def _advance(self, key: str, sent: Message) -> Iterator[Reply | None]:
        """Fetch the objects of a reply that are there: None after each, and the outcome once it is known."""
        upload, most = self._uploads.get(key), self._most.get(key)
        if upload is None:
            return
        count, expected = len(upload.missing) + len(upload.contents), (most or 0) // CHUNK + _OBJECTS
        if most is not None and count > expected:
            yield self._end(key, _refused(sent, f"it has {count} objects, at most {expected} were expected"))
            return
        while upload.missing:
            request = PullObjectRequest(node=self._grid.node, run_id=self._run, object_id=upload.missing[0])
            try:
                found = self._link.PullObject(request)
            except Exception as error:
                if not is_transient(error):
                    raise
                return
            if not found.object_found:
                yield self._end(key, Reply(sent, None, "its upload was cut"))
                return
            if not found.object_available:
                return
            upload.contents[upload.missing.pop(0)] = found.object_content
            upload.size += len(found.object_content)
            if most is not None and upload.size > most + _SPARE:
                yield self._end(key, _refused(sent, f"it has more than the {most} bytes that were expected"))
                return
            yield None
        yield self._end(key, _inflate(key, sent, upload))

    def _end(self, key: str, reply: Reply) -> Reply:
        """The outcome of a reply, whose objects on the SuperLink are deleted."""
        self._delete(self._uploads.pop(key).message_id)
        return reply

    def _delete(self, message_id: str) -> None:
        """Delete a reply and its objects on the SuperLink, also while it is uploaded."""
        request = ConfirmMessageReceivedRequest(node=self._grid.node, run_id=self._run, message_object_id=message_id)
        try:
            self._link.ConfirmMessageReceived(request)
        except RunNotRunningException:
            raise
        except Exception as error:
            _log.warning("a reply could not be deleted on the SuperLink: %s", one_line(repr(error)))

    @property
    def _grid(self) -> HttpGrid:
        """The grid of a SuperLink."""
        assert isinstance(self.grid, HttpGrid)
        return self.grid

    @property
    def _link(self) -> Any:
        """The SuperLink's runtime API. Flower has no public call for single objects; its version is pinned."""
        return self._grid._runtime_client

    @property
    def _run(self) -> int:
        """The ID of the run at the SuperLink."""
        return int(self._grid.run.run_id)


def read_reply(sent: Message, message: Message) -> Reply:
    """A reply that arrived; if it is an error, with the reason."""
    if message.has_error():
        return Reply(sent, None, f"error {message.error.code}: {one_line(message.error.reason)}")
    if not message.has_content():
        return Reply(sent, None, "empty reply")
    return Reply(sent, message)


def is_transient(error: Exception) -> bool:
    """Whether an error comes from the connection, so that a retry may succeed."""
    home = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(home & {"httpx", "httpcore"})


def _refused(sent: Message, why: str) -> Reply:
    """The outcome of a reply that cannot be used."""
    return Reply(sent, None, f"unreadable reply: {why}", malformed=True)


def _inflate(key: str, sent: Message, upload: _Upload) -> Reply:
    """The reply that was uploaded, read from its objects."""
    try:
        message: Any = inflate_object_from_contents(upload.message_id, upload.contents)
        message.metadata.__dict__["_message_id"] = upload.message_id
        if message.metadata.reply_to_message_id != key:
            raise ValueError("it answers another message than announced")
    except Exception as error:  # a hostile tree may fail in any way
        return _refused(sent, one_line(repr(error)))
    return read_reply(sent, message)


def _pull_one(grid: Grid, key: str, sent: Message) -> Reply | None:
    """The reply to one message, or None while there is none; an unreadable reply is not retried."""
    try:
        pulled = list(grid.pull_messages([key]))
    except Exception as error:
        # A malformed body raises here, after the grid has discarded it; a lost connection may come back.
        if is_transient(error):
            return None
        return _refused(sent, one_line(repr(error)))
    for message in pulled:
        if message.metadata.reply_to_message_id == key:
            return read_reply(sent, message)
    return None


def _trains(message: Message) -> bool:
    """Whether a message is an order to train."""
    return str(message.metadata.message_type).startswith("train")
