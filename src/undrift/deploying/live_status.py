"""What a deployment's server is doing, in a small file that is rewritten every few seconds: RUN/status.json.

phase     "waiting for nodes", "training", "evaluating", "ended", "failed" or "stopped"
updated   when the file was written, in seconds since 1970, as all times here
round     how many rounds are done, of `rounds`
closed    when the last round was closed
nodes     for each node how many clients it hosts, the first of them, whether it is connected, and since when, and how
          many of its clients were accepted, rejected (some because they failed) or absent so far
waiting   the nodes whose replies are awaited
absent    the clients of the last round that sent no upload, with the reason
error     why it ended, if it failed
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, time
from typing import Any, Literal

from undrift.core.records.rejection import Reason
from undrift.engine.round.record import Record
from undrift.util.shell import STATUS
from undrift.util.storage.files import write

EVERY = 5.0
"""Seconds between two versions of the file, unless something happens."""
SHOWN = 100
"""How many clients of a node, and absent clients, are named."""

COUNTED = ("accepted", "rejected", "failed", "absent")
"""What is counted of each node's clients over all rounds; failed ones are rejected too."""

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
        self._restore()
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

    def _restore(self) -> None:
        """Take over the counts of nodes from the last start of the run; a damaged file counts as none."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            for node, facts in json.loads(self.path.read_text(encoding="utf-8"))["nodes"].items():
                counts = {name: int(facts.get(name, 0)) for name in COUNTED}
                self._known(int(node)).update({**counts, "connected": False, "since": float(facts["since"])})

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
            known = self._known(node)
            if known["connected"] != (node in there):
                known |= {"connected": node in there, "since": now}
                changed = True
        self.write() if changed else self.refresh()

    def set_hosted(self, hosted: Mapping[int, Sequence[int]]) -> None:
        """Record which clients each node was given."""
        for node, clients in hosted.items():
            self._known(node).update({"hosted": len(clients), "clients": list(clients[:SHOWN])})
        self.write()

    def _known(self, node: int) -> dict[str, Any]:
        """What is known of a node; its counts begin at 0."""
        new: dict[str, Any] = {
            "hosted": 0,
            "clients": [],
            "connected": None,
            "since": time(),
            **dict.fromkeys(COUNTED, 0),
        }
        return self._nodes.setdefault(node, new)

    def await_replies(self, nodes: Iterable[int]) -> None:
        """Record that nodes were sent a request to train."""
        self.facts["waiting"] = sorted({*self.facts["waiting"], *nodes})
        self.set_phase("training")

    def receive_replies(self, nodes: Iterable[int]) -> None:
        """Record that nodes replied; without any, that the server is still waiting."""
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
        failed = [rejection.client for rejection in record.rejections if rejection.reason is Reason.FAILED]
        rejected = [rejection.client for rejection in record.rejections]
        missing = [client for client, _ in record.absent]
        for name, clients in zip(COUNTED, (record.clients, rejected, failed, missing), strict=True):
            for client in clients:
                if client in record.nodes:
                    self._known(record.nodes[client])[name] += 1
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
