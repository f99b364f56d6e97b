"""Backends: where a simulation's clients are trained. A backend moves typed values and knows no mathematics.

`Simulation` samples the clients, makes the server step and keeps the records; its backend does one thing: train the
clients of a round and add their uploads up. The result is the same to the bit on every backend.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from undrift.core.types import Broadcast
from undrift.engine.store import Store
from undrift.engine.worker import Job, Partial, Worker


class Backend(Protocol):
    """Trains the clients of one simulation."""

    def open(self, job: Job) -> None:
        """Take the job; called once, by the simulation. A job this backend cannot do is refused here."""

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients of a round and add their uploads up.

        Args:
            broadcast: what the server sent.
            clients: the clients of the round.
            accepted: for each client with state, the last round in which its upload was accepted.
        """

    @property
    def worker(self) -> Worker:
        """A worker in this process that sees the clients' states, to evaluate clients' own models."""

    def close(self) -> None:
        """End everything this backend started; it may be called more than once."""


class InProcess:
    """Trains clients in this process, one after the other: the reference that other backends equal to the bit.

    Args:
        store: where the clients' states are kept; None keeps them in memory.
        root: folder of the clients' states, to keep them on disk; not together with `store`.
    """

    def __init__(self, store: Store | None = None, root: str | Path | None = None) -> None:
        if store is not None and root is not None:
            raise ValueError("InProcess: give store= or root=, not both")
        self.store, self.root = store, None if root is None else folder("InProcess", root)
        self._job: Job | None = None
        self._worker: Worker | None = None

    def open(self, job: Job) -> None:
        """Take the job."""
        if job.depth and self.root is None:
            raise ValueError(
                f"depth={job.depth}: InProcess keeps states for earlier rounds on disk only; "
                "give it a folder, InProcess(root=...), or leave depth at 0"
            )
        self._job = fresh("InProcess", self._job, job)

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients one after the other."""
        return self.worker.serve(broadcast, clients, accepted, len(clients))

    @property
    def worker(self) -> Worker:
        """The one worker, made when it is first needed."""
        if self._worker is None:
            job = opened("InProcess", self._job)
            self._worker = Worker(job, self.store) if self.root is None else Worker.on_disk(job, self.root)
        return self._worker

    def close(self) -> None:
        """There is nothing to end: the states stay readable."""


class DiskBackend:
    """What backends with workers in other processes share: the clients' states lie in a folder.

    Args:
        root: the folder, which all workers must see; None makes a temporary one that ends with the backend.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.name = type(self).__name__
        self.root = None if root is None else folder(self.name, root)
        self.closed = False
        self._job: Job | None = None
        self._worker: Worker | None = None
        self._temporary: TemporaryDirectory[str] | None = None

    def open(self, job: Job) -> None:
        """Take the job; what runs elsewhere is started when it is first needed."""
        self._job = fresh(self.name, self._job, job)

    @property
    def job(self) -> Job:
        """The job of the simulation."""
        if self.closed:
            raise RuntimeError(f"{self.name} is closed; make a new one for a new Simulation")
        return opened(self.name, self._job)

    @property
    def states(self) -> Path:
        """The folder of the clients' states."""
        if self.root is not None:
            return self.root
        if self.closed:
            raise RuntimeError(f"{self.name}: the clients' states ended with the run; give root= to keep them")
        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="undrift-")
        return Path(self._temporary.name)

    @property
    def worker(self) -> Worker:
        """A worker in this process that reads the same states."""
        if self._worker is None:
            self._worker = Worker.on_disk(opened(self.name, self._job), self.states)
        return self._worker

    def close(self) -> None:
        """Delete the temporary folder; the states in a folder that was given stay."""
        self.closed = True
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._worker = None


def folder(name: str, root: str | Path) -> Path:
    """A folder given for clients' states, as an absolute path: workers may have another working folder."""
    if not isinstance(root, str | Path):
        raise TypeError(
            f"{name} keeps clients' states on disk: give root= the path of a folder, got {type(root).__name__}"
        )
    return Path(root).resolve()


def fresh(name: str, old: Job | None, new: Job) -> Job:
    """The job of a backend that has none yet."""
    if old is not None:
        raise RuntimeError(f"this {name} belongs to another Simulation already; give each Simulation its own backend")
    return new


def opened(name: str, job: Job | None) -> Job:
    """The job of a backend that has one."""
    if job is None:
        raise RuntimeError(f"{name} has no job yet: give it to a Simulation, Simulation(..., backend={name}(...))")
    return job
