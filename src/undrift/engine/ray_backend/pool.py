"""Ray workers: a pool of restartable actors, each with a worker on a processor or a share of a GPU."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from ray.exceptions import RayActorError

from undrift.core.records.types import Broadcast, ServerState
from undrift.core.server import wire
from undrift.engine.ray_backend.dispatch import Crew
from undrift.engine.ray_backend.start import count_nodes, resources
from undrift.engine.round.arguments import whole_number
from undrift.engine.worker.device import MODULE, plug_in
from undrift.engine.worker.job import Job, Score, Timing
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker import Worker
from undrift.engine.worker.worker_plan import check_shares, choose_workers

Arrays = dict[str, np.ndarray[Any, Any]]

_RESTART = 300.0  # seconds a worker may take to restart and import torch on a busy machine


class Request(NamedTuple):
    """Which clients of a job a worker shall visit.

    Args:
        job: Ray's reference to the job; inside this record, so that Ray does not fetch it for every call.
        root: where the clients' states are.
        clients: the clients.
        accepted: for each of them with state, its round.
    """

    job: Any
    root: str
    clients: list[int]
    accepted: dict[int, int]


class _Actor:
    """A worker in its own process; a restarted one gets its job from the next call."""

    def __init__(self, threads: int, path: list[str], module: str | None = None) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        torch.set_num_threads(threads)
        if module is not None:
            os.environ[MODULE] = module
        plug_in()
        self.key: tuple[str, str] | None = None

    def pid(self) -> int:
        """The process ID."""
        return os.getpid()

    def gpus(self) -> str | None:
        """The GPUs that Ray assigned to this worker."""
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def serve(
        self, sent: Arrays, request: Request, cohort: int, packed: bool, timing: Timing
    ) -> tuple[list[int], tuple[Arrays, str]]:
        """Train some clients of a round: the clients and the reply."""
        worker, clients = self._open(request), request.clients
        tensors, summary = worker.serve(self._read(sent), clients, request.accepted, cohort, timing).flatten(packed)
        return clients, (as_arrays(tensors), summary)

    def merge(
        self, sent: Arrays, request: Request, cohort: int, packed: bool, timing: Timing, *replies: tuple[Arrays, str]
    ) -> tuple[list[int], tuple[Arrays, str]]:
        """Add replies of other workers about these clients to one reply."""
        worker = self._open(request)
        gate = worker.job.gate(self._read(sent), request.clients, cohort, timing)
        whole = Partial(gate.total(), rejections=gate.rejections)
        for tensors, summary in replies:
            whole.take(gate, as_tensors(tensors), summary, worker.model.layout.size, packed)
        merged, summary = whole.flatten(packed)
        return request.clients, (as_arrays(merged), summary)

    def scores(self, sent: Arrays, request: Request, round: int, score: Score) -> dict[int, float]:
        """The scores of some clients with their personal models."""
        model = as_tensors(sent)
        state = ServerState(round, model["params"], model["buffers"], model["counts"], {}, request.accepted)
        return self._open(request).scores(state, request.clients, score)

    def losses(self, sent: Arrays, request: Request, batches: int | None) -> dict[int, float]:
        """The losses of some clients before a round."""
        worker = self._open(request)
        return worker.losses(self._read(sent), request.clients, request.accepted, batches)

    def _open(self, request: Request) -> Worker:
        """The worker of a job, which is fetched once."""
        key = (request.job.hex(), request.root)
        if key != self.key:
            self.worker = Worker.on_disk(ray.get(request.job), request.root)
            self.key = key
        return self.worker

    def _read(self, sent: Arrays) -> Broadcast:
        """The server's broadcast."""
        return wire.restore(Broadcast, self.worker.job.algorithm, as_tensors(sent), self.worker.model.layout.size)


class Pool:
    """Ray workers that several simulations can use one after the other; a context manager that ends them.

    Args:
        workers: how many actors; this does not affect results.
        threads: torch threads per worker; one by default, so that results do not depend on the number of workers.
        address: a cluster's address; None uses the Ray instance of this process, or starts one on this machine.
        gpus: each worker's share of a GPU: 1 gives every worker its own, 0.25 puts four on each; 0 uses none. Ray
            counts the GPUs that `CUDA_VISIBLE_DEVICES` shows and pins every worker to one of them.

    `here` is whether all workers share this machine's memory.
    """

    def __init__(self, workers: int = 2, threads: int = 1, address: str | None = None, gpus: float = 0.0) -> None:
        workers, threads = whole_number("Pool: workers", workers, 1), whole_number("Pool: threads", threads, 1)
        processors, there = resources(address)
        check_shares("Pool", workers, gpus, there)
        self.gpus = gpus
        self.here = address is None and count_nodes() == 1
        actor: Any = ray.remote(_Actor)
        actor = actor.options(
            num_cpus=min(1.0, processors / workers), num_gpus=gpus, max_restarts=-1, max_task_retries=0
        )
        path = [os.path.abspath(folder) for folder in sys.path]  # people's own modules are imported by name there
        self.actors: list[Any] = [actor.remote(threads, path, os.environ.get(MODULE)) for _ in range(workers)]
        self.crew = Crew(self.actors)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the workers; Ray itself keeps running."""
        for actor in self.actors:
            ray.kill(actor)
        self.actors.clear()

    def assigned(self) -> list[str | None]:
        """The GPUs that Ray assigned to each worker, as in `CUDA_VISIBLE_DEVICES`."""
        return list(ray.get([actor.gpus.remote() for actor in self.actors]))

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


@contextmanager
def temporary_ray() -> Iterator[None]:
    """Shut Ray down at the end, unless it is running in this process already."""
    running = ray.is_initialized()
    try:
        yield
    finally:
        if not running:
            ray.shutdown()


def fitting_pool(job: Job, cohort: int | None = None, address: str | None = None) -> Pool:
    """A pool whose number of workers follows from a measured visit: see `plan_workers`.

    Args:
        job: the method, the task and the device.
        cohort: clients in a round; None takes all.
        address: a cluster's address; None starts Ray on this machine.
    """
    processors, there = resources(address)
    plan, _ = choose_workers(job, job.task.population if cohort is None else cohort, int(processors), gpus=there)
    return Pool(plan.workers, address=address, gpus=plan.gpus)


def as_arrays(tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Tensors as arrays, which Ray shares between processes without copying."""
    return {name: x.detach().cpu().numpy() for name, x in tensors.items()}


def as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    """Arrays as tensors; those from the object store are shared and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return {name: torch.from_numpy(x) for name, x in arrays.items()}
