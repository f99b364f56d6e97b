"""Fast simulation: one restartable Ray actor per worker, on one machine or a cluster.

Ray moves the broadcast once through its object store and returns the partial sums. A worker that dies is restarted and
its clients are trained again; each counts once. The result is bit-identical to that of one process.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch

from undrift.core import wire
from undrift.core.gate import Gate
from undrift.core.types import Broadcast
from undrift.engine.backend import DiskBackend
from undrift.engine.partial import Partial
from undrift.engine.worker import Job, Worker

try:
    import ray
    from ray.exceptions import RayActorError
except ImportError as error:  # pragma: no cover
    raise ImportError("RayBackend needs Ray: pip install 'undrift[ray]'") from error

Arrays = dict[str, np.ndarray[Any, Any]]

_RESTART = 300.0  # seconds a worker may take to restart and import torch on a busy machine


class _Actor:
    """A worker in its own process; a restarted one gets its job from the next call."""

    def __init__(self, threads: int, path: list[str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        torch.set_num_threads(threads)
        self.key: tuple[str, str] | None = None

    def pid(self) -> int:
        """The process ID."""
        return os.getpid()

    def serve(
        self, held: list[Any], root: str, sent: Arrays, clients: list[int], accepted: dict[int, int], cohort: int
    ) -> tuple[Arrays, str]:
        """Train some clients of a round."""
        tensors, summary = self._open(held, root).serve(self._read(sent), clients, accepted, cohort).flatten()
        return _arrays(tensors), summary

    def losses(
        self,
        held: list[Any],
        root: str,
        sent: Arrays,
        clients: list[int],
        accepted: dict[int, int],
        batches: int | None,
    ) -> dict[int, float]:
        """The losses of some clients before a round."""
        return self._open(held, root).losses(self._read(sent), clients, accepted, batches)

    def _open(self, held: list[Any], root: str) -> Worker:
        """The worker of a job; `held` wraps the job's reference, so that Ray does not fetch it each time."""
        key = (held[0].hex(), root)
        if key != self.key:
            job: Job = ray.get(held[0])
            self.worker = Worker.on_disk(job, Path(root))
            self.key = key
        return self.worker

    def _read(self, sent: Arrays) -> Broadcast:
        """What the server sent."""
        return wire.restore(Broadcast, self.worker.job.algorithm, _tensors(sent), self.worker.model.layout.size)


