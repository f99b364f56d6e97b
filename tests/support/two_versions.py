"""A server and nodes of different versions of the package: each is a process of its own, with its own source.

    PYTHONPATH=SERVER/src:tests python -m support.two_versions METHODS NODE/src NODE/src ...

prints a line of JSON for each method: the hash of the server's state, and who was rejected or absent in each round.
`record FILE` in place of METHODS writes the exchanges with the first node to a file instead.

Only names that release 0.2.0 has are used, and nothing of `support` that needs more.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from support.flower import state_of
from support.flower_grid import StandInGrid
from undrift import Local, make
from undrift.flower import Job, Quarantine, UndriftStrategy, client_app
from undrift.testing import Clinic, fingerprint

Process: TypeAlias = "subprocess.Popen[str]"

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
ROUNDS = 3
TESTS = Path(__file__).resolve().parents[1]


def pack(message: Message) -> dict[str, Any]:
    """A message as JSON has it."""
    contents = {key: b64encode(thing.deflate()).decode() for key, thing in get_all_nested_objects(message).items()}
    return {"number": message.metadata.message_id, "object": message.object_id, "contents": contents}


def unpack(packed: dict[str, Any]) -> Message:
    """The message that `pack` packed."""
    contents = {key: b64decode(text) for key, text in packed["contents"].items()}
    message: Any = inflate_object_from_contents(packed["object"], contents)
    message.metadata.__dict__["_message_id"] = packed["number"]
    out: Message = message
    return out


def serve_node() -> None:
    """A node: a line of JSON with a message comes in, one with the reply goes out."""
    apps: dict[str, Any] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name, config = asked["method"], asked["config"]
        app = apps.setdefault(name, client_app(Job(make(name), Clinic())))
        context = Context(1, asked["node"], config, RecordDict(), {})
        print(json.dumps(pack(app(unpack(asked["message"]), context))), flush=True)


class ForeignNodes(StandInGrid):
    """A grid whose nodes are processes with sources of their own.

    Args:
        method: the method.
        processes: the process of each node: see `start_node`.
        root: folder of the nodes' states.
        record: gets every message and its reply.
    """

    def __init__(self, method: str, processes: Sequence[Process], root: Path, record: list[Any] | None = None) -> None:
        self.method, self.processes, self.record = method, processes, record
        super().__init__(self.answer, len(processes), root)  # type: ignore[arg-type]

    def answer(self, message: Message, context: Context) -> Message:
        """The reply of a node's process."""
        config = dict(context.node_config)
        asked = {"method": self.method, "config": config, "node": context.node_id, "message": pack(message)}
        process = self.processes[int(config["partition-id"])]
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        replied = json.loads(process.stdout.readline())
        if self.record is not None:
            self.record.append({"config": config, "asked": asked["message"], "replied": replied})
        return unpack(replied)


def start_node(source: str) -> Process:
    """Start the process of a node with a source."""
    command = [sys.executable, "-m", "support.two_versions", "node"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment(source), **pipes)  # type: ignore[call-overload,no-any-return]


def environment(source: str) -> dict[str, str]:
    """The environment of a process with a source."""
    return {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{TESTS}", "OMP_NUM_THREADS": "1"}


def serve_rounds(method: str, nodes: Sequence[Process], record: list[Any] | None = None) -> dict[str, Any]:
    """Some rounds of a method on nodes with sources of their own."""
    with tempfile.TemporaryDirectory() as root:
        grid = ForeignNodes(method, nodes, Path(root), record)
        given: dict[str, Any] = {"population": 8, "seed": 3, "wait": 120.0, "poll": 0.01, "quorum": 0.0, "run": "mixed"}
        given["quarantine"] = Quarantine(after=1)
        strategy = UndriftStrategy(make(method), Clinic().model(), LOCAL, **given)
        strategy.start(grid, ArrayRecord(Clinic().model().state_dict()), ROUNDS, timeout=60.0)
        rejected = [[[r.client, r.reason.name, r.detail] for r in one.rejections] for one in strategy.records]
        absent = [dict(one.absent) for one in strategy.records]
        quarantined = [list(map(str, one.quarantined)) for one in strategy.records]
        found = {"method": method, "rejected": rejected, "absent": absent, "quarantined": quarantined}
        return {**found, "sha256": fingerprint(state_of(strategy))}


def main() -> None:
    """A node, or a server with its nodes."""
    if sys.argv[1] == "node":
        return serve_node()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    records = sys.argv[1] == "record"
    nodes = [start_node(source) for source in sys.argv[3 if records else 2 :]]
    exchanges: list[Any] = []
    for method in ("fedavg", "scaffold") if records else sys.argv[1].split("|"):
        found: list[Any] = []
        line = serve_rounds(method, nodes, found)
        exchanges += [{"method": method, **one} for one in found if one["config"]["partition-id"] == 0]
        if not records:
            print(json.dumps(line), flush=True)
    if records:
        Path(sys.argv[2]).write_text(json.dumps(exchanges) + "\n")
    for node in nodes:
        node.communicate(timeout=60)
    return None


if __name__ == "__main__":
    main()
