"""Clients' vectors at one model: gradients, perturbations and updates, computed without side effects."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils.hooks import RemovableHandle

from undrift.core.client.visit import ClientError, train
from undrift.core.method.block import Spectral
from undrift.core.method.view import Step
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.flat_model import Bound, Vector, bind
from undrift.core.model.modules import to_train
from undrift.core.model.oracle import Oracle
from undrift.core.model.precision import full
from undrift.core.model.random import generator, with_seed
from undrift.core.model.samples import Samples, examples_of
from undrift.core.records.place import Place, home, place_of
from undrift.core.records.types import Broadcast, ClientState, ServerState
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.engine.round.simulation import Simulation
from undrift.engine.stores.store import MemoryStore, Store
from undrift.engine.worker.job import Job
from undrift.engine.worker.worker import Worker

Take = Callable[[int, Tensor], None]
"""Takes a tensor of a client's vector: its position in the layout, and its values."""


def client_vectors(
    run: Simulation | Job,
    state: ServerState,
    clients: Sequence[int],
    what: str = "gradient",
    *,
    samples: int | None = 1024,
    store: Store | None = None,
) -> Tensor:
    """Clients' vectors at the model that a state broadcasts, one per row, without side effects.

    A gradient is that of the mean data loss at this model. A perturbation is the offset of the first local step, after
    the method's filter. An update is the displacement of the next round, bit for bit.

    Args:
        run: the method, the task and the settings.
        state: the server state whose model is used.
        clients: the clients; each must have data.
        what: "gradient", "perturbation" or "update".
        samples: at most this many of a client's examples for a gradient (in whole batches) or a perturbation (in one),
            the same in every round; None takes all.
        store: where the clients' states are, if the method has any; None uses the simulation's store.
    """
    job = run if isinstance(run, Job) else run.job
    check_measurable(job, clients, what, samples)
    worker = frozen_worker(run, state, clients, store)
    sent, accepted = server.send(job.algorithm, state, job.setting), state.accepted
    takes: dict[str, Callable[[int], Vector]] = {
        "gradient": lambda client: _gradient(worker, sent, client, samples),
        "perturbation": lambda client: _perturbation(worker, sent, client, samples, accepted.get(client)),
        "update": lambda client: local_update(worker, sent, client, accepted.get(client)),
    }
    return torch.stack([takes[what](client) for client in clients])


def frozen_worker(run: Simulation | Job, state: ServerState, clients: Sequence[int], store: Store | None) -> Worker:
    """A worker of its own that reads the clients' states and stores none.

    Args:
        run: the method, the task and the settings.
        state: the server state.
        clients: the clients that it will train.
        store: where their states are; None uses the simulation's store.
    """
    if store is None and isinstance(run, Simulation) and any(client in state.accepted for client in clients):
        store = run.worker.store
    return Worker(run if isinstance(run, Job) else run.job, _Frozen(MemoryStore() if store is None else store))


def sweep(
    run: Simulation | Job,
    state: ServerState,
    clients: Sequence[int],
    begin: Callable[[int], Take],
    model: Bound | None = None,
) -> None:
    """Clients' gradients of one batch each, passed on tensor by tensor during the backward pass.

    The gradients equal those of `client_vectors` for one batch, but no vector as long as the model is allocated: during
    the call the model uses the state's own vector as its weights. There are no side effects.

    Args:
        run: the method, the task and the settings.
        state: the server state whose model is used.
        clients: the clients; each must have data.
        begin: called with each client; returns a function that takes the client's tensors, last layers first, except
            tensors that the loss does not depend on. `BandStream.begin` is one.
        model: a bound model to compute with, restored afterwards; None makes one.
    """
    job = run if isinstance(run, Job) else run.job
    check_measurable(job, clients, "gradient", None)
    sent = server.send(job.algorithm, state, job.setting)
    model = make_model(job, sent.params) if model is None else model
    with model_at(model, sent.params):
        for client in clients:
            _backward_by_tensor(job, model, sent, client, begin(client))


def make_model(job: Job, w: Vector) -> Bound:
    """A new model at a vector, on the job's device; on the CPU it lives in the vector itself."""
    return bind(place_of(job.device).to(job.task.model()), w)


def check_measurable(job: Job, clients: Sequence[int], what: str, samples: int | None) -> None:
    """Reject what cannot be measured."""
    if what not in ("gradient", "perturbation", "update"):
        raise ValueError(f'client_vectors: what must be "gradient", "perturbation" or "update", got {what!r}')
    if what == "perturbation" and not job.algorithm.fills("perturbation"):
        raise ValueError(
            f"client_vectors: {job.algorithm!r} has no perturbation; fill the slot, for example perturbation=SAM(0.1)"
        )
    if samples is not None and samples < 1:
        raise ValueError(f"client_vectors: samples must be 1 or more, or None for all, got {samples}")
    empty = [client for client in clients if job.task.examples(client) == 0]
    if empty or not clients:
        problem = f"client {empty[0]} has none: leave it out" if empty else "got no client"
        raise ValueError(f"client_vectors: clients must be some that have examples; {problem}")


