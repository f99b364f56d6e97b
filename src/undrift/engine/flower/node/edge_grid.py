"""How an edge server reaches its own nodes: a SuperLink of their own, and a file on the edge server's disk.

    share_grid(grid, "edge.json")               # the ServerApp on the SuperLink of the nodes below; runs until stopped
    app = edge_app("scaffold", "edge.json")     # the ClientApp of the edge server's SuperNode, on the same machine

Flower lets only a ServerApp send messages to nodes, and starts a new process for every message to a SuperNode. So a
ServerApp runs on the SuperLink below for as long as the edge server does and writes its access to the file, with which
the process of each message sends its own messages to the nodes below and fetches the replies.
"""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import sleep

from flwr.app import Context, Message
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.superlink.grid.http_grid import HttpGrid

from undrift.core.server.wire import WireError
from undrift.util.storage.files import write

_CHECK = 60.0  # seconds between two wakes of a ServerApp that does nothing


def share_grid(grid: Grid, file: str | Path) -> None:
    """Let the edge server on this machine use the grid of a ServerApp, until the run is stopped.

    The file holds a secret, with which its reader can send messages to the nodes of the run. Only this user can read
    it, and it is deleted at the end.

    Args:
        grid: the grid of a ServerApp on a SuperLink.
        file: what to write, for `edge_app`.
    """
    if not isinstance(grid, HttpGrid):
        raise TypeError(
            f"share_grid: {type(grid).__name__} is not the grid of a SuperLink; start the app with flwr run"
        )
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Flower has no public form of these; its version is pinned
    certificates = None if grid._cert is None else grid._cert.decode()
    facts = {"address": grid._addr, "insecure": grid._insecure, "token": grid._token, "run": grid.run.run_id}
    text = json.dumps({**facts, "certificates": certificates})
    write(path, text)
    try:
        while True:
            sleep(_CHECK)
    finally:
        if path.is_file() and path.read_text(encoding="utf-8") == text:  # another start may have written its own
            path.unlink()


class EdgeGrid(HttpGrid):
    """The grid of a ServerApp, in the process of a ClientApp.

    Args:
        file: what `share_grid` has written.
    """

    def __init__(self, file: Path) -> None:
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise WireError(
                f"this edge server has no access to the SuperLink of its nodes ({file}: {error.strerror}): start the "
                "app there whose ServerApp calls share_grid"
            ) from None
        certificates = None if facts["certificates"] is None else facts["certificates"].encode()
        super().__init__(facts["address"], facts["insecure"], certificates, token=facts["token"])
        self.set_run(Run.create_empty(facts["run"]))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages of the run below: those made here have the numbers of the run above."""
        messages = list(messages)
        for message in messages:
            message.metadata.__dict__.update(_run_id=self.run.run_id, _src_node_id=SUPERLINK_NODE_ID)
        return super().push_messages(messages)


def open_grid(grid: Callable[[Context], Grid] | str | Path) -> Callable[[Context], Grid]:
    """A function that returns the grid of the nodes below.

    Args:
        grid: that function, or the file that `share_grid` has written.
    """
    return grid if callable(grid) else lambda _: EdgeGrid(Path(grid))
