"""How far clients pull apart at one point: per layer, per client and in direction; and how to take their vectors."""

from collections.abc import Callable, Sequence
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
from undrift.lens.spectrum import FILTERED, PLAIN, Vectors, agreement, filtered, rows, share_of
from undrift.probe import Oracle, Probe
from undrift.types import Broadcast, ClientState, ServerState
from undrift.vector import Layout, Vector


@dataclass(frozen=True, eq=False)
class Divergence:
    """How far clients' vectors are from their mean, by layer.

    Args:
        layers: the names of the tensors.
        distance: by layer the mean over clients of ||F(v_k) - F(mean v)||, F the filter.
        squared: by layer the mean of the squares.
        norm: by layer ||F(mean v)||.
        clients: by client ||F(v_k) - F(mean v)|| over the whole model; of gradients, the gradient drift.
        reading: how to read the numbers.
    """

    layers: tuple[str, ...]
    distance: Tensor
    squared: Tensor
    norm: Tensor
    clients: Tensor
    reading: str = PLAIN

    @property
    def relative(self) -> Tensor:
        """By layer the distance over the norm of the mean; infinite where clients differ and cancel out."""
        return torch.where(self.distance > 0, self.distance / self.norm, 0.0)

    def as_dict(self) -> dict[str, float | str]:
        """The whole model's `distance`, `squared` and `relative`, then those of the layers by name."""
        distance, norm = self.clients.mean(), self.norm.square().sum().sqrt()
        whole = {"distance": distance, "squared": self.squared.sum(), "relative": distance / norm, "norm": norm}
        own = {"distance": self.distance, "squared": self.squared, "relative": self.relative, "norm": self.norm}
        flat: dict[str, float | str] = {name: float(x) for name, x in whole.items()}
        flat |= {f"{x}/{name}": float(v[i]) for i, x in enumerate(self.layers) for name, v in own.items()}
        return {**flat, "reading": self.reading}


def divergence_by_layer(vectors: Vectors, layout: Layout, *, filter: Filter | None = None, seed: int = 0) -> Divergence:
    """The mean distance of clients from their mean, layer by layer, before or after a filter.

    For an orthogonal projection the distance after the filter is never larger than before, so that a decrease is no
    evidence: read `relative`, too.

    Args:
        vectors: one per client, all taken at the same model.
        layout: names and shapes of the tensors.
        filter: if given, acts on every vector and on their mean.
        seed: for filters that draw at random.
    """
    matrix = rows("divergence_by_layer", vectors, layout).double()
    mean = filtered(filter, matrix.mean(dim=0), layout, -1, seed)
    apart = torch.stack([filtered(filter, v, layout, k, seed) for k, v in enumerate(matrix)]) - mean
    squares = torch.stack([x.square().sum(dim=1) for x in torch.split(apart, list(layout.sizes), dim=1)])
    return Divergence(
        layers=layout.names,
        distance=squares.sqrt().mean(dim=1),
        squared=squares.mean(dim=1),
        norm=torch.stack([torch.linalg.vector_norm(x) for x in layout.split(mean)]),
        clients=squares.sum(dim=0).sqrt(),
        reading=PLAIN if filter is None else FILTERED,
    )


def gradient_drift(gradients: Vectors) -> Tensor:
    """By client how far its gradient is from the mean: ||g_k - mean g||."""
    matrix = rows("gradient_drift", gradients).double()
    return (matrix - matrix.mean(dim=0)).square().sum(dim=1).sqrt()


def filtering(vectors: Vectors, layout: Layout, filter: Filter, *, seed: int = 0) -> dict[str, float]:
    """Whether a filter can help here: the agreement of clients in what it keeps and in what it removes.

    The difference cannot be had by construction: a filter that removes at random leaves both alike on average. `gain`
    is the agreement kept less that of the whole vector; positive means that it removes what clients disagree about.

    Args:
        vectors: one per client, two at least, all taken at the same model.
        layout: names and shapes of the tensors.
        filter: the filter in question.
        seed: for filters that draw at random.
    """
    matrix = rows("filtering", vectors, layout, least=2).double()
    keeps = torch.stack([filtered(filter, v, layout, k, seed) for k, v in enumerate(matrix)])
    parts = {"whole": matrix, "kept": keeps, "removed": matrix - keeps}
    energy = {name: x.square().sum(dim=1).mean() for name, x in parts.items()}
    ratio = {name: share_of(x.mean(dim=0).square().sum(), energy[name]) for name, x in parts.items()}
    out = {f"ratio/{name}": float(x) for name, x in ratio.items()}
    # Where nothing is left there is nothing to agree about; a rounding error of the filter is nothing, too.
    some = {name: bool(x > 1e-24 * energy["whole"]) for name, x in energy.items()}
    agree = {name: float(agreement(x, len(matrix))) if some[name] else 0.0 for name, x in ratio.items()}
    out |= {f"agreement/{name}": x for name, x in agree.items()}
    out["energy_removed"] = float(share_of(energy["removed"], energy["whole"]))
    return {**out, "gain": agree["kept"] - agree["whole"]}


@dataclass(frozen=True, eq=False)
class Drift:
    """How far clients moved in a round, by layer and, in the last place, over the whole model.

    Args:
        layers: the names of the tensors.
        distance: the mean over clients of ||x_i - w||, w the model they received: FedSCAM's client drift.
        scatter: the mean of ||x_i - w'||^2, w' the next global model: what FL-Simulator calls divergence.
        moved: ||w' - w||.
    """

    layers: tuple[str, ...]
    distance: Tensor
    scatter: Tensor
    moved: Tensor

    def as_dict(self) -> dict[str, float]:
        """The whole model's numbers, then those of the layers by name."""
        names = [*(f"{layer}/" for layer in self.layers), ""]
        pairs = {"distance": self.distance, "scatter": self.scatter, "moved": self.moved}
        flat = {f"{prefix}{name}": float(v[i]) for i, prefix in enumerate(names) for name, v in pairs.items()}
        return dict(sorted(flat.items(), key=lambda item: "/" in item[0]))


def client_drift(updates: Vectors, layout: Layout, moved: Vector | None = None) -> Drift:
    """How far clients moved, and how far they ended from the next global model.

    Args:
        updates: each client's displacement from the model it received.
        layout: names and shapes of the tensors.
        moved: the displacement of the global model; None takes the plain mean of the updates.
    """
    matrix = rows("client_drift", updates, layout).double()
    moved = matrix.mean(dim=0) if moved is None else moved.double()
    return Drift(
        layers=layout.names,
        distance=_squares(matrix, layout).sqrt().mean(dim=0),
        scatter=_squares(matrix - moved, layout).mean(dim=0),
        moved=_squares(moved.unsqueeze(0), layout)[0].sqrt(),
    )


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
    return torch.stack([takes[what](client) for client in clients])


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


def _squares(matrix: Tensor, layout: Layout) -> Tensor:
    """The squared norm of each row in every layer and, in the last column, over the whole model."""
    layers = torch.stack([x.square().sum(dim=1) for x in torch.split(matrix, list(layout.sizes), dim=1)], dim=1)
    return torch.cat([layers, layers.sum(dim=1, keepdim=True)], dim=1)