@dataclass(frozen=True, eq=False)
class _Frozen:
    """A read-only store."""

    store: Store

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        return self.store.load(client, round)

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Keep nothing."""


def client_samples(job: Job, model: Bound, sent: Broadcast, client: int, samples: int | None) -> Samples:
    """A client's data at the model sent, in batches of the training size; all, or whole batches up to `samples`."""
    random = partial(generator, job.seed, 0, client)
    model.restore(sent.buffers, sent.counts)
    size = job.local.batch_size if samples is None else min(job.local.batch_size, samples)
    batches = Place(model.w.device).ahead(job.task.batches(client, size, random("lens")))
    chosen = islice(batches, None if samples is None else samples // size)
    oracle = Oracle(model, partial(job.task.loss, model.module), random)
    return Samples(random=random, _oracle=oracle, _epoch=lambda _: chosen)


def _gradient(worker: Worker, sent: Broadcast, client: int, samples: int | None) -> Vector:
    """The gradient of the mean data loss at the model sent."""
    point = worker.place.to(sent.params)
    return home(client_samples(worker.job, worker.model, sent, client, samples).mean_gradient_at(point))


def gradients(data: Samples, point: Vector) -> Iterator[tuple[Vector, int]]:
    """The gradient of each batch at a point, a new vector on the host, and how many examples the batch has."""
    for batch in data.data("whole"):
        yield home(data.gradient_at(point, batch)), examples_of(batch)


@contextmanager
def model_at(model: Bound, w: Vector) -> Iterator[None]:
    """Put a model in training mode at another vector during the block; weights, statistics and modes are restored."""
    modes = [(part, part.training) for part in model.module.modules()]
    buffers, counts = model.statistics()
    try:
        model.place(w.to(model.w))
        to_train(model.module)
        yield
    finally:
        model.place(model.w)
        model.restore(buffers, counts)
        for part, training in modes:
            part.training = training


def _backward_by_tensor(job: Job, model: Bound, sent: Broadcast, client: int, take: Take) -> None:
    """One backward pass that frees each tensor's gradient as soon as it is passed on."""
    random = partial(generator, job.seed, 0, client)
    model.restore(sent.buffers, sent.counts)

    def hand(place: int, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        take(place, full(gradient.contiguous()))

    before: Callable[..., RemovableHandle] = Tensor.register_hook
    after: Callable[..., RemovableHandle] = Tensor.register_post_accumulate_grad_hook
    hooks = [after(p, partial(hand, i)) for i, p in enumerate(model.parameters)]
    # A convolution's gradient may have its input's memory order: copied before autograd keeps it, the first is freed.
    hooks += [before(p, Tensor.contiguous) for p in model.parameters]
    own = [p.grad for p in model.parameters]
    try:
        for p in model.parameters:
            p.grad = None
        with with_seed(model.w.device, random("aside").initial_seed()), torch.enable_grad():
            batch = next(iter(job.task.batches(client, job.local.batch_size, random("lens"))))
            batch = Place(model.w.device).to(batch)
            job.task.loss(model.module, batch).backward()
    finally:
        for hook in hooks:
            hook.remove()
        for p, grad in zip(model.parameters, own, strict=True):
            p.grad = grad


def _record_offsets(
    spectral: Spectral[Any, Any, Any, Any, Any], offsets: list[tuple[Vector, Vector]]
) -> Spectral[Any, Any, Any, Any, Any]:
    """The same block, which also notes every offset before and after its filter."""
    kind = type(spectral)

    def filter_offset(self: Any, offset: Vector, state: Any, step: Step) -> Vector:
        out = kind.filter_offset(self, offset, state, step)
        offsets.append((offset.clone(), out.clone()))
        return out

    return with_hooks(spectral, {"filter_offset": filter_offset})


def _perturbation(worker: Worker, sent: Broadcast, client: int, samples: int | None, accepted: int | None) -> Vector:
    """The offset of one step on one batch, or zero if the method computes none there."""
    job, model, examples = worker.job, worker.model, worker.job.task.examples(client)
    size = examples if samples is None else min(samples, examples)
    offsets: list[tuple[Vector, Vector]] = []
    noting = replace(job.algorithm, spectral=_record_offsets(job.algorithm.spectral, offsets))
    random = partial(generator, job.seed, 0, client)

    def batches(size: int, order: Generator) -> Iterator[Any]:
        return worker.place.ahead(job.task.batches(client, size, order))

    with with_seed(worker.place.device, random("lens/model").initial_seed()):
        train(
            noting,
            model,
            partial(job.task.loss, model.module),
            islice(batches(size, random("lens")), 1),
            worker.place.to(sent),
            None if accepted is None else worker.place.to(worker.store.load(client, accepted)),
            replace(job.local.whole(1), batch_size=size),
            client=client,
            examples=size,
            steps=1,
            random=random,
            epoch=partial(batches, job.local.batch_size),
        )
    if not offsets:
        return torch.zeros_like(sent.params)
    shared = job.algorithm.personalization.shared(model.layout)
    given, gave = home(offsets[0])
    return gave if shared is None else torch.where(shared, gave, given)


def local_update(worker: Worker, sent: Broadcast, client: int, accepted: int | None) -> Vector:
    """The displacement of a client that trains from what was sent.

    Args:
        worker: see `frozen_worker`.
        sent: what it receives.
        client: its number.
        accepted: the number of its last accepted visit; None if there is none.
    """
    gate = Gate(worker.job.algorithm, worker.job.local, sent, [client], seed=worker.job.seed)
    upload = worker.visit(client, sent, accepted, gate)
    if upload is None:
        raise ClientError(gate.rejections[0].detail or str(gate.rejections[0])) from worker.failure
    return upload.delta
