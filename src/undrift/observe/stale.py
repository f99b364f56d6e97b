"""Displacements of tasks in flight against those of the same clients from the current model, band by band."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from undrift.core.model.flat_model import Layout, Vector
from undrift.core.records.types import Flight, ServerState
from undrift.core.server import step as server
from undrift.engine.round.scheduler import TaskInFlight, tasks_of
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import Store
from undrift.engine.worker.job import Job
from undrift.lens.spectrum import banded_tensors, long_band_energy
from undrift.lens.vectors import frozen_worker, local_update


@dataclass(frozen=True)
class Staleness:
    """Stale displacements beside fresh ones of the same clients, in bands of equal width from low to high frequencies.

    Args:
        clients: the clients.
        ages: how many steps the server has made since each of them began.
        stale: the energy of the displacements from the models that they started from, by band, summed over clients.
        fresh: the same from the current model.
        inner: the inner products of the two.
    """

    clients: tuple[int, ...]
    ages: tuple[int, ...]
    stale: Tensor
    fresh: Tensor
    inner: Tensor

    @property
    def agreement(self) -> Tensor:
        """The cosine of stale and fresh in each band: 1 where age changes nothing, 0 where nothing is left."""
        return self.inner / (self.stale * self.fresh).sqrt().clamp(min=torch.finfo(torch.float64).tiny)

    @property
    def ratio(self) -> Tensor:
        """The energy of stale over that of fresh in each band."""
        return self.stale / self.fresh.clamp(min=torch.finfo(torch.float64).tiny)


def measure_staleness(
    run: Simulation | Job, state: ServerState, count: int = 8, *, bands: int = 10, store: Store | None = None
) -> Staleness | None:
    """What age does to displacements, for tasks that are in flight; without side effects.

    Each client trains twice, with the same draws: from the model that its task started from, and from the current one.

    Args:
        run: the method, the task and the settings.
        state: a state with tasks in flight.
        count: how many tasks to measure, of all ages from the youngest to the oldest.
        bands: how many bands.
        store: where the clients' states are, if the method has any; None uses the simulation's store.

    Returns:
        The measurement; None if no task in flight started from an earlier model.
    """
    job = run if isinstance(run, Job) else run.job
    flight, tasks = state.flight, _older_tasks(job, state, count)
    if flight is None or not tasks:
        return None
    clients = [task.client for task in tasks]
    worker, layout = frozen_worker(run, state, clients, store), job.setting.layout
    banded_tensors(layout, bands)  # raises before anything is trained
    now, sums = server.send(job.algorithm, state, job.setting), torch.zeros(3, bands, dtype=torch.float64)
    for task in tasks:
        accepted = state.accepted.get(task.client)
        fresh = local_update(worker, now, task.client, accepted)
        stale = local_update(worker, replace(flight.sent[task.version], round=now.round), task.client, accepted)
        sums += _compare(stale, fresh, layout, bands)
    return Staleness(tuple(clients), _ages(state, tasks), *sums)


def _older_tasks(job: Job, state: ServerState, count: int) -> list[TaskInFlight]:
    """Some tasks from earlier models whose clients have data, evenly over their ages, the youngest first."""
    flight: Flight | None = state.flight
    older = [task for task in tasks_of(flight) if task.version < state.round and job.task.examples(task.client)]
    older.sort(key=lambda task: (-task.version, task.number))
    few = min(count, len(older))
    return [older[i * (len(older) - 1) // max(few - 1, 1)] for i in range(few)]


def _ages(state: ServerState, tasks: Sequence[TaskInFlight]) -> tuple[int, ...]:
    """The ages that the uploads would have in the next step."""
    return tuple(state.round - task.version for task in tasks)


def _compare(stale: Vector, fresh: Vector, layout: Layout, bands: int) -> Tensor:
    """The energies of two vectors and their inner product, by band."""
    kept = banded_tensors(layout, bands)

    def energy(v: Vector) -> Tensor:
        pieces = layout.split(v)
        return torch.stack([long_band_energy(pieces[i].reshape(-1), bands)[1] for i in kept]).sum(dim=0)

    a, b = stale.double(), fresh.double()
    first, second = energy(a), energy(b)
    return torch.stack([first, second, (energy(a + b) - first - second) / 2])
