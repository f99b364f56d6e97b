"""The resident worker: keeps model, data and workspace between rounds, and trains clients into a partial sum.

The same worker runs in this process, in a Ray actor and on a Flower node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from math import nan
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, Self

import torch
from torch import Generator, nn

from undrift.core.client.group import Member, train_group
from undrift.core.client.visit import ClientError, starting_loss, train, tuning_method
from undrift.core.model.flat_model import Bound, Vector, bind
from undrift.core.model.modules import to_train
from undrift.core.model.precision import autocast
from undrift.core.model.random import generator, seeded
from undrift.core.records.place import Place, home
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.server.gate import Gate
from undrift.core.server.step import reset_parts, send
from undrift.core.tasks.task import CountsLabels, Placed, ReadsOnce, Task
from undrift.engine.stores.object_store import open_store
from undrift.engine.stores.store import MemoryStore, Store, StoreError
from undrift.engine.worker.job import Job, Score
from undrift.engine.worker.partial_sum import Partial, TrainedClient
from undrift.util.steps import tell, warn


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


class Worker:
    """Trains clients one after the other on one resident model.

    Args:
        job: what all workers share.
        store: where the clients' states are kept; None keeps them in memory.

    `place` is where it trains, `task` the job's with its data there if they fit. `failure` holds the exception of the
    first client whose training failed, until `serve` returns it.
    """

    def __init__(self, job: Job, store: Store | None = None) -> None:
        self.job = job
        self.store = MemoryStore() if store is None else store
        self.place = job.open()
        self.model = bind(self.place.to(to_train(job.task.model())))
        self._modes = [(part, part.training) for part in self.model.module.modules()]
        self.task = job.task.placed(self.place) if isinstance(job.task, Placed) and not self.place.host else job.task
        self.failure: Exception | None = None
        self._reads_once = isinstance(job.task, ReadsOnce) and job.task.reads_once
        self._label_counts = job.task.label_counts if isinstance(job.task, CountsLabels) else None
        self._scratch = torch.empty_like(self.model.w)  # reused for every client's displacement

    @classmethod
    def on_disk(cls, job: Job, root: Path | str) -> Self:
        """A worker that stores its clients' states in a folder, or in an object store named by a URL."""
        worker = cls(job)
        worker.store = open_store(root, job.algorithm, worker.model.layout.size, job.depth)
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
        self._ready()
        gate = Gate(job.algorithm, job.local, broadcast, clients, job.bound, cohort=cohort, seed=job.seed)
        partial, sent = Partial(gate.total()), self.place.to(broadcast)
        each = together(self, sent, clients, accepted, gate) if job.local.together > 1 else None
        for trained in self._each(sent, clients, accepted, gate) if each is None else each:
            partial.admit(trained, gate, self.place)
        partial.rejections, partial.cause, self.failure = gate.rejections, self.failure, None
        partial.total.home()
        return partial

    def _each(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], gate: Gate
    ) -> Iterator[TrainedClient]:
        """Train clients one after the other; an upload is valid until the next one."""
        for number, client in enumerate(clients, 1):
            tell("round %d, client %d of %d", broadcast.round + 1, number, len(clients))
            started, reported = perf_counter(), dict[str, float]()
            upload = self._visit(client, broadcast, accepted.get(client), gate, self._scratch, reported)
            if upload is not None:
                yield TrainedClient(upload, perf_counter() - started, reported)

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
        The upload is on the host.
        """
        self._ready()
        sent = self.place.to(broadcast)
        if self.job.local.together > 1:
            known = {} if accepted is None else {client: accepted}
            for result in together(self, sent, [client], known, gate):
                (reported if reported is not None else {}).update(result.reported)
                return home(result.upload)
            return None
        return home(self._visit(client, sent, accepted, gate, out, reported))

    def _visit(
        self,
        client: int,
        broadcast: Broadcast,
        accepted: int | None,
        gate: Gate,
        out: Vector | None,
        reported: dict[str, float] | None,
    ) -> Upload | None:
        """The same with everything at the worker's place."""
        examples = int(self.job.task.examples(client))  # NumPy's, too
        if not gate.steps(client, examples):
            return None
        try:
            state = None if accepted is None else self.place.to(self.store.load(client, accepted))
            upload, kept = self._train(client, examples, broadcast, state, self.job, out, reported)
            if kept.parts or kept.buffers is not None:
                self.store.save(client, broadcast.round, home(kept), accepted)
        except (ClientError, StoreError) as error:
            self.fail(client, error, gate)
            return None
        return upload

    def fail(self, client: int, error: Exception, gate: Gate) -> None:
        """Reject a client whose training failed, and keep the first error of the call.

        Args:
            client: the client.
            error: what was raised.
            gate: where it is rejected.
        """
        gate.reject(client, Reason.FAILED, str(error))
        self.failure = self.failure or error

    def losses(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], batches: int | None
    ) -> dict[int, float]:
        """The mean loss of every client over its training data, of the model that it would start from.

        Args:
            broadcast: what the server sent.
            clients: the clients, each with one example at least.
            accepted: for each client with state, the last round in which its upload was accepted.
            batches: how many batches each takes; None takes all.

        It is nan for a client whose state is lost or whose data fail: it is then selected and rejected with the reason.
        """
        job, found, broadcast = self.job, dict[int, float](), self.place.to(broadcast)
        for client in clients:
            random = partial(generator, job.seed, broadcast.round, client)
            try:
                state = self.place.to(self.store.load(client, accepted[client])) if client in accepted else None
                batched = self.place.ahead(self.task.batches(client, job.local.batch_size, random("selection")))
                found[client] = starting_loss(
                    job.algorithm,
                    self.model,
                    partial(self.task.loss, self.model.module),
                    islice(batched, batches),
                    broadcast,
                    state,
                    client=client,
                    random=random,
                )
            except (ClientError, StoreError):
                found[client] = nan
        return found

    def scores(self, state: ServerState, clients: Iterable[int], score: Score) -> dict[int, float]:
        """Every client's score with its personal model; nan, with a warning, if its state is lost or its tuning fails.

        Args:
            state: the server's.
            clients: the clients.
            score: see `Score`.
        """
        found, chosen = dict[int, float](), list(clients)
        for number, client in enumerate(chosen, 1):
            tell("round %d, personal model %d of %d", state.round, number, len(chosen))
            try:
                model = self.personal(client, state)
            except (ClientError, StoreError) as error:
                warn("client %d has no score of its personal model: %s", client, error)
                found[client] = nan
                continue
            try:
                found[client] = float(score(self.job.task, model, client))
            except Exception as error:
                raise ClientError(
                    f"client {client}: the score of its personal model after round {state.round} failed: "
                    f"{type(error).__name__}: {error}; check the score function and the client's test data"
                ) from error
        return found

    def personal(self, client: int, state: ServerState) -> nn.Module:
        """The worker's model, set to what a client is evaluated with after a round, tuned if the method says so.

        It is in evaluation mode, and valid until the worker is used again.
        """
        self._ready()
        job, algorithm = self.job, self.job.algorithm
        accepted = state.accepted.get(client)
        kept = None if accepted is None else self.store.load(client, accepted)
        w = algorithm.personal(state.params, kept, self.model.layout)
        statistics = (kept or ClientState({})).statistics(state.buffers, state.counts)
        examples, epochs = int(job.task.examples(client)), algorithm.personalization.tuning
        if epochs and examples:
            tuner = replace(job, algorithm=tuning_method(algorithm), local=job.local.whole(epochs))
            begun = reset_parts(tuner.algorithm, ServerState(state.round, w, *statistics, {}))
            self._train(client, examples, self.place.to(send(tuner.algorithm, begun, tuner.setting)), None, tuner, None)
        else:
            self.model.load(w, *statistics)
        return self.model.module.eval()

    def _ready(self) -> None:
        """Put the model into its modes of training, whatever was done to a personal model since."""
        for part, training in self._modes:
            part.training = training
        for parameter in self.model.parameters:
            parameter.grad = None

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
        local = job.local

        def batches(order: Generator) -> Iterator[Any]:
            return self.place.ahead(self.task.batches(client, local.batch_size, order))

        steps = local.step_count(examples, client, broadcast.round, job.seed)
        with seeded(self.place.device, random("model").initial_seed()), autocast("fp32", self.place.device):
            return train(
                job.algorithm,
                self.model,
                partial(self.task.loss, self.model.module),
                _passes(lambda: batches(order), local, examples, steps),
                broadcast,
                state,
                job.local,
                client=client,
                examples=examples,
                steps=steps,
                random=random,
                epoch=None if self._reads_once else batches,
                label_counts=None if self._label_counts is None else partial(self._label_counts, client),
                out=out,
                reported=reported,
            )


def _passes(epoch: Callable[[], Iterable[Any]], local: Local, examples: int, steps: int) -> Iterator[Any]:
    """The batches of a visit: passes over the client's data, the last one cut off where the steps end."""
    each = local.epoch_steps(examples)
    whole = steps % each == 0 and not local.drop_last  # a task that gives too many batches is then noticed
    passes = (epoch() if whole else islice(epoch(), each) for _ in range(-(-steps // each)))
    return chain.from_iterable(passes) if whole else islice(chain.from_iterable(passes), steps)
