"""A Flower grid in this process: the same push and pull calls, unmodified apps, and every fault one may wish for."""

from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

_RUNS = count(1)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 0, 1, 1  # Flower sets them before an app runs
Fault = Callable[[Message, Message], Message | list[Message]]


def travel(message: Message) -> Message:
    """A message as it is after Flower has taken it to bytes and back."""
    contents = {key: thing.deflate() for key, thing in get_all_nested_objects(message).items()}
    out: Any = inflate_object_from_contents(message.object_id, contents)
    out.metadata.__dict__["_message_id"] = message.metadata.message_id
    result: Message = out
    return result


class StandInGrid(Grid):
    """Nodes in this process; a node runs its app when its reply is first looked for.

    Args:
        app: the app of all nodes.
        nodes: how many nodes, with partitions 0, 1, ...
        root: folder of the nodes' states.
        seed: of node ids and of the order in which replies come.
    """

    def __init__(self, app: ClientApp, nodes: int, root: Path, seed: int = 0) -> None:
        self.app, self.root, self.random, self.run_id = app, root, Random(seed), next(_RUNS)
        TaskIdentity.run_id = self.run_id
        self.nodes: dict[int, Context] = {}
        self.partitions = nodes
        self.lazy = 0.5  # how often a reply is not there yet: replies come in any order
        self.delay: dict[int, float] = {}  # partition -> seconds until it replies
        self.pace: dict[int, float] = {}  # partition -> seconds that each message takes, one after the other
        self.ready: dict[str, float] = {}  # message -> when its reply is there
        self.free: dict[int, float] = {}  # partition -> when it has done all that it was sent
        self.dropped: set[int] = set()  # partitions whose train replies are lost
        self.faults: dict[int, Fault] = {}  # partition -> what its train replies become
        self.hidden: set[int] = set()  # nodes that are not listed, although their replies come
        self.keys_of: dict[int, bytes] = {}  # partition -> the public key of its node
        self.starts: dict[int, int] = {}  # node -> how often it was started
        self.plan: list[tuple[float, Callable[[], object]]] = []  # what happens when, on the clock
        self.pushed: dict[str, tuple[Message, float]] = {}
        self.pulls: list[list[str]] = []
        self.keys = count()
        for partition in range(nodes):
            self.join(partition)

    def join(self, partition: int) -> int:
        """Start a node; its id says nothing, as Flower's."""
        node = self.random.getrandbits(62)
        config = {"partition-id": partition, "num-partitions": self.partitions, "state-dir": str(self.root)}
        self.nodes[node] = Context(self.run_id, node, config, RecordDict(), {})  # type: ignore[arg-type]
        self.starts[node] = 1
        return node

    def node_of(self, partition: int) -> int:
        """The ID of a partition's node."""
        return next(n for n, c in self.nodes.items() if c.node_config["partition-id"] == partition)

    def restart(self, partition: int) -> None:
        """Start a node again under its ID, as with a registered key: what it was sent before is lost."""
        node = self.node_of(partition)
        self.starts[node] += 1
        self.pushed = {key: it for key, it in self.pushed.items() if it[0].metadata.dst_node_id != node}

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Do something once so many seconds have passed."""
        self.plan.append((monotonic() + seconds, action))

    def _pass(self) -> None:
        """Do what is due."""
        due = [action for when, action in self.plan if when <= monotonic()]
        self.plan = [(when, action) for when, action in self.plan if when > monotonic()]
        for action in due:
            action()

    def kill(self, partition: int) -> None:
        """End the nodes of a partition, with all they held in memory."""
        self.nodes = {n: c for n, c in self.nodes.items() if c.node_config["partition-id"] != partition}

    def get_node_ids(self) -> Iterable[int]:
        self._pass()
        return [node for node in self.nodes if node not in self.hidden]

    def get_nodes(self) -> Iterable[NodeInfo]:
        ids = self.get_node_ids()
        keys = {node: self.keys_of.get(c.node_config["partition-id"], b"") for node, c in self.nodes.items()}  # type: ignore[arg-type]
        return [NodeInfo(node_id=n, last_activated_at=str(self.starts[n]), public_key=keys[n]) for n in ids]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        keys = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = key = f"message-{next(self.keys)}"
            self.pushed[key] = travel(message), monotonic()
            keys.append(key)
            if (node := message.metadata.dst_node_id) in self.nodes:
                partition = int(self.nodes[node].node_config["partition-id"])
                start = max(monotonic(), self.free.get(partition, 0.0))
                self.ready[key] = self.free[partition] = start + self.pace.get(partition, 0.0)
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        self._pass()
        keys = list(message_ids)
        self.pulls.append(keys)
        return [reply for key in keys for reply in self._pull(key)]

    def _pull(self, key: str) -> list[Message]:
        if key not in self.pushed:
            return []
        message, pushed = self.pushed[key]
        context = self.nodes.get(message.metadata.dst_node_id)
        if context is None:
            return [self.error(message, "the node is gone")]
        partition, training = int(context.node_config["partition-id"]), message.metadata.message_type == "train"
        early = monotonic() - pushed < self.delay.get(partition, 0.0)
        busy = monotonic() < self.ready.get(key, 0.0)
        if busy or (training and (partition in self.dropped or early)) or self.random.random() < self.lazy:
            return []
        del self.pushed[key]
        try:
            reply: Any = travel(self.app(message, context))
        except Exception as error:
            return [self.error(message, repr(error))]
        if training and partition in self.faults:
            reply = self.faults[partition](message, reply)
        return reply if isinstance(reply, list) else [reply]

    @staticmethod
    def error(message: Message, reason: str) -> Message:
        """An error reply as Flower makes it."""
        reply = Message(Error(2, reason), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1  # as Flower's SuperLink does
        return reply

    def create_message(
        self, content: Any, message_type: Any, dst_node_id: Any, group_id: Any, ttl: Any = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Iterable[Message]:
        keys, out = list(self.push_messages(messages)), []
        for _ in range(100):
            out += [reply for key in keys for reply in self.pull_messages([key])]
        return out

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError
