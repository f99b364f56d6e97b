"""What a deployment's server is doing, in a small file that is rewritten every few seconds: RUN/status.json.

phase     "waiting for nodes", "training", "evaluating", "ended", "failed" or "stopped"
updated   when the file was written, in seconds since 1970, as all times here
round     how many rounds are done, of `rounds`
closed    when the last round was closed
nodes     for each node how many clients it hosts, the first of them, whether it is connected, and since when
waiting   the nodes whose replies are awaited
absent    the clients of the last round that sent no upload, with the reason
error     why it ended, if it failed
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal

from undrift.engine.round.record import Record
from undrift.util.storage.files import write

STATUS = "status.json"
EVERY = 5.0
"""Seconds between two versions of the file, unless something happens."""
CHECK = 30.0
"""Seconds between two checks of which nodes are connected, while replies are awaited."""
SHOWN = 100
"""How many clients of a node, and absent clients, are named."""

Phase = Literal["waiting for nodes", "training", "evaluating", "ended", "failed", "stopped"]


class LiveStatus:
    """Writes the status of a run in progress.

    Args:
        folder: the run's folder.
        rounds: rounds in all.
        population: how many clients there are.
        deadline: seconds after which a round is closed.
    """

    def __init__(self, folder: Path, rounds: int, population: int, deadline: float) -> None:
        self.path = folder / STATUS
        self.population = population
        self._written = -EVERY
        self._nodes: dict[int, dict[str, Any]] = {}
        self.facts: dict[str, Any] = {
            "phase": "waiting for nodes",
            "process": os.getpid(),
            "started": time(),
            "round": 0,
            "rounds": rounds,
            "population": population,
            "deadline": deadline,
            "closed": None,
            "waiting": [],
            "absent": [],
            "error": None,
        }

    def begin(self, run: str, round: int, judged_by: str) -> None:
        """Record where the run begins or resumes.

        Args:
            run: the name under which nodes store their clients' states.
            round: how many rounds are done.
            judged_by: the column by which the run is judged.
        """
        self.facts |= {"run": run, "round": round, "judged_by": judged_by}
        self.write()

    def set_phase(self, phase: Phase) -> None:
        """Record what the process is doing now."""
        if self.facts["phase"] != phase:
            self.facts["phase"] = phase
            self.write()

    def set_connected(self, nodes: Iterable[int]) -> None:
        """Record which nodes are connected."""
        there, now = set(nodes), time()
        changed = False
        for node in there | set(self._nodes):
            known = self._nodes.setdefault(node, {"hosted": 0, "clients": [], "connected": None, "since": now})
            if known["connected"] != (node in there):
                known |= {"connected": node in there, "since": now}
                changed = True
        self.write() if changed else self.refresh()

    def set_hosted(self, node: int, clients: Sequence[int]) -> None:
        """Record which clients a node claims to host."""
        known = self._nodes.setdefault(node, {"connected": True, "since": time()})
        known |= {"hosted": len(clients), "clients": list(clients[:SHOWN])}
        self.write()

    def await_replies(self, nodes: Iterable[int]) -> None:
        """Record that nodes were sent a request to train."""
        self.facts["waiting"] = sorted({*self.facts["waiting"], *nodes})
        self.set_phase("training")

    def receive_replies(self, nodes: Iterable[int]) -> None:
        """Record that nodes replied."""
        left = sorted(set(self.facts["waiting"]) - set(nodes))
        if left != self.facts["waiting"]:
            self.facts["waiting"] = left
            self.write()
        else:
            self.refresh()

    def close_round(self, record: Record) -> None:
        """Record that a round is over.

        Args:
            record: of the round.
        """
        absent = [[client, why] for client, why in record.absent[:SHOWN]]
        self.facts |= {"round": record.round + 1, "closed": time(), "absent": absent}
        self.facts |= {"phase": "waiting for nodes", "waiting": []}
        self.write()

    def refresh(self) -> None:
        """Rewrite the file if it is a few seconds old."""
        if monotonic() - self._written >= EVERY:
            self.write()

    def write(self) -> None:
        """Rewrite the file; a full disk does not end the run here."""
        self._written = monotonic()
        nodes = {str(node): facts for node, facts in sorted(self._nodes.items())}
        with suppress(OSError):
            write(self.path, json.dumps({**self.facts, "updated": time(), "nodes": nodes}) + "\n", sync=False)

    @contextmanager
    def outcome(self) -> Iterator[None]:
        """Record at the end of the block how the run ended."""
        try:
            yield
        except (SystemExit, KeyboardInterrupt):
            self.facts |= {"phase": "stopped", "error": "stopped by a signal"}
            raise
        except BaseException as error:
            self.facts |= {"phase": "failed", "error": f"{type(error).__name__}: {error}"}
            raise
        else:
            self.facts["phase"] = "ended"
        finally:
            self.facts["waiting"] = []
            self.write()


class WatchedGrid:
    """A grid that records in a status which nodes are connected and whose replies are awaited; all else is the grid's.

    Args:
        grid: a Flower grid.
        status: receives what the grid sees.
    """

    def __init__(self, grid: Any, status: LiveStatus) -> None:
        self._grid, self._status = grid, status
        self._types: dict[str, tuple[str, int]] = {}
        self._newest: dict[tuple[str, int], str] = {}  # an older message of a kind to a node is not answered any more
        self._checked = monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def get_node_ids(self) -> list[int]:
        """The connected nodes."""
        nodes = list(self._grid.get_node_ids())
        self._connected(nodes)
        return nodes

    def get_nodes(self) -> list[Any]:
        """The connected nodes, with what the grid knows about each."""
        nodes = list(self._grid.get_nodes())
        self._connected([int(node.node_id) for node in nodes])
        return nodes

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        """Send messages."""
        sent = list(messages)
        keys = list(self._grid.push_messages(sent))
        for key, message in zip(keys, sent, strict=False):
            kind, node = message.metadata.message_type, message.metadata.dst_node_id
            if key:
                self._types.pop(self._newest.get((kind, node), ""), None)
                self._types[key], self._newest[kind, node] = (kind, node), key
                if kind.startswith("train"):
                    self._status.await_replies([node])
        return keys

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        """The replies that have arrived."""
        replies = list(self._grid.pull_messages(message_ids))
        if monotonic() - self._checked >= CHECK:
            with suppress(Exception):  # the connected nodes are read again before the next round
                self.get_node_ids()
        for reply in replies:
            kind, node = self._types.pop(reply.metadata.reply_to_message_id, ("", 0))
            if kind.startswith("train"):
                self._status.receive_replies([node])
            elif kind == "query":
                self._hosts(node, reply)
        self._status.refresh()
        return replies

    def _connected(self, nodes: list[int]) -> None:
        """Record in the status which nodes are connected."""
        self._checked = monotonic()
        self._status.set_connected(nodes)

    def _hosts(self, node: int, reply: Any) -> None:
        """Note the clients that a node claims; the strategy decides whether it gets them."""
        from undrift.core.server.wire import WireError
        from undrift.engine.flower.records import read_claim

        with suppress(WireError, TypeError, ValueError):
            if reply.has_content():
                self._status.set_hosted(node, read_claim(reply.content, self._status.population).tolist())
