"""How a run is doing, from its folder alone: `undrift status`. Nothing is changed, and torch is not loaded.

A run is "running", "stalled" if its last round is too old, "failed" if its process has died or given up, or "ended".
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import disk_usage
from time import time
from typing import Any, Literal

from undrift.util.shell import as_argument
from undrift.util.storage.jsonable import read_object, read_objects
from undrift.util.storage.summary import has_ended, why_no_run
from undrift.util.system import is_locked

State = Literal["running", "stalled", "failed", "ended"]

LEAST = 600.0
"""A run is not stalled before its last round is so many seconds old; with a deadline, twice the deadline if longer."""
LITTLE = 1 << 20
"""A disk with fewer free bytes is full."""
CODES: Mapping[State, int] = {"running": 0, "ended": 0, "stalled": 1, "failed": 2}
"""The exit code of `undrift status` for each state."""
HIDDEN = ("time", "event", "client", "previous", "hash")
"""The facts of an event in the audit log that are not shown."""


@dataclass(frozen=True)
class Health:
    """How a run is doing.

    Args:
        run: the name of its folder.
        state: "running", "stalled", "failed" or "ended".
        detail: why, and what to do.
        phase: what its process is doing, or was when it died.
        round: rounds done.
        rounds: rounds in all.
        age: seconds since the last round was closed; None before the first.
        quiet: seconds since the process last wrote its status; None if it writes none.
        score: the value of the metric by which the run is judged, when it was last measured.
        judged_by: that metric.
        last: the numbers of the last round.
        population: how many clients there are.
        nodes: for each node how many clients it hosts, the first of them, whether it is connected, and since when.
        waiting: the nodes whose replies are awaited.
        absent: the clients of the last round that sent no upload, with the reason; the first hundred.
        rejected: over all rounds, how many uploads were rejected for each reason.
        quarantine: the clients that are left out, with the last event about each.
        abandoned: over all rounds, how many had too few uploads.
        restarts: how often the run was resumed.
        free: free bytes on the disk of its folder.
    """

    run: str
    state: State
    detail: str
    phase: str
    round: int
    rounds: int
    age: float | None
    quiet: float | None
    score: float | None
    judged_by: str
    last: Mapping[str, Any]
    population: int
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    waiting: tuple[int, ...] = ()
    absent: tuple[tuple[int, str], ...] = ()
    rejected: Mapping[str, int] = field(default_factory=dict)
    quarantine: Mapping[int, str] = field(default_factory=dict)
    abandoned: int = 0
    restarts: int = 0
    free: int = 0

    @property
    def code(self) -> int:
        """The exit code: 0 if all is well, 1 if it is stalled, 2 if it failed."""
        return CODES[self.state]

    @property
    def missing(self) -> int:
        """How many clients of the last round sent no upload; `absent` names the first of them."""
        return max(len(self.absent), int(self.last.get("absent") or 0))


def health(folder: Path, within: float | None = None) -> Health:
    """How the run in a folder is doing.

    Args:
        folder: the run's folder.
        within: a running run is stalled if its last round is older than so many seconds; None takes twice its
            deadline, at least `LEAST`.
    """
    if reason := why_no_run(folder):
        raise ValueError(reason)
    config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
    live, summary = read_object(folder / "status.json"), read_object(folder / "summary.json")
    rows = list(read_objects(folder / "metrics.jsonl"))
    events, now = _Events.read(folder / "audit.jsonl"), time()  # the clock after what a live run writes
    closed = live.get("closed") or events.committed
    limit = max(LEAST, 2 * float(live.get("deadline") or 0)) if within is None else within
    idle = now - max(closed or 0.0, live.get("started") or events.begun or 0.0)
    error = live.get("error") if live.get("phase") in ("failed", "stopped") else events.stopped
    finished = has_ended(summary, config)
    state, detail = _state(folder, bool(live), str(error or ""), finished, idle, limit)
    column = live.get("judged_by") or summary.get("judged_by") or _judged_by(config, rows)
    scores = [row[column] for row in rows if row.get(column) is not None]
    return Health(
        run=folder.resolve().name,
        state=state,
        detail=detail,
        phase=str(live.get("phase", "")),
        round=len(rows),
        rounds=config["rounds"],
        age=None if closed is None else max(0.0, round(now - closed, 1)),
        quiet=max(0.0, round(now - live["updated"], 1)) if "updated" in live else None,
        score=scores[-1] if scores else None,
        judged_by=str(column),
        last=rows[-1] if rows else {},
        population=config.get("clients", 0),
        nodes=live.get("nodes", {}),
        waiting=tuple(live.get("waiting", ())),
        absent=tuple((client, why) for client, why in live.get("absent", ())),
        rejected=dict(events.rejected),
        quarantine={client: text for client, (until, text) in events.quarantine.items() if len(rows) < until - 1},
        abandoned=events.abandoned,
        restarts=events.restarts,
        free=disk_usage(folder).free,
    )


def _judged_by(config: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The metric of a run that has no result yet: of personal models, if its rows have it."""
    metric = str(config.get("goal", "accuracy")).split()[-1]
    personal = f"personal_{metric}"
    return personal if any(personal in row for row in rows) else metric


def _state(folder: Path, deployed: bool, error: str, finished: bool, idle: float, limit: float) -> tuple[State, str]:
    """The state of a run, and what to do about it."""
    if is_locked(folder / "lock"):
        if idle > limit:
            return "stalled", f"no round was closed for {idle:.0f} s (limit {limit:.0f} s); see {folder / 'log.txt'}"
        return "running", ""
    if finished:
        return "ended", f"its result is in {folder / 'summary.json'}"
    again = "give the same flwr run again" if deployed else f"undrift resume {as_argument(folder)}"
    if disk_usage(folder).free < LITTLE:
        again = f"free space on the disk, which is full, and {again}"
    return "failed", f"{error or 'its process has died without a result'}; to resume: {again}"


@dataclass
class _Events:
    """What is read from the audit log: times, counts, and the last event about each client in quarantine."""

    committed: float | None = None
    begun: float | None = None
    rejected: Counter[str] = field(default_factory=Counter)
    quarantine: dict[int, tuple[int, str]] = field(default_factory=dict)
    abandoned: int = 0
    restarts: int = 0
    stopped: str = ""

    @classmethod
    def read(cls, path: Path) -> "_Events":
        """The events of a log, as far as it is readable; `undrift verify` checks whether it is intact."""
        found = cls()
        for entry in read_objects(path):
            event, moment = entry.get("event"), float(entry.get("time", 0))
            if event == "commit" and entry.get("round"):
                found.committed = moment
            elif event == "abandoned":
                found.abandoned += 1
            elif event in ("begin", "resume"):
                found.begun, found.stopped = moment, ""
                found.restarts += event == "resume"
            elif event == "stopped":
                found.stopped = str(entry.get("why"))
            elif event == "reject":
                found.rejected[str(entry.get("reason"))] += 1
            elif event == "quarantine":
                facts = ((name, x) for name, x in entry.items() if name not in HIDDEN)
                text = ", ".join(f"{name} {value}" for name, value in facts)
                found.quarantine[int(entry["client"])] = int(entry.get("until", 0)), text
        return found
