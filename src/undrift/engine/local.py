"""The reference engine: plain loops in this process. Every other engine must equal it to the bit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import torch
from torch import nn

from undrift import server
from undrift.algorithm import Algorithm
from undrift.client import train
from undrift.engine.random import bernoulli_cohort, cohort, generator
from undrift.gate import Gate, Reason, Rejection
from undrift.reduce import Total
from undrift.task import Task
from undrift.types import Broadcast, ClientState, Local, ServerState, Upload
from undrift.vector import bind


@dataclass(frozen=True)
class Record:
    """What happened in a round."""

    round: int
    clients: tuple[int, ...]
    rejections: tuple[Rejection, ...]
    loss: float


@dataclass
class Simulation:
    """Federated training in one process.

    Args:
        algorithm: the method.
        task: the model, its loss and the clients' data.
        local: the settings all clients share.
        cohort: how many clients take part in a round; None takes all.
        probability: if given, each client takes part with this probability instead.
        seed: fixes everything random.
        bound: largest norm of a client's displacement; None allows any that can be summed exactly.
    """

    algorithm: Algorithm
    task: Task
    local: Local = field(default_factory=Local)
    cohort: int | None = None
    probability: float | None = None
    seed: int = 0
    bound: float | None = None

    def __post_init__(self) -> None:
        self.model = bind(self.task.model().train())
        self.states: dict[int, dict[int, ClientState]] = {}

    def start(self) -> ServerState:
        """The server's state before round 0."""
        return server.open_run(self.algorithm, bind(self.task.model()))

    def run(self, rounds: int, state: ServerState | None = None) -> ServerState:
        """Train for some rounds, from the start or from a state."""
        last = state or self.start()
        for last, _ in self.rounds(rounds, last):  # noqa: B007, B020  the last one is the result
            pass
        return last

    def rounds(self, rounds: int, state: ServerState | None = None) -> Iterator[tuple[ServerState, Record]]:
        """Train for some rounds and give the state and a record after each."""
        state = state or self.start()
        for _ in range(rounds):
            state, record = self.round(state, self.sample(state.round))
            yield state, record

    def module(self, state: ServerState) -> nn.Module:
        """A new model with a state's weights, ready to evaluate."""
        bound = bind(self.task.model().eval())
        bound.w.copy_(state.params)
        bound.buffers.copy_(state.buffers)
        bound.counts.copy_(state.counts)
        return bound.module

    def sample(self, round: int) -> list[int]:
        """The clients of a round."""
        if self.probability is not None:
            return bernoulli_cohort(self.seed, round, self.task.population, self.probability)
        return cohort(self.seed, round, self.task.population, self.cohort or self.task.population)

    def round(self, state: ServerState, clients: list[int]) -> tuple[ServerState, Record]:
        """One round with the clients given."""
        broadcast = server.send(self.algorithm, state)
        gate = Gate(self.algorithm, self.local, broadcast, clients, self.bound)
        total = gate.total()
        losses = {}
        for client in clients:
            upload = self.visit(client, broadcast, state.accepted.get(client), gate)
            if upload is not None and gate.admit(upload, total) is None:
                losses[client] = upload.loss
        new = self.close(state, broadcast, total)
        loss = sum(losses[client] for client in sorted(losses)) / max(len(losses), 1)
        return new, Record(state.round, tuple(sorted(losses)), tuple(gate.rejections), loss)

    def close(self, state: ServerState, broadcast: Broadcast, total: Total) -> ServerState:
        """End a round with the uploads that came in."""
        return server.close(self.algorithm, state, broadcast, total, self.task.population, self.local)

    def visit(self, client: int, broadcast: Broadcast, accepted: int | None, gate: Gate) -> Upload | None:
        """Train one client from the state of its last accepted round; its new state is provisional."""
        examples = self.task.examples(client)
        if examples == 0:
            gate.reject(client, Reason.EMPTY)
            return None
        upload, kept = self._train(client, examples, broadcast, self._state(client, accepted))
        if kept.parts or kept.buffers is not None:
            held = self.states.get(client, {})
            last = {accepted: held[accepted]} if accepted is not None else {}
            self.states[client] = {**last, broadcast.round: kept}
        return upload

    def _state(self, client: int, accepted: int | None) -> ClientState | None:
        """A client's state after the last round in which its upload was accepted."""
        if accepted is None:
            return None
        try:
            return self.states[client][accepted]
        except KeyError:
            raise KeyError(
                f"no state of client {client} after round {accepted}; resume with the clients' states"
            ) from None

    def _train(
        self, client: int, examples: int, broadcast: Broadcast, state: ClientState | None
    ) -> tuple[Upload, ClientState]:
        """Train one client with its own generators."""
        random = partial(generator, self.seed, broadcast.round, client)
        order = random("batches")
        epochs = (self.task.batches(client, self.local.batch_size, order) for _ in range(self.local.epochs))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(random("model").initial_seed())
            return train(
                self.algorithm,
                self.model,
                partial(self.task.loss, self.model.module),
                chain.from_iterable(epochs),
                broadcast,
                state,
                self.local,
                client=client,
                examples=examples,
                random=random,
            )
