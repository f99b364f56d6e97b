"""Clients of a worker that are trained together, in groups of `Local.together`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from torch import Generator

from undrift.core.client import ClientError
from undrift.core.gate import Gate
from undrift.core.group import Member, train_group
from undrift.core.place import Place, home
from undrift.core.precision import autocast
from undrift.core.random import generator
from undrift.core.task import CountsLabels, Task
from undrift.core.types import Broadcast
from undrift.core.vector import Bound
from undrift.engine.job import Job
from undrift.engine.partial import TrainedClient
from undrift.engine.store import Store, StoreError
from undrift.util.steps import tell


class Host(Protocol):
    """What a group needs of its worker."""

    job: Job
    model: Bound
    task: Task
    place: Place
    store: Store

    def fail(self, client: int, error: Exception, gate: Gate) -> None:
        """Reject a client whose training failed."""


def together(
    worker: Host, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], gate: Gate
) -> Iterator[TrainedClient]:
    """Train clients in groups, those with most steps first; one that fails is rejected at the gate.

    Args:
        worker: whose model and data are used.
        broadcast: what the server sent, at the worker's place.
        clients: the clients to train.
        accepted: for each client with state, the last round in which its upload was accepted.
        gate: rejects clients without work, and those whose training fails.
    """
    job, size, done = worker.job, worker.job.local.together, 0
    for group in _groups(worker, clients, gate):
        tell("round %d, clients %d to %d of %d", broadcast.round + 1, done + 1, done + len(group), len(clients))
        started, done = perf_counter(), done + len(group)
        members = []
        for client, steps in group:
            try:
                members.append(_member(worker, broadcast.round, client, steps, accepted.get(client)))
            except StoreError as error:
                worker.fail(client, error, gate)
        assert len(members) <= size
        with autocast("fp32", worker.place.device):
            found = train_group(job.algorithm, worker.model, worker.task, members, broadcast, job.local)
        seconds = (perf_counter() - started) / max(len(members), 1)
        for member, result in zip(members, found, strict=True):
            if isinstance(result, ClientError):
                worker.fail(member.client, result, gate)
                continue
            upload, kept = result
            try:
                if kept.parts or kept.buffers is not None:
                    worker.store.save(member.client, broadcast.round, home(kept), accepted.get(member.client))
            except StoreError as error:
                worker.fail(member.client, error, gate)
                continue
            yield TrainedClient(upload, seconds, member.reported)


def _groups(worker: Host, clients: Sequence[int], gate: Gate) -> list[list[tuple[int, int]]]:
    """The clients that have work and their steps, in groups with similar numbers of steps."""
    job = worker.job
    counted = [(client, gate.steps(client, int(job.task.examples(client)))) for client in clients]
    busy = sorted((pair for pair in counted if pair[1]), key=lambda pair: -pair[1])
    return [busy[i : i + job.local.together] for i in range(0, len(busy), job.local.together)]


def _member(worker: Host, round: int, client: int, steps: int, accepted: int | None) -> Member:
    """A client with its state and its own random generators."""
    job, task = worker.job, worker.task

    def epoch(order: Generator) -> Iterator[Any]:
        return worker.place.ahead(task.batches(client, job.local.batch_size, order))

    return Member(
        client,
        int(job.task.examples(client)),
        steps,
        None if accepted is None else worker.place.to(worker.store.load(client, accepted)),
        partial(generator, job.seed, round, client),
        epoch,
        partial(job.task.label_counts, client) if isinstance(job.task, CountsLabels) else None,
    )