class Pool:
    """Ray workers that several simulations can use one after the other; a context manager that ends them.

    Args:
        workers: how many actors; this does not affect results.
        threads: torch threads per worker; one by default, so that results do not depend on the number of workers.
        address: a cluster's address; None uses the Ray instance of this process, or starts one on this machine.
        gpus: GPUs per worker; a fraction shares one.
    """

    def __init__(self, workers: int = 2, threads: int = 1, address: str | None = None, gpus: float = 0.0) -> None:
        if workers < 1:
            raise ValueError(f"Pool: workers must be 1 or more, got {workers}")
        if not ray.is_initialized():
            ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
        processors = ray.cluster_resources().get("CPU", 1.0)  # type: ignore[no-untyped-call]
        actor: Any = ray.remote(_Actor)
        actor = actor.options(
            num_cpus=min(1.0, processors / workers), num_gpus=gpus, max_restarts=-1, max_task_retries=0
        )
        path = [os.path.abspath(folder) for folder in sys.path]  # people's own modules are imported by name there
        self.actors: list[Any] = [actor.remote(threads, path) for _ in range(workers)]

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the workers; Ray itself keeps running."""
        for actor in self.actors:
            ray.kill(actor)
        self.actors = []

    def pids(self) -> list[int]:
        """The process IDs of the workers."""
        return [self.pid(actor) for actor in self.actors]

    def pid(self, actor: Any) -> int:
        """The process ID of a worker; if it has just died, waits for the new process."""
        deadline = monotonic() + _RESTART
        while True:
            try:
                return int(ray.get(actor.pid.remote()))
            except RayActorError:
                if monotonic() > deadline:
                    raise
                sleep(0.1)


class RayBackend(DiskBackend):
    """Trains clients on Ray workers.

    Args:
        pool: the workers; None starts two on first use, and `close` ends them.
        chunk: the most clients a worker gets at once: smaller chunks balance better and lose less when a worker dies,
            larger ones mean fewer replies; None takes 64, or more if a worker would get over four chunks.
        retries: how often a chunk is run again after its worker died.
        root: folder for the clients' states, which all workers must be able to access; None creates a temporary one,
            deleted by `close`.
    """

    def __init__(
        self, pool: Pool | None = None, chunk: int | None = None, retries: int = 3, root: str | Path | None = None
    ) -> None:
        super().__init__(root)
        if chunk is not None and chunk < 1:
            raise ValueError(f"RayBackend: chunk must be 1 or more clients, or None, got {chunk}")
        if retries < 0:
            raise ValueError(f"RayBackend: retries must be 0 or more, got {retries}")
        self.chunk, self.retries = chunk, retries
        self._given = pool
        self._own: Pool | None = None
        self._held: list[Any] = []

    @property
    def pool(self) -> Pool:
        """The workers."""
        if self._given is not None:
            return self._given
        self._own = self._own or Pool()
        return self._own

    def close(self) -> None:
        """End the workers and delete the folder that this backend created; a given pool keeps running."""
        if self._own is not None:
            self._own.stop()
            self._own = None
        self._held = []
        super().close()

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Give each idle worker a chunk of clients until all are done, and add the replies as they arrive."""
        job = self.job
        gate = Gate(job.algorithm, job.local, broadcast, clients, job.bound, seed=job.seed)
        whole = Partial(gate.total())
        for tensors, summary in self._replies("serve", broadcast, clients, accepted, len(clients)):
            part = Partial(gate.total()).restore(_tensors(tensors), summary, len(broadcast.params))
            if gate.merge(part.total, whole.total) is None:
                whole.visits += part.visits
            whole.rejections += part.rejections
        whole.rejections += gate.rejections
        return whole

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The losses of clients, in chunks as in training."""
        found: dict[int, float] = {}
        for part in self._replies("losses", broadcast, clients, accepted, batches):
            found |= part
        return found

    def _replies(
        self, verb: str, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], argument: int | None
    ) -> Iterator[Any]:
        """The replies of the workers, each about a chunk of the clients; one whose worker died is asked for again."""
        pool, root = self.pool, str(self.states)
        if not self._held:
            self._held = [ray.put(self.job)]
        sent = ray.put(_arrays(wire.flatten(broadcast)))
        waiting = [(chunk, 0) for chunk in reversed(self._chunks(clients))]
        running: dict[Any, tuple[Any, list[int], int]] = {}
        idle = list(pool.actors)
        while waiting or running:
            while waiting and idle:
                actor, (chunk, tries) = idle.pop(), waiting.pop()
                known = {client: accepted[client] for client in chunk if client in accepted}
                reply = getattr(actor, verb).remote(self._held, root, sent, chunk, known, argument)
                running[reply] = (actor, chunk, tries)
            (done,), _ = ray.wait(list(running), num_returns=1)
            actor, chunk, tries = running.pop(done)
            idle.append(actor)
            try:
                found = ray.get(done)
            except RayActorError:
                if tries == self.retries:
                    raise
                pool.pid(actor)  # wait: a call to a dead worker would fail at once and use up a retry
                waiting.append((chunk, tries + 1))
                continue
            yield found

    def _chunks(self, clients: Sequence[int]) -> list[list[int]]:
        """The clients in chunks of about equal work, at least one per worker, the largest clients first."""
        task, workers = self.job.task, len(self.pool.actors)
        wanted = -(-len(clients) // self.chunk) if self.chunk else min(-(-len(clients) // 64), 4 * workers)
        count = max(min(workers, len(clients)), wanted)
        pieces: list[list[int]] = [[] for _ in range(count)]
        loads = [(0, i) for i in range(count)]
        for client in sorted(clients, key=lambda c: (-task.examples(c), c)):
            load, i = heappop(loads)
            pieces[i].append(client)
            heappush(loads, (load + task.examples(client) + 1, i))
        return [piece for piece in pieces if piece]


def _arrays(tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Tensors as arrays, which Ray shares between processes without copying."""
    return {name: x.detach().cpu().numpy() for name, x in tensors.items()}


def _tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Arrays as tensors; those from the object store are shared and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(x) for name, x in arrays.items()}
