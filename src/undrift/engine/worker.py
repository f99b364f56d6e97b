"""The resident worker: keeps model, data and workspace between rounds, and trains clients into a partial sum.

The same worker runs in this process, in a Ray actor and on a Flower node.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Self

import torch
from torch import Tensor, nn

from undrift.core import wire
from undrift.core.algorithm import Algorithm
from undrift.core.client import ClientError, train, tuning
from undrift.core.gate import Gate, Reason, Rejection
from undrift.core.random import generator
from undrift.core.reduce import Total
from undrift.core.server import opened, send
from undrift.core.task import CountsLabels, ReadsOnce, Task
from undrift.core.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.vector import Vector, bind
from undrift.engine.store import DiskStore, MemoryStore, Store, StoreError
from undrift.util.steps import tell


@dataclass(frozen=True)
class Job:
    """What all workers of a run share.

    Args:
        algorithm: the method.
        task: the model, its loss and the clients' data.
        local: the settings all clients share.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
        depth: how many rounds back the server's checkpoints reach; clients' states on disk are kept for as long.
    """

    algorithm: Algorithm
    task: Task
    local: Local = field(default_factory=Local)
    seed: int = 0
    bound: float | None = None
    depth: int = 0


@dataclass(frozen=True)
class Visit:
    """One client's part in one round.

    Args:
        client: the client's number.
        examples: how many training examples it has.
        loss: its mean training loss.
        seconds: how long it took.
        weight: the weight of its upload in the mean.
        norm: the norm of its displacement.
        gradients: how many gradients its training evaluated.
        reports: what its blocks reported, as "slot.name".
    """

    client: int
    examples: int
    loss: float
    seconds: float
    weight: float = 0.0
    norm: float = 0.0
    gradients: int = 0
    reports: Mapping[str, float] = field(default_factory=dict, hash=False)


@dataclass(eq=False)
class Partial:
    """The result of some clients of a round: the sum of their uploads, and the outcome of each client.

    Args:
        total: the sum of the accepted uploads.
        visits: the clients whose uploads were accepted.
        rejections: the clients whose uploads were rejected, or whose training failed, each with the reason.
        absent: the clients that sent no reply, each with the reason.
        cause: the exception behind the first failure, if the client was trained in this process.
    """

    total: Total
    visits: list[Visit] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    absent: dict[int, str] = field(default_factory=dict)
    cause: Exception | None = None

    def flatten(self) -> tuple[dict[str, Tensor], str]:
        """The reply as named tensors and a line of JSON."""
        tensors = self.total.flatten(wire.flatten)
        summary = {
            "visits": [
                [v.client, v.examples, v.gradients, v.loss, v.seconds, v.weight, v.norm, dict(v.reports)]
                for v in self.visits
            ],
            "rejections": [[r.client, r.reason.name, r.detail] for r in self.rejections],
        }
        return tensors, json.dumps(summary)

    def restore(self, tensors: Mapping[str, Tensor], summary: str, size: int) -> "Partial":
        """Fill this empty reply with what `flatten` returned in another process.

        Raises `WireError` if it cannot be read; `Gate.merge` then validates what was read.
        """
        algorithm = self.total.algorithm
        try:
            self.total.restore(tensors, size, lambda upload: wire.restore(Upload, algorithm, upload, size))
            facts = json.loads(summary)
            self.visits = [
                Visit(
                    int(client),
                    int(examples),
                    float(loss),
                    float(seconds),
                    float(weight),
                    float(norm),
                    int(gradients),
                    {str(name): float(x) for name, x in dict(reports).items()},
                )
                for client, examples, gradients, loss, seconds, weight, norm, reports in facts["visits"]
            ]
            self.rejections = [Rejection(int(c), Reason[r], str(d)[:1000]) for c, r, d in facts["rejections"]]
        except (KeyError, TypeError, ValueError) as error:
            raise wire.WireError(f"the reply cannot be read: {error!r}") from error
        return self


class Worker:
    """Trains clients one after the other on one resident model.

    Args:
        job: what all workers share.
        store: where the clients' states are kept; None keeps them in memory.

    `failure` holds the exception of the first client whose training failed, until `serve` returns it.
    """

    def __init__(self, job: Job, store: Store | None = None) -> None:
        self.job = job
        self.store = MemoryStore() if store is None else store
        self.model = bind(job.task.model().train())
        self.failure: Exception | None = None
        self._scratch = torch.empty_like(self.model.w)  # reused for every client's displacement

    @classmethod
    def on_disk(cls, job: Job, root: Path) -> Self:
        """A worker that stores its clients' states in a folder."""
        worker = cls(job)
        worker.store = DiskStore(root, job.algorithm, worker.model.layout.size, depth=job.depth)
        return worker

    def serve(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], cohort: int) -> Partial:
        """Train some clients of a round and sum their uploads.

        Args:
            broadcast: what the server sent.
            clients: the clients to train here.
            accepted: for each client with state, the last round in which its upload was accepted.
            cohort: how many clients take part in the round in all.
        """
        job = self.job
        gate = Gate(job.algorithm, job.local, broadcast, clients, job.bound, cohort=cohort)
        partial = Partial(gate.total())
        for number, client in enumerate(clients, 1):
            tell("round %d, client %d of %d", broadcast.round + 1, number, len(clients))
            started, reported = perf_counter(), dict[str, float]()
            upload = self.visit(client, broadcast, accepted.get(client), gate, self._scratch, reported)
            if upload is not None and gate.admit(upload, partial.total) is None:
                seconds = perf_counter() - started
                measured = gate.measured[client]
                partial.visits.append(
                    Visit(client, upload.examples, upload.loss, seconds, *measured, upload.gradients, reported)
                )
        partial.rejections, partial.cause, self.failure = gate.rejections, self.failure, None
        return partial

    def visit(
        self,
        client: int,
        broadcast: Broadcast,
        accepted: int | None,
        gate: Gate,
        out: Vector | None = None,
        reported: dict[str, float] | None = None,
    ) -> Upload | None:
        """Train one client from the state of its last accepted round; its new state is provisional.

        A client whose training fails, or whose state is missing or damaged, is rejected at the gate with the reason.
        """
        try:
            return self._visit(client, broadcast, accepted, gate, out, reported)
        except (ClientError, StoreError) as error:
            gate.reject(client, Reason.FAILED, str(error))
            self.failure = self.failure or error
            return None

    def _visit(
        self,
        client: int,
        broadcast: Broadcast,
        accepted: int | None,
        gate: Gate,
        out: Vector | None,
        reported: dict[str, float] | None,
    ) -> Upload | None:
        """Train one client, or raise."""
        examples = self.job.task.examples(client)
        if examples == 0:
            gate.reject(client, Reason.EMPTY)
            return None
        state = None if accepted is None else self.store.load(client, accepted)
        upload, kept = self._train(client, examples, broadcast, state, self.job, out, reported)
        if kept.parts or kept.buffers is not None:
            self.store.save(client, broadcast.round, kept, accepted)
        return upload

    def personal(self, client: int, state: ServerState) -> nn.Module:
        """The worker's model, set to what a client is evaluated with after a round, tuned if the method says so.

        It is valid until the worker is used again.
        """
        job, algorithm = self.job, self.job.algorithm
        accepted = state.accepted.get(client)
        kept = None if accepted is None else self.store.load(client, accepted)
        w = algorithm.personal(state.params, kept, self.model.layout)
        buffers = state.buffers if kept is None or kept.buffers is None else kept.buffers
        examples, epochs = job.task.examples(client), algorithm.personalization.tuning
        if epochs and examples:
            tuner = replace(job, algorithm=tuning(algorithm), local=replace(job.local, epochs=epochs))
            begun = opened(tuner.algorithm, ServerState(state.round, w, buffers, state.counts, {}))
            self._train(client, examples, send(tuner.algorithm, begun), None, tuner, None)
        else:
            self.model.w.copy_(w)
            self.model.buffers.copy_(buffers)
            self.model.counts.copy_(state.counts)
        return self.model.module

    def _train(
        self,
        client: int,
        examples: int,
        broadcast: Broadcast,
        state: ClientState | None,
        job: Job,
        out: Vector | None,
        reported: dict[str, float] | None = None,
    ) -> tuple[Upload, ClientState]:
        """Train one client with its own random generators."""
        random = partial(generator, job.seed, broadcast.round, client)
        order = random("batches")
        batches = partial(job.task.batches, client, job.local.batch_size)
        task = job.task
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(random("model").initial_seed())
            return train(
                job.algorithm,
                self.model,
                partial(job.task.loss, self.model.module),
                chain.from_iterable(batches(order) for _ in range(job.local.epochs)),
                broadcast,
                state,
                job.local,
                client=client,
                examples=examples,
                random=random,
                epoch=None if isinstance(task, ReadsOnce) and task.reads_once else batches,
                label_counts=partial(task.label_counts, client) if isinstance(task, CountsLabels) else None,
                out=out,
                reported=reported,
            )
