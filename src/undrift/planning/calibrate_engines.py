"""Measures what Ray and Flower add to a round: empty rounds on two workers, with a small and a large model."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

from undrift.algorithms import make
from undrift.core.records.types import Local
from undrift.engine.round.backend import Backend
from undrift.engine.round.simulation import Simulation
from undrift.engine.worker.job import Job
from undrift.planning.calibrate import least, one_thread, serving
from undrift.planning.machine import Constants, EngineConstants
from undrift.util.steps import tell

SMALL, LARGE = 1000, 1_000_000
"""Parameters of the two models."""

_WORKERS = 2
_MANY = 18  # chunks of a round with many


class _Vector(nn.Module):
    """One parameter of a given length."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))


@dataclass(frozen=True)
class EmptyTask:
    """Clients that take one step along a gradient of zero.

    Args:
        size: the length of the model.
        population: how many clients there are.
    """

    size: int
    population: int

    def model(self) -> nn.Module:
        """A vector."""
        return _Vector(self.size)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Zero, whatever the weights are."""
        return 0.0 * torch.zeros((), requires_grad=True)

    def examples(self, client: int) -> int:
        """One each."""
        return 1

    def batches(self, client: int, size: int, generator: Generator) -> Iterator[Tensor]:
        """One empty batch."""
        yield torch.empty(0)


@dataclass(frozen=True)
class Spent:
    """Seconds of a round.

    Args:
        clock: on the clock.
        server: processor time of this process.
        workers: processor time of all workers.
    """

    clock: float
    server: float
    workers: float


def worker_seconds() -> float:
    """Processor seconds of all Ray workers below this process so far; 0 where the system does not tell."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::"):
                threads = (thread.read_text(encoding="utf-8").split()[0] for thread in folder.glob("task/*/schedstat"))
                seconds[pid] = 1e-9 * sum(map(int, threads))
        except (OSError, ValueError, IndexError):
            continue  # it has ended
    return sum(x for pid, x in seconds.items() if _below(pid, parents))


def _below(pid: int, parents: dict[int, int]) -> bool:
    """Whether a process descends from this one."""
    while pid in parents:
        pid = parents[pid]
        if pid == os.getpid():
            return True
    return False


def spent(simulation: Simulation, rounds: int) -> Spent:
    """The mean seconds of a round, after one that warms up; those on the clock are the least of all rounds.

    Args:
        simulation: what runs them.
        rounds: how many.
    """
    state = simulation.run(1)
    clocks, before, own = [], worker_seconds(), time.process_time()
    for _ in range(rounds):
        begun = time.perf_counter()
        state = simulation.run(1, state)
        clocks.append(time.perf_counter() - begun)
    server = time.process_time() - own
    return Spent(min(clocks), server / rounds, max(worker_seconds() - before, 0.0) / rounds)


def measure_engines(constants: Constants, rounds: int = 5) -> Constants:
    """The constants with what Ray and Flower add; those of an engine that is not installed stay.

    Args:
        constants: of this machine, without engines.
        rounds: how many rounds of each kind are measured.
    """
    visits = {size: _visit(size) for size in (SMALL, LARGE)}
    for name, measured in (("ray", _ray), ("flower", _flower)):
        tell("measuring %s", name)
        try:
            found = measured(constants, visits, rounds)
        except ImportError:
            continue
        constants = replace(constants, ray=found) if name == "ray" else replace(constants, flower=found)
    return constants


def _visit(size: int) -> float:
    """Processor seconds of a reply of one client with an empty step, without packing."""
    with one_thread():
        return least({"": serving(Job(make("fedavg"), EmptyTask(size, 1), Local()), 1)})[""]


def _rounds(size: int, clients: int, rounds: int, backend: Backend) -> Spent:
    """A round of an empty task on a backend."""
    with Simulation("fedavg", EmptyTask(size, clients), Local(), backend=backend) as simulation:
        return spent(simulation, rounds)


def _ray(constants: Constants, visits: dict[int, float], rounds: int) -> EngineConstants:
    """Ray: rounds with a few and many chunks, of both models."""
    from undrift.engine.ray_backend.backend import RayBackend
    from undrift.engine.ray_backend.pool import Pool, temporary_ray

    def run(size: int, clients: int) -> Spent:
        return _rounds(size, clients, rounds, RayBackend(pool, chunk=1))

    with temporary_ray(), Pool(_WORKERS) as pool:
        small, many, large, more = (run(size, clients) for size in (SMALL, LARGE) for clients in (_WORKERS, _MANY))
    return ray_constants(constants, visits, small, many, large, more)


def ray_constants(
    constants: Constants, visits: dict[int, float], small: Spent, many: Spent, large: Spent, more: Spent
) -> EngineConstants:
    """What Ray adds, from rounds of clients with an empty step, in chunks of one client.

    Args:
        constants: of this machine.
        visits: seconds of a visit, by the size of the model.
        small: a round with two chunks of the small model.
        many: the same with many chunks.
        large: a round with two chunks of the large model.
        more: the same with many chunks.
    """
    c, others, length = constants, _MANY - _WORKERS, LARGE - SMALL
    server, worker = (many.server - small.server) / others, (many.workers - small.workers) / others
    server_large, worker_large = (more.server - large.server) / others, (more.workers - large.workers) / others
    per_reply = max((server_large - server) / length - c.merge, 0.0)
    sent = (large.server - small.server) / length - _WORKERS * (c.merge + per_reply) - c.touch - c.close
    both = (worker_large - worker - visits[LARGE] + visits[SMALL]) / length - c.pack
    return _positive(
        latency=small.clock - small.server - small.workers / _WORKERS,
        round=small.server - _WORKERS * server,
        server=server - c.client,
        worker=worker - visits[SMALL],
        sent=sent - c.open_parameter,
        down=both / 2,
        up=both / 2,
        taken=per_reply,
    )


def _flower(constants: Constants, visits: dict[int, float], rounds: int) -> EngineConstants:
    """Flower: a round of one client on each node, of both models; each has a simulation of its own."""
    from undrift.engine.flower.backend import FlowerBackend

    small, large = (_rounds(size, _WORKERS, rounds, FlowerBackend(_WORKERS)) for size in (SMALL, LARGE))
    return flower_constants(constants, visits, small, large)


def flower_constants(constants: Constants, visits: dict[int, float], small: Spent, large: Spent) -> EngineConstants:
    """What Flower adds, from rounds of one client on each of two nodes.

    Args:
        constants: of this machine.
        visits: seconds of a visit, by the size of the model.
        small: a round of the small model.
        large: a round of the large one.
    """
    c, length = constants, LARGE - SMALL
    served = (large.server - small.server) / length - c.touch - c.close - c.open_parameter
    trained = (large.workers - small.workers) / length / _WORKERS - (visits[LARGE] - visits[SMALL]) / length
    message, reply = served / _WORKERS - c.merge, trained - c.pack
    return _positive(
        latency=small.clock - small.server - small.workers / _WORKERS,
        server=small.server / _WORKERS - c.client,
        worker=small.workers / _WORKERS - visits[SMALL],
        sent=message / 2,
        taken=message / 2,
        down=reply / 2,
        up=reply / 2,
    )


def _positive(**seconds: float) -> EngineConstants:
    """Constants, of which a very small one may come out below zero."""
    return EngineConstants(**{name: max(value, 0.0) for name, value in seconds.items()})
