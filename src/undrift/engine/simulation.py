"""The reference engine: one worker in this process. Every other engine must equal it to the bit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import sqrt
from pathlib import Path

from torch import nn

from undrift.core import server
from undrift.core.algorithm import Algorithm
from undrift.core.gate import Rejection
from undrift.core.oracle import Oracle
from undrift.core.random import bernoulli_cohort, cohort, generator
from undrift.core.reduce import Total
from undrift.core.samples import Samples
from undrift.core.task import HasProxy, Task
from undrift.core.types import Broadcast, Local, ServerState
from undrift.core.vector import Bound, bind
from undrift.engine.store import Store
from undrift.engine.worker import Job, Partial, Visit, Worker


@dataclass(frozen=True)
class Record:
    """What happened in a round: who took part, who was set aside, and how far the mean of the clients moved."""

    round: int
    visits: tuple[Visit, ...]
    rejections: tuple[Rejection, ...]
    moved: float = 0.0

    @property
    def clients(self) -> tuple[int, ...]:
        """The clients whose uploads were accepted, sorted."""
        return tuple(visit.client for visit in self.visits)

    @property
    def loss(self) -> float:
        """The mean training loss of these clients."""
        return sum(visit.loss for visit in self.visits) / max(len(self.visits), 1)

    @property
    def distance(self) -> float:
        """The mean distance of these clients from the model they received (FedSCAM's client drift)."""
        return sum(visit.norm for visit in self.visits) / max(len(self.visits), 1)

    @property
    def norm(self) -> float:
        """The root of the weighted mean of the squared norms of the clients' displacements."""
        weight = sum(visit.weight for visit in self.visits) or 1.0
        return sqrt(sum(visit.weight * visit.norm**2 for visit in self.visits) / weight)

    @property
    def drift(self) -> float:
        """How far clients end from their mean: the root of the weighted mean of ||delta_i - mean delta||^2."""
        return sqrt(max(self.norm**2 - self.moved**2, 0.0))


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
        store: where the clients' states are kept; None keeps them in memory.
        depth: how many rounds back checkpoints reach, if states are kept on disk.
        root: folder of the clients' states, if they are to be on disk; then `store` is not used.
    """

    algorithm: Algorithm
    task: Task
    local: Local = field(default_factory=Local)
    cohort: int | None = None
    probability: float | None = None
    seed: int = 0
    bound: float | None = None
    store: Store | None = None
    depth: int = 0
    root: Path | None = None

    def __post_init__(self) -> None:
        self.job = Job(self.algorithm, self.task, self.local, self.seed, self.bound, self.depth)

    @cached_property
    def worker(self) -> Worker:
        """The one worker, made when it is first needed: an engine with workers elsewhere needs none here."""
        return Worker(self.job, self.store) if self.root is None else Worker.on_disk(self.job, self.root)

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

    def round(self, state: ServerState, clients: Sequence[int]) -> tuple[ServerState, Record]:
        """One round with the clients given."""
        broadcast = server.send(self.algorithm, state)
        partial = self.collect(broadcast, clients, state.accepted)
        visits = tuple(sorted(partial.visits, key=lambda visit: visit.client))
        rejections = tuple(sorted(partial.rejections, key=lambda rejection: rejection.client))
        record = Record(state.round, visits, rejections, partial.total.norm())
        return self.close(state, broadcast, partial.total), record

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients of a round and add their uploads up: what another engine does another way."""
        return self.worker.serve(broadcast, clients, accepted, len(clients))

    def close(self, state: ServerState, broadcast: Broadcast, total: Total) -> ServerState:
        """End a round with the uploads that came in."""
        proxy = self.proxy(broadcast) if self.algorithm.needs.proxy else None
        layout = self._server_model.layout
        return server.close(self.algorithm, state, broadcast, total, self.task.population, self.local, layout, proxy)

    def proxy(self, broadcast: Broadcast) -> Samples:
        """Losses and gradients on the task's proxy data, with the running statistics that were broadcast."""
        task = self.task
        if not isinstance(task, HasProxy):
            raise TypeError(
                f"aggregation={type(self.algorithm.aggregation).__name__} judges models on proxy data at the server: "
                f"give the task a method proxy(); {type(task).__name__} has none"
            )
        model, random = self._server_model, partial(generator, self.seed, broadcast.round, -1)
        model.buffers.copy_(broadcast.buffers)
        model.counts.copy_(broadcast.counts)
        oracle = Oracle(model, partial(self.task.loss, model.module), random)
        return Samples(random=random, _oracle=oracle, _epoch=lambda _: task.proxy())

    @cached_property
    def _server_model(self) -> Bound:
        """The server's own model, for rules that need its layout or judge others on it."""
        return bind(self.task.model().train())

    def personal(self, state: ServerState, client: int) -> nn.Module:
        """A client's own model, as it is evaluated: the worker's, which holds it until it is used again."""
        return self.worker.personal(client, state)

    def sample(self, round: int) -> list[int]:
        """The clients of a round."""
        population = self.task.population
        if self.probability is not None:
            return bernoulli_cohort(self.seed, round, population, self.probability)
        return cohort(self.seed, round, population, self.cohort or population)

    def module(self, state: ServerState) -> nn.Module:
        """A new model with a state's weights, ready to evaluate."""
        bound = bind(self.task.model().eval())
        bound.w.copy_(state.params)
        bound.buffers.copy_(state.buffers)
        bound.counts.copy_(state.counts)
        return bound.module
