"""Flower's own grid of a deployment on a SuperLink in this process, whose nodes upload as slowly as one may wish.

Only the SuperLink is a stand-in: the nodes are those of `StandInGrid`, and messages travel as trees of objects.
"""

from collections.abc import Callable
from typing import Any

from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ConfirmMessageReceivedResponse, ObjectTree, PullObjectResponse, PushObjectResponse
from flwr.proto.runtime_pb2 import GetNodesResponse, PullAppMessagesResponse, PushAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from support import flower_grid
from support.flower_grid import StandInGrid


class Link:
    """The calls of a SuperLink's runtime API that a grid makes.

    Args:
        nodes: the nodes.
    """

    def __init__(self, nodes: StandInGrid) -> None:
        self.nodes = nodes
        self.trickle: dict[int, float] = {}  # partition -> seconds between two objects of its train replies
        self.cut: dict[int, int] = {}  # partition -> objects after which its train replies end
        self.requests: list[str] = []
        self.fetched: dict[str, int] = {}  # object -> its bytes, each time that it was fetched
        self.stored: dict[str, set[str]] = {}  # reply -> its objects
        self.senders: set[tuple[int, int]] = set()  # the run and the node from which messages came
        self.failing: Callable[[str], None] = lambda name: None
        self._contents: dict[str, tuple[float, bytes]] = {}  # object -> from when it is there, and its bytes
        self._orders: set[str] = set()
        self._ordered: set[str] = set()  # objects of orders, which replies may share

    def GetNodes(self, request: Any) -> GetNodesResponse:
        return GetNodesResponse(nodes=self.nodes.get_nodes())

    def PushMessages(self, request: Any) -> PushAppMessagesResponse:
        self._note("PushMessages")
        keys = [message.metadata.message_id for message in request.messages_list]
        self.senders |= {(message.metadata.run_id, message.metadata.src_node_id) for message in request.messages_list}
        self._orders.update(keys)
        objects = [part.object_id for tree in request.message_object_trees for part in iterate_object_tree(tree)]
        self._ordered.update(objects)
        return PushAppMessagesResponse(message_ids=keys, objects_to_push=objects, session_id="session")

    def PushObject(self, request: Any) -> PushObjectResponse:
        self._contents[request.object_id] = flower_grid.monotonic(), request.object_content
        return PushObjectResponse(stored=True)

    def PullMessages(self, request: Any) -> PullAppMessagesResponse:
        self._note("PullMessages")
        replies = [reply for key in request.message_ids for reply in self._replies(key)]
        sent = [message_to_proto(remove_content_from_message(reply)) for reply in replies]
        return PullAppMessagesResponse(messages_list=sent, message_object_trees=[self._upload(r) for r in replies])

    def PullObject(self, request: Any) -> PullObjectResponse:
        self._note("PullObject")
        if request.object_id not in self._contents:
            return PullObjectResponse(object_found=False)
        since, content = self._contents[request.object_id]
        if flower_grid.monotonic() < since:
            return PullObjectResponse(object_found=True, object_available=False)
        self.fetched[request.object_id] = len(content)
        return PullObjectResponse(object_found=True, object_available=True, object_content=content)

    def ConfirmMessageReceived(self, request: Any) -> ConfirmMessageReceivedResponse:
        self._note("ConfirmMessageReceived")
        for key in self.stored.pop(request.message_object_id, set()).difference(self._ordered, *self.stored.values()):
            self._contents.pop(key, None)
        return ConfirmMessageReceivedResponse()

    def close(self) -> None:
        """Nothing is open."""

    def _note(self, name: str) -> None:
        self.requests.append(name)
        self.failing(name)

    def _replies(self, key: str) -> list[Message]:
        """The replies to a message that have been announced."""
        if key in self._orders:
            message: Any = inflate_object_from_contents(key, {k: c for k, (_, c) in self._contents.items()})
            message.metadata.__dict__["_message_id"] = key
            self.nodes.pushed[key] = message, flower_grid.monotonic()
            self._orders.remove(key)
        replies = self.nodes._pull(key)
        for reply in replies:
            reply.metadata.__dict__["_message_id"] = reply.object_id
            context = self.nodes.nodes.get(reply.metadata.src_node_id)
            reply.__dict__["partition"] = context.node_config["partition-id"] if context else -1
        return replies

    def _upload(self, reply: Message) -> ObjectTree:
        """Announce a reply; its objects follow, one after the other."""
        partition, now = reply.__dict__["partition"], flower_grid.monotonic()
        training = reply.metadata.message_type == "train"
        pace = self.trickle.get(partition, 0.0) if training else 0.0
        objects = get_all_nested_objects(reply)
        most = self.cut.get(partition, len(objects)) if training else len(objects)
        for place, (key, thing) in enumerate(objects.items()):
            since = now + pace * (place + 1) if place < most else float("inf")
            self._contents[key] = min(since, self._contents.get(key, (since,))[0]), thing.deflate()
        self.stored[reply.object_id] = set(objects)
        return get_object_tree(reply)


def http_grid(nodes: StandInGrid) -> tuple[HttpGrid, Link]:
    """Flower's grid on such a SuperLink."""
    from flwr.supercore.run import Run

    grid, link = HttpGrid(token="token"), Link(nodes)
    grid._client = link  # type: ignore[assignment]
    grid.set_run(Run.create_empty(nodes.run_id))
    return grid, link
