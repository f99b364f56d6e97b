"""What a round costs the server as nodes grow in number: all connected to it, or through edge servers.

Every node hosts one client with one step; all train with the same worker, in this process, behind a grid that takes
every message to bytes and back. Processor seconds are counted apart for the server, for the edge servers together and
for the nodes; what Flower's own servers and the network add is not there. Memory is the growth of the whole process,
nodes included. Each row runs in its own process.

    python benchmarks/speed/light_nodes.py --json > benchmarks/speed/results/light_nodes.json
"""

import argparse
import json
import logging
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from processes import run_part
from undrift import Local, TensorTask, make
from undrift.flower import Job, UndriftStrategy, client_app, edge_app

NODES = (10, 100, 1_000, 10_000)
LOCAL = Local(lr=0.05, steps=1, batch_size=1)
LIMITS: dict[str, Any] = {"wait": 3600.0, "poll": 0.01}
Serve = Callable[[int, Message, Context], Message]


class Watch:
    """Processor seconds by name, each moment counted once: inside a block of another name, for that one."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._names = [""]
        self._since = time.process_time()

    def _count(self) -> None:
        now = time.process_time()
        self.seconds[self._names[-1]] = self.seconds.get(self._names[-1], 0.0) + now - self._since
        self._since = now

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count a block for a name."""
        self._count()
        self._names.append(name)
        yield
        self._count()
        self._names.pop()


def pack(message: Message) -> dict[str, bytes]:
    """A message as bytes."""
    return {key: thing.deflate() for key, thing in get_all_nested_objects(message).items()}


def unpack(message: Message, contents: dict[str, bytes]) -> Any:
    """A message from bytes, under its ID."""
    out: Any = inflate_object_from_contents(message.object_id, contents)
    out.metadata.__dict__["_message_id"] = message.metadata.message_id
    return out


class LightGrid(Grid):
    """Nodes in this process; one runs when its reply is pulled, so that one message at a time exists as bytes.

    Args:
        serve: the app of a node, by its number.
        nodes: how many.
        name: whose seconds those of the nodes are.
        watch: where to count them.
    """

    keys = count()

    def __init__(self, serve: Serve, nodes: int, name: str, watch: Watch) -> None:
        self.serve, self.name, self.watch, self.run_id = serve, name, watch, 1
        self.ids = {int.from_bytes(sha256(f"{id(self)}:{i}".encode()).digest()[:7], "big"): i for i in range(nodes)}
        self.contexts = {
            node: Context(1, node, {"partition-id": i, "num-partitions": nodes}, RecordDict(), {})
            for node, i in self.ids.items()
        }
        self.pushed: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.ids)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """All nodes, none of which restarts."""
        return [NodeInfo(node_id=node, last_activated_at="1") for node in self.ids]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Keep them until their replies are pulled."""
        keys = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = key = f"message-{next(self.keys)}"
            self.pushed[key] = message
            keys.append(key)
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies, each from its node at once."""
        return [self._pull(self.pushed.pop(key)) for key in message_ids if key in self.pushed]

    def _pull(self, sent: Message) -> Message:
        contents = pack(sent)  # once for each node, as Flower's server does
        node = sent.metadata.dst_node_id
        with self.watch(self.name):
            reply = self.serve(self.ids[node], unpack(sent, contents), self.contexts[node])
            contents = pack(reply)
        received: Message = unpack(reply, contents)
        return received

    def create_message(self, content: Any, message_type: Any, dst_node_id: Any, group_id: Any, ttl: Any = None) -> Any:
        """Flower's older way."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Iterable[Message]:
        """Not used."""
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        """Not used."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """Not used."""
        raise NotImplementedError


def network() -> nn.Module:
    """A perceptron of 60,010 parameters."""
    return nn.Sequential(nn.Linear(64, 800), nn.ReLU(), nn.Linear(800, 10))


def resident(name: str) -> float:
    """A memory figure of this process in megabytes: VmRSS, the size now, or VmHWM, the peak."""
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024


def measure(method: str, nodes: int, edges: int) -> dict[str, Any]:
    """One round of all nodes, the second; the first has the start of everything."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logging.getLogger("flwr").setLevel(logging.ERROR)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets them before an app runs
    draw, watch = torch.Generator().manual_seed(0), Watch()
    inputs, targets = torch.randn(nodes, 64, generator=draw), torch.randint(10, (nodes,), generator=draw)
    task = TensorTask(network, inputs, targets, torch.arange(nodes).split(1))

    def host(first: int) -> Any:
        return client_app(Job(make(method), task), lambda context: [first + int(context.node_config["partition-id"])])

    if edges:
        cuts = [round(i * nodes / edges) for i in range(edges + 1)]
        apps = []
        for a, b in pairwise(cuts):
            leaf = host(a)
            below = LightGrid(lambda _, message, context, leaf=leaf: leaf(message, context), b - a, "nodes", watch)
            apps.append(edge_app(method, lambda _, below=below: below, nodes=b - a, **LIMITS))
        grid = LightGrid(lambda i, message, context: apps[i](message, context), edges, "edges", watch)
    else:
        leaf = host(0)
        grid = LightGrid(lambda _, message, context: leaf(message, context), nodes, "nodes", watch)

    rounds: list[tuple[dict[str, float], float]] = []

    def note(*_: Any) -> None:
        watch._count()
        rounds.append((dict(watch.seconds), time.perf_counter()))

    model = network()
    strategy = UndriftStrategy(make(method), model, LOCAL, population=nodes, deadline=3600.0, on_round=note, **LIMITS)
    before = resident("VmRSS")
    with watch("server"):
        strategy.start(grid, ArrayRecord(model.state_dict()), 2)
    (earlier, begun), (later, ended) = rounds
    assert strategy.state is not None
    return {
        "method": method,
        "nodes": nodes,
        "edges": edges,
        "parameters": len(strategy.state.params),
        "seconds": {name: round(later[name] - earlier.get(name, 0.0), 3) for name in later if name},
        "round_seconds": round(ended - begun, 2),
        "accepted": len(strategy.records[-1].visits),
        "megabytes": round(resident("VmHWM") - before, 1),
        "sha256": sha256(strategy.state.params.numpy().tobytes()).hexdigest()[:16],
    }


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description="What a round costs the server as nodes grow in number.")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--most", type=int, default=NODES[-1], help="the largest number of nodes")
    parser.add_argument("--part", help="measure one part in this process: fedavg:1000:32")
    arguments = parser.parse_args()
    if arguments.part:
        method, nodes, edges = arguments.part.split(":")
        print(json.dumps(measure(method, int(nodes), int(edges))))
        return
    rows = []
    for nodes in (x for x in NODES if x <= arguments.most):
        for edges in dict.fromkeys((0, round(nodes**0.5) if nodes >= 100 else 0)):
            rows.append(run_part(__file__, ["--part", f"fedavg:{nodes}:{edges}"]))
            print(rows[-1], file=sys.stderr, flush=True)
    machine = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    if arguments.json:
        print(json.dumps({"rows": rows, "environment": machine}, indent=1))


if __name__ == "__main__":
    main()
