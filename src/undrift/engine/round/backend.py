"""Backends: where a simulation's clients are trained. A backend moves typed values and contains no mathematics.

`Simulation` samples the clients, makes the server step and writes the records; its backend does one thing: it trains
the clients of a round and sums their uploads. The result is bit-identical on every backend.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from undrift.core.records.types import Broadcast, ServerState
from undrift.engine.stores.object_store import check_url, is_url, local_folder
from undrift.engine.stores.store import Store
from undrift.engine.worker.job import Job, Score, VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker import Worker


class Backend(Protocol):
    """Trains the clients of one simulation."""

    def open(self, job: Job) -> None:
        """Accept the job; the simulation calls this once. Raises if this backend cannot run the job."""

    def collect(self, groups: Sequence[VersionGroup], accepted: Mapping[int, int], cohort: int) -> list[Partial]:
        """Train clients and sum the uploads of each group.

        Args:
            groups: the clients by the model that they start from; no client is in two of them.
            accepted: for each client with state, the last round in which its upload was accepted.
            cohort: how many uploads the server adds up in all.
        """

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The losses of clients before a round, for a method that selects by them: see `Worker.losses`."""

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """Every client's score with its personal model: see `Worker.scores`."""

    @property
    def worker(self) -> Worker:
        """A worker in this process that can read the clients' states."""

    def close(self) -> None:
        """End everything this backend started; may be called more than once."""


class InProcess:
    """Trains clients in this process, one after the other: the reference that other backends match bit for bit.

    Args:
        store: where the clients' states are kept; None keeps them in memory.
        root: folder or URL of an object store for the clients' states, to keep them; not together with `store`.
    """

    def __init__(self, store: Store | None = None, root: str | Path | None = None) -> None:
        if store is not None and root is not None:
            raise ValueError("InProcess: give store= or root=, not both")
        self.store, self.root = store, None if root is None else state_root("InProcess", root, shared=False)
        self._job: Job | None = None
        self._worker: Worker | None = None

    def open(self, job: Job) -> None:
        """Accept the job."""
        if job.depth and self.root is None:
            raise ValueError(
                f"depth={job.depth}: InProcess keeps states for earlier rounds on disk only; "
                "give it a folder, InProcess(root=...), or leave depth at 0"
            )
        self._job = accept_job("InProcess", self._job, job)

    def collect(self, groups: Sequence[VersionGroup], accepted: Mapping[int, int], cohort: int) -> list[Partial]:
        """Train one client after the other."""
        return [self.worker.serve(sent, clients, accepted, cohort, timing) for sent, clients, timing in groups]

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The losses of clients, one after the other."""
        return self.worker.losses(broadcast, clients, accepted, batches)

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """The scores of clients, one after the other."""
        return self.worker.scores(state, clients, score)

    @property
    def worker(self) -> Worker:
        """The only worker, created on first use."""
        if self._worker is None:
            job = require_job("InProcess", self._job)
            self._worker = Worker(job, self.store) if self.root is None else Worker.on_disk(job, self.root)
        return self._worker

    def close(self) -> None:
        """Does nothing: the states stay readable."""


class DiskBackend:
    """The base of backends with workers in other processes, which store the clients' states in a folder.

    Args:
        root: the folder, which all workers must be able to access; None creates a temporary one, deleted by `close`.

    A backend whose workers can open an object store sets `urls`; its `root` may then be a URL: see `ObjectStore`.
    """

    urls = False

    def __init__(self, root: str | Path | None = None) -> None:
        self.name = type(self).__name__
        self.root = (
            None if root is None else state_root(self.name, root) if self.urls else absolute_folder(self.name, root)
        )
        self.closed = False
        self._job: Job | None = None
        self._worker: Worker | None = None
        self._temporary: TemporaryDirectory[str] | None = None

    def open(self, job: Job) -> None:
        """Accept the job; workers are started on first use."""
        self._job = accept_job(self.name, self._job, job)

    @property
    def job(self) -> Job:
        """The job of the simulation."""
        if self.closed:
            raise RuntimeError(f"{self.name} is closed; create a new one for a new Simulation")
        return require_job(self.name, self._job)

    @property
    def home(self) -> Path | str:
        """The folder of the clients' states, or the URL."""
        return self.root if isinstance(self.root, str) else self.states

    @property
    def states(self) -> Path:
        """The folder of the clients' states."""
        if isinstance(self.root, str):
            raise RuntimeError(f"{self.name}: the clients' states are not in a folder but in {self.root}")
        if self.root is not None:
            return self.root
        if self.closed:
            raise RuntimeError(
                f"{self.name}: the clients' states were deleted with the backend; give root= to keep them"
            )
        if self._temporary is None:
            self._temporary = TemporaryDirectory(prefix="undrift-")
        return Path(self._temporary.name)

    @property
    def worker(self) -> Worker:
        """A worker in this process that reads the same states."""
        if self._worker is None:
            self._worker = Worker.on_disk(require_job(self.name, self._job), self.home)
        return self._worker

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """The scores of clients, in this process."""
        return self.worker.scores(state, clients, score)

    def close(self) -> None:
        """Delete the temporary folder; a folder given as `root` is kept."""
        self.closed = True
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._worker = None


def absolute_folder(name: str, root: str | Path) -> Path:
    """A given folder as an absolute path: workers may run in another working directory."""
    if not isinstance(root, str | Path):
        raise TypeError(
            f"{name} keeps clients' states on disk: give root= the path of a folder, got {type(root).__name__}"
        )
    if is_url(root):
        raise ValueError(f"{name} keeps clients' states in a folder, got {root}; RayBackend and InProcess take URLs")
    return Path(root).resolve()


def state_root(name: str, root: str | Path, *, shared: bool = True) -> Path | str:
    """A given folder as an absolute path, or a URL that can work.

    Args:
        name: the backend's class, for errors.
        root: the folder or URL.
        shared: whether other processes must see what this one writes.
    """
    if not isinstance(root, str) or not is_url(root):
        return absolute_folder(name, root)
    within = local_folder(root)
    if within is not None:
        return absolute_folder(name, within)
    try:
        return check_url(root, shared=shared)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def accept_job(name: str, old: Job | None, new: Job) -> Job:
    """The new job of a backend; raises if it already has one."""
    if old is not None:
        raise RuntimeError(f"this {name} already belongs to another Simulation; give each Simulation its own backend")
    return new


def require_job(name: str, job: Job | None) -> Job:
    """The job of a backend; raises if it has none."""
    if job is None:
        raise RuntimeError(f"{name} has no job yet: give it to a Simulation, Simulation(..., backend={name}(...))")
    return job
