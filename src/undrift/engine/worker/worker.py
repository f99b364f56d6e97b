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
from typing import Any, Self

import torch
from torch import Generator, nn

from undrift.core.client.group import Member, train_group
from undrift.core.client.visit import ClientError, starting_loss, train, tuning_method
from undrift.core.model.flat_model import Vector, bind
from undrift.core.model.modules import to_train
from undrift.core.model.precision import autocast
from undrift.core.model.random import derive, generator, with_seed
from undrift.core.records.place import home
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.core.server.gate import Gate
from undrift.core.server.step import reset_parts, send
from undrift.core.tasks.task import CountsLabels, Placed, ReadsOnce
from undrift.engine.stores.object_store import open_store
from undrift.engine.stores.store import MemoryStore, Store, StoreError
from undrift.engine.worker.job import NOW, Job, Score, Timing
from undrift.engine.worker.partial_sum import Partial, TrainedClient
from undrift.util.steps import tell, warn


class Worker:
    """Trains clients on one resident model, one after the other or in groups.

    Args:
        job: what all workers share.
        store: where the clients' states are kept; None keeps them in memory.

    `place` is where it trains, `task` the job's with its data there if they fit. `failure` holds the exception of the
    first client whose training failed, until `serve` returns it; `describe` gives its text for the server.
    """

    def __init__(self, job: Job, store: Store | None = None) -> None:
        self.job = job
        self.store = MemoryStore() if store is None else store
        self.place = job.open()
        self.model = bind(self.place.to(to_train(job.task.model())))
        self._modes = [(part, part.training) for part in self.model.module.modules()]
        self.task = job.task.placed(self.place) if isinstance(job.task, Placed) and not self.place.host else job.task
        self.failure: Exception | None = None
        self.describe: Callable[[Exception], str] = str
        self._reads_once = isinstance(job.task, ReadsOnce) and job.task.reads_once
        self._label_counts = job.task.label_counts if isinstance(job.task, CountsLabels) else None

    @classmethod
    def on_disk(cls, job: Job, root: Path | str) -> Self:
        """A worker that stores its clients' states in a folder, or in an object store named by a URL."""
        worker = cls(job)
        worker.store = open_store(root, job.algorithm, worker.model.layout.size, job.depth)
        return worker

    def serve(
        self,
        broadcast: Broadcast,
        clients: Sequence[int],
        accepted: Mapping[int, int],
        cohort: int,
        timing: Timing = NOW,
    ) -> Partial:
        """Train some clients of a round and sum their uploads.

        Args:
            broadcast: what the server sent.
            clients: the clients to train here.
            accepted: for each client with state, the last round in which its upload was accepted.
            cohort: how many clients take part in the round in all.
            timing: when their uploads arrive, if not in the round of the broadcast.
        """
        gate = self.job.gate(broadcast, clients, cohort, timing)
        partial = Partial(gate.total())
        for trained in self._train_all(broadcast, clients, accepted, gate, timing):
            partial.admit(trained, gate, self.place)
        partial.rejections, partial.cause, self.failure = gate.rejections, self.failure, None
        partial.total.home()
        return partial

    def serve_apart(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], cohort: int
    ) -> Iterator[Partial]:
        """Train some clients of a round: the result of each as it is there, then one without a sum with the rejections.

        Args:
            broadcast: what the server sent.
            clients: the clients to train here.
            accepted: for each client with state, the last round in which its upload was accepted.
            cohort: how many clients take part in the round in all.
        """
        gate = self.job.gate(broadcast, clients, cohort)
        for trained in self._train_all(broadcast, clients, accepted, gate):
            partial = Partial(gate.total())
            partial.admit(trained, gate, self.place)
            partial.total.home()
            if partial.visits:
                yield partial
        rest = Partial(gate.total(), rejections=gate.rejections, cause=self.failure)
        self.failure = None
        yield rest

    def _train_all(
        self,
        broadcast: Broadcast,
        clients: Sequence[int],
        accepted: Mapping[int, int],
        gate: Gate,
        timing: Timing = NOW,
    ) -> Iterator[TrainedClient]:
        """Train clients, one after the other or in groups; an upload is valid until the next one."""
        self._reset_modes()
        train = self._train_groups if self.job.local.together > 1 else self._train_each
        return train(self.place.to(broadcast), clients, accepted, gate, timing)

    def visit(self, client: int, broadcast: Broadcast, accepted: int | None, gate: Gate) -> Upload | None:
        """The upload of one client, or None if it was rejected: see `train_client`."""
        trained = self.train_client(client, broadcast, accepted, gate)
        return None if trained is None else trained.upload

    def train_client(
        self, client: int, broadcast: Broadcast, accepted: int | None, gate: Gate, timing: Timing = NOW
    ) -> TrainedClient | None:
        """Train one client from the state of its last accepted round; its upload is on the host.

        Its new state is provisional. A client whose training fails, or whose state is missing or damaged, is rejected
        at the gate with the reason.

        Args:
            client: the client.
            broadcast: what the server sent.
            accepted: the last round in which its upload was accepted; None if there is none.
            gate: rejects it if it has no work or fails.
            timing: when its upload arrives, if not in the round of the broadcast.
        """
        self._reset_modes()
        sent = self.place.to(broadcast)
        if self.job.local.together > 1:
            known = {} if accepted is None else {client: accepted}
            trained = next(self._train_groups(sent, [client], known, gate, timing), None)
        else:
            trained = self._train_one(client, sent, accepted, gate, timing, None)
        return None if trained is None else replace(trained, upload=home(trained.upload))

    def _train_each(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], gate: Gate, timing: Timing
    ) -> Iterator[TrainedClient]:
        """Train clients one after the other; an upload is valid until the next one."""
        out = torch.empty_like(self.model.w)
        for number, client in enumerate(clients, 1):
            tell("round %d, client %d of %d", broadcast.round + 1, number, len(clients))
            trained = self._train_one(client, broadcast, accepted.get(client), gate, timing, out)
            if trained is not None:
                yield trained

    def _train_one(
        self,
        client: int,
        broadcast: Broadcast,
        accepted: int | None,
        gate: Gate,
        timing: Timing,
        out: Vector | None,
    ) -> TrainedClient | None:
        """Train one client with everything at the worker's place; its displacement is written to `out` if given."""
        started, reported = perf_counter(), dict[str, float]()
        examples = int(self.job.task.examples(client))  # NumPy's, too
        if not gate.steps(client, examples):
            return None
        try:
            state = self._load(client, accepted)
            job = replace(self.job, seed=timing.seed(self.job.seed)) if timing.turn else self.job
            upload, kept = self._train(client, examples, broadcast, state, job, out, reported)
            self._save(client, broadcast.round if timing.key is None else timing.key, kept, accepted)
        except (ClientError, StoreError) as error:
            self.fail(client, error, gate)
            return None
        return TrainedClient(upload, perf_counter() - started, reported)

    def _train_groups(
        self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int], gate: Gate, timing: Timing
    ) -> Iterator[TrainedClient]:
        """Train clients in groups of similar numbers of steps, those with most steps first."""
        job, size, done, seed = self.job, self.job.local.together, 0, timing.seed(self.job.seed)
        key = broadcast.round if timing.key is None else timing.key
        counted = [(client, gate.steps(client, int(job.task.examples(client)))) for client in clients]
        busy = sorted((pair for pair in counted if pair[1]), key=lambda pair: -pair[1])
        for group in (busy[i : i + size] for i in range(0, len(busy), size)):
            tell("round %d, clients %d to %d of %d", broadcast.round + 1, done + 1, done + len(group), len(clients))
            started, done = perf_counter(), done + len(group)
            members = []
            for client, steps in group:
                try:
                    members.append(self._member(broadcast.round, client, steps, accepted.get(client), seed))
                except StoreError as error:
                    self.fail(client, error, gate)
            with autocast("fp32", self.place.device):
                found = train_group(job.algorithm, self.model, self.task, members, broadcast, job.local)
            seconds = (perf_counter() - started) / max(len(members), 1)
            for member, result in zip(members, found, strict=True):
                try:
                    if isinstance(result, ClientError):
                        raise result
                    upload, kept = result
                    self._save(member.client, key, kept, accepted.get(member.client))
                except (ClientError, StoreError) as error:
                    self.fail(member.client, error, gate)
                else:
                    yield TrainedClient(upload, seconds, member.reported)

    def _member(self, round: int, client: int, steps: int, accepted: int | None, seed: int) -> Member:
        """A client of a group, with its state and its own random generators."""
        return Member(
            client,
            int(self.job.task.examples(client)),
            steps,
            self._load(client, accepted),
            partial(generator, seed, round, client),
            partial(self._batches, client),
            None if self._label_counts is None else partial(self._label_counts, client),
        )

    def _load(self, client: int, accepted: int | None) -> ClientState | None:
        """A client's state of its last accepted round, at the worker's place; None if it has none."""
        return None if accepted is None else self.place.to(self.store.load(client, accepted))

    def _save(self, client: int, round: int, kept: ClientState, accepted: int | None) -> None:
        """Store a client's new state, if it has one."""
        if kept.parts or kept.buffers is not None:
            self.store.save(client, round, home(kept), accepted)

    def _batches(self, client: int, order: Generator) -> Iterator[Any]:
        """One pass over a client's data, at the worker's place."""
        return self.place.ahead(self.task.batches(client, self.job.local.batch_size, order))

    def fail(self, client: int, error: Exception, gate: Gate) -> None:
        """Reject a client whose training failed, and keep the first error of the call.

        Args:
            client: the client.
            error: the exception of its training.
            gate: the gate that rejects it.
        """
        gate.reject(client, Reason.FAILED, self.describe(error))
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
                state = self._load(client, accepted.get(client))
                found[client] = starting_loss(
                    job.algorithm,
                    self.model,
                    partial(self.task.loss, self.model.module),
                    islice(self._batches(client, random("selection")), batches),
                    broadcast,
                    state,
                    random,
                )
            except Exception:  # the client is selected, and the reason found when it trains
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
        """The model that a client is evaluated with after a round, tuned if the method tunes it.

        It is the worker's own, in evaluation mode, and valid until the worker is used again.
        """
        self._reset_modes()
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

    def _reset_modes(self) -> None:
        """Put the model back into its modes of training, after a personal model was evaluated."""
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
        local, batches = job.local, partial(self._batches, client)
        steps = local.step_count(examples, client, broadcast.round, job.seed)
        seed, device = derive(job.seed, broadcast.round, client, "model"), self.place.device
        with with_seed(device, seed), autocast("fp32", device):
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
                attributes=local.attributes(client, broadcast.round, job.seed),
                out=out,
                reported=reported,
            )


def _passes(epoch: Callable[[], Iterable[Any]], local: Local, examples: int, steps: int) -> Iterator[Any]:
    """The batches of a visit: passes over the client's data, the last one cut off where the steps end."""
    each = local.epoch_steps(examples)
    whole = steps % each == 0 and not local.drop_last  # a task that gives too many batches is then noticed
    passes = (epoch() if whole else islice(epoch(), each) for _ in range(-(-steps // each)))
    return chain.from_iterable(passes) if whole else islice(chain.from_iterable(passes), steps)
