"""Clients' vectors at one model: gradients, perturbations and updates, taken without a trace."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from undrift import server
from undrift.algorithm import Algorithm
from undrift.block import Perturbation
from undrift.blocks.spectral import Filter
from undrift.client import train
from undrift.engine.local import Simulation
from undrift.engine.random import generator
from undrift.engine.store import MemoryStore, Store
from undrift.engine.worker import Job, Worker
from undrift.gate import Gate
from undrift.probe import Oracle, Probe
from undrift.types import Broadcast, ClientState, ServerState
from undrift.vector import Layout, Vector


def probe(
    run: Simulation | Job,
    state: ServerState,
    clients: Sequence[int],
    what: str = "gradient",
    *,
    samples: int | None = 1024,
    store: Store | None = None,
) -> Tensor:
    """Clients' vectors at the model that a state broadcasts, one per row. Nothing changes: no state, no store.

    A gradient is that of the mean data loss at this model. A perturbation is the offset of the first local step, after
    the method's filter. An update is the displacement of the round that would come next, the same to the bit.

    Args:
        run: the method, the task and the settings.
        state: where to look.
        clients: at whom; each must have data.
        what: "gradient", "perturbation" or "update".
        samples: at most so many of a client's examples for a gradient (in whole batches) or a perturbation (in one),
            the same in every round; None takes all.
        store: where the clients' states are, if the method has any; None takes that of a simulation.
    """
    return torch.stack(list(probes(run, state, clients, what, samples=samples, store=store)))


def probes(
    run: Simulation | Job,
    state: ServerState,
    clients: Sequence[int],
    what: str = "gradient",
    *,
    samples: int | None = 1024,
    store: Store | None = None,
) -> Iterator[Vector]:
    """The same vectors one after the other, for those who hold only one at a time."""
    job = run if isinstance(run, Job) else run.job
    _allow(job, clients, what, samples)
    if store is None and isinstance(run, Simulation) and any(client in state.accepted for client in clients):
        store = run.worker.store
    worker = Worker(job, _Frozen(MemoryStore() if store is None else store))
    sent, accepted = server.send(job.algorithm, state), state.accepted
    takes: dict[str, Callable[[int], Vector]] = {
        "gradient": lambda client: _gradient(worker, sent, client, samples),
        "perturbation": lambda client: _perturbation(worker, sent, client, samples, accepted.get(client)),
        "update": lambda client: _update(worker, sent, client, accepted.get(client)),
    }
    for client in clients:
        yield takes[what](client)


def _allow(job: Job, clients: Sequence[int], what: str, samples: int | None) -> None:
    """Refuse what cannot be probed."""
    if what not in ("gradient", "perturbation", "update"):
        raise ValueError(f'probe: what must be "gradient", "perturbation" or "update", got {what!r}')
    if what == "perturbation" and type(job.algorithm.perturbation) is Perturbation:
        raise ValueError(
            f"probe: {job.algorithm!r} has no perturbation; fill the slot, for example perturbation=SAM(0.1)"
        )
    if samples is not None and samples < 1:
        raise ValueError(f"probe: samples must be 1 or more, or None for all, got {samples}")
    empty = [client for client in clients if job.task.examples(client) == 0]
    if empty or not clients:
        told = f"client {empty[0]} has none: leave it out" if empty else "got no client"
        raise ValueError(f"probe: clients must be some that have examples; {told}")


@dataclass(frozen=True, eq=False)
class _Frozen:
    """A store that is only read."""

    store: Store

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        return self.store.load(client, round)

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Keep nothing."""


def _gradient(worker: Worker, sent: Broadcast, client: int, samples: int | None) -> Vector:
    """The gradient at the model sent, over whole batches of training's size."""
    job, model, random = worker.job, worker.model, partial(generator, worker.job.seed, 0, client)
    model.buffers.copy_(sent.buffers)
    model.counts.copy_(sent.counts)
    size = job.local.batch_size if samples is None else min(job.local.batch_size, samples)
    batches = job.task.batches(client, size, random("lens"))
    chosen = islice(batches, None if samples is None else samples // size)
    oracle = Oracle(model, partial(job.task.loss, model.module), random)
    return Probe(oracle=oracle, random=random, epoch=lambda _: chosen).mean_gradient(sent.params)


@dataclass(frozen=True, repr=False)
class _Note(Filter):
    """Another filter, or none, and what it was first given and gave."""

    filter: Filter | None
    seen: list[tuple[Vector, Vector]] = field(default_factory=list, compare=False)

    def __call__(self, v: Vector, layout: Layout, generator: torch.Generator | None = None) -> Vector:
        """Filter and note."""
        out = v if self.filter is None else self.filter(v, layout, generator)
        self.seen.append((v.clone(), out.clone()))
        return out


def _perturbation(worker: Worker, sent: Broadcast, client: int, samples: int | None, accepted: int | None) -> Vector:
    """The offset of one step on one batch, zero if the method gives none there."""
    job, model, examples = worker.job, worker.model, worker.job.task.examples(client)
    size = examples if samples is None else min(samples, examples)
    note = _Note(job.algorithm.spectral.perturbation)
    noting: Algorithm = replace(job.algorithm, spectral=replace(job.algorithm.spectral, perturbation=note))
    random = partial(generator, job.seed, 0, client)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(random("lens/model").initial_seed())
        train(
            noting,
            model,
            partial(job.task.loss, model.module),
            islice(job.task.batches(client, size, random("lens")), 1),
            sent,
            None if accepted is None else worker.store.load(client, accepted),
            replace(job.local, epochs=1, batch_size=size),
            client=client,
            examples=size,
            random=random,
            epoch=partial(job.task.batches, client, job.local.batch_size),
        )
    if not note.seen:
        return torch.zeros_like(sent.params)
    shared = job.algorithm.personalization.shared(model.layout)
    given, gave = note.seen[0]
    return gave if shared is None else torch.where(shared, gave, given)


def _update(worker: Worker, sent: Broadcast, client: int, accepted: int | None) -> Vector:
    """The displacement of a client in the round that comes next."""
    gate = Gate(worker.job.algorithm, worker.job.local, sent, [client])
    upload = worker.visit(client, sent, accepted, gate)
    assert upload is not None
    return upload.delta
