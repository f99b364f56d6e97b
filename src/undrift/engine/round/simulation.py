"""The simulation: it samples clients, makes the server step and writes records, on any backend."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property, partial
from time import perf_counter
from typing import Any, NamedTuple, Self

from torch import nn

from undrift.core.method.algorithm import Algorithm
from undrift.core.method.selection import Candidates, check_cohort, select_cohort
from undrift.core.method.view import Setting
from undrift.core.model.flat_model import Bound, bind
from undrift.core.model.modules import to_train
from undrift.core.model.oracle import Oracle
from undrift.core.model.random import generator
from undrift.core.model.samples import Samples
from undrift.core.records.place import Place, place_of
from undrift.core.records.report import Reported
from undrift.core.records.types import Broadcast, Local, ServerState
from undrift.core.server import step as server
from undrift.core.server.state_form import StateForm
from undrift.core.server.total import Total
from undrift.core.tasks.durations import Clock, Durations
from undrift.core.tasks.participation import Participation, Trace, Weights
from undrift.core.tasks.task import HasProxy, Task
from undrift.engine.round.arguments import (
    check_client,
    check_clients,
    check_local,
    check_task,
    read_method,
    whole_number,
)
from undrift.engine.round.arrivals import StepUploads, collect_uploads, outcomes, replayed_plan, sent_versions
from undrift.engine.round.backend import Backend, InProcess
from undrift.engine.round.evaluate import Evaluate, Evaluator
from undrift.engine.round.failures import Failures, check_failures, check_policy
from undrift.engine.round.quarantine import Quarantine, QuarantineList
from undrift.engine.round.record import Record
from undrift.engine.round.scheduler import Scheduler, StepPlan, VirtualArrivals
from undrift.engine.round.threads import choose_threads, use_threads
from undrift.engine.stores.lineage import Lineage
from undrift.engine.worker.device import resolve
from undrift.engine.worker.job import Job, Score, VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.engine.worker.worker import Worker
from undrift.privacy.examples import ExampleReleases, check_examples, example_statement
from undrift.privacy.statement import Statement, statement
from undrift.secure.settings import Secure, check_secure, read_secure
from undrift.util.display.html import short_text
from undrift.util.display.progress import Progress
from undrift.util.overlay import Overlay
from undrift.util.steps import tell
from undrift.util.storage.history import History

_CANCELLED, _DROPPED = "cancelled: enough others arrived before it", "left before its task had ended"


@dataclass(repr=False)
class Simulation:
    """Federated training, bit-identical on every backend. A context manager that closes its backend.

    Args:
        algorithm: the method, or its name or composition: "fedavg", "scaffold + sam(rho=0.05)".
        task: the model, its loss and the clients' data.
        local: the settings all clients share.
        cohort: how many clients take part in a round; None takes all.
        probability: if given, each client takes part with this probability, instead of a cohort of fixed size.
        seed: fixes everything random.
        bound: largest norm of a client's displacement, and of their mean in a round, which the server's corrections and
            optimizer follow; None allows any that can be summed exactly.
        depth: how many rounds back a run may be resumed from, if the backend keeps clients' states on disk.
        failures: "reject" continues without a client whose training fails and records the reason; "raise" ends the run
            with a `ClientError`. If every client of a round fails, the error is raised in either case.
        backend: where clients are trained; None is `InProcess()`, in this process. The others are `RayBackend` from
            `undrift.ray` and `FlowerBackend` from `undrift.flower`.
        durations: how long a client's task takes in virtual time: see `core.tasks.durations`; None measures no time, or
            takes one second where the schedule needs it.
        availability: when clients can take part: see `core.tasks.participation`; None makes all available always.
        quarantine: leaves clients whose uploads are rejected again and again out of some rounds, in which they are
            recorded as absent; None has no quarantine. See `undrift.Quarantine`.
        sampling: the weights with which a cohort is drawn without replacement: "uniform", "examples", or one for each.
        device: where clients are trained: "auto", "cpu", "cuda", "cuda:1", "mps": see `undrift.engine.worker.device`.
        resident: the largest share of the device's free memory for a copy of the task's data; 0 moves every batch.
        deterministic: make workers choose deterministic kernels, for equal bits on a GPU.
        keep_memory: let workers keep the memory that they free, a setting of their whole process; in one process that
            is yours. See `undrift.engine.worker.device`.
        secure: add the uploads by a protocol in which no upload is seen, with the same result: a `Secure`, or True for
            its defaults; None adds them as they are. In one process it is a rehearsal: see `undrift.Secure`.
        threads: of torch, while this process computes; None takes one for a model of up to a million parameters on a
            CPU, unless you have chosen a number by `OMP_NUM_THREADS` or `torch.set_num_threads`.

    `history` has a row of numbers for every round that was trained.
    """

    algorithm: Algorithm | str
    task: Task
    local: Local = field(default_factory=Local)
    cohort: int | None = None
    probability: float | None = None
    seed: int = 0
    bound: float | None = None
    depth: int = 0
    failures: Failures = "reject"
    backend: Backend | None = None
    durations: Durations | None = None
    availability: Trace | None = None
    sampling: Weights = "uniform"
    device: str = "cpu"
    resident: float = 0.5
    deterministic: bool = False
    keep_memory: bool = True
    quarantine: Quarantine | None = None
    threads: int | None = None
    secure: Secure | bool | None = None

    def __post_init__(self) -> None:
        check_policy(self.failures)
        self.seed, self.depth = whole_number("seed", self.seed), whole_number("depth", self.depth)
        if self.threads is not None:
            self.threads = whole_number("threads", self.threads, 1)
        self.history, self.quarantined = History(), QuarantineList(self.quarantine)
        self._lineage = Lineage()
        algorithm = self.algorithm = read_method("Simulation", self.algorithm)
        check_task("Simulation", self.task)
        check_local("Simulation", self.local)
        # A private round may be empty: sampling is accounted as it is drawn.
        empty, separation = algorithm.release.private, algorithm.release.separation
        self.participation = Participation(
            self.task, self.cohort, self.probability, self.availability, self.sampling, empty, separation
        )
        check_cohort(algorithm.selection, self.participation.fixed)
        algorithm.schedule.check(self.participation.fixed)
        self.local.check_population(self.task.population)
        self.device = resolve(self.device)
        depth = self.depth * self._visits
        self.job = Job(**{**{one.name: getattr(self, one.name) for one in fields(Job)}, "depth": depth})
        if algorithm.release.private:
            server.check_private(algorithm, self.local, bind(self.task.model()), self.setting.expected)
        check_examples(algorithm, self.local, self.task.model())
        self.scheduler  # noqa: B018  raises if it cannot work
        self._backend: Backend = InProcess() if self.backend is None else self.backend
        secure = self.secure = read_secure(self.secure)
        if secure is not None or algorithm.release.least:
            elsewhere = "" if isinstance(self._backend, InProcess) else type(self._backend).__name__
            model, fixed = bind(self.task.model()), self.participation.fixed
            check_secure(secure, algorithm, self.local, model, fixed, elsewhere)
        self._backend.open(self.job)

    def __repr__(self) -> str:
        where = "" if self.backend is None else f", {type(self.backend).__name__}"
        done = f", {len(self.history)} rounds done" if len(self.history) else ""
        return f"Simulation({self.algorithm}, {self.task}, {self.local}{where}{done})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close the backend: end the workers it started."""
        self._backend.close()

    @cached_property
    def setting(self) -> Setting:
        """What all rounds have in common, for the server's hooks."""
        return replace(self.job.setting, expected=self.participation.expected)

    @cached_property
    def scheduler(self) -> Scheduler:
        """Plans the rounds in virtual time."""
        schedule, durations = self.job.algorithm.schedule, self.durations
        cohort = self.participation.expected
        if durations is None and not schedule.overlaps and schedule.in_flight(cohort) > schedule.enough(cohort):
            raise ValueError(f'{schedule!r} cancels the slowest clients: give durations=, for example "exponential(1)"')
        durations = 1.0 if durations is None and schedule.overlaps else durations
        clock = None if durations is None else Clock(durations, self.seed, self.task, self.local)
        if clock is not None and clock.presence is not None and self.local.example_clip is not None:
            raise ValueError(
                "example_clip: who takes part is accounted in advance; give durations without availability"
            )
        return Scheduler(schedule, self.participation, clock, self.seed)

    @property
    def _visits(self) -> int:
        """How many states of one client a round may store."""
        schedule = read_method("Simulation", self.algorithm).schedule
        return schedule.visits(self.participation.expected)

    @cached_property
    def place(self) -> Place:
        """Where this process evaluates models."""
        return place_of(self.device, self.resident)

    @property
    def worker(self) -> Worker:
        """A worker in this process that can read the clients' states."""
        return self._backend.worker

    def start(self) -> ServerState:
        """The server's state before round 0."""
        return self._lineage.begin(server.open_run(self.job.algorithm, bind(self.task.model())))

    def run(
        self,
        rounds: int,
        state: ServerState | None = None,
        *,
        progress: bool = False,
        evaluate: Evaluate | None = None,
        every: int = 1,
    ) -> ServerState:
        """Train for some rounds, from the start or from a state.

        Args:
            rounds: how many.
            state: the state to resume from; None starts anew.
            progress: show a bar, on a terminal and in a notebook, or lines in a log.
            evaluate: a function of the global model that returns a number or numbers by name, which become columns of
                `history`; or a number: every so many rounds the task's own test.
            every: how many rounds lie between two evaluations with a function; the last round is always evaluated.
        """
        rounds = whole_number("rounds", rounds, what="the rounds to add")
        last = self.start() if state is None else self._form.check(state)
        test = Evaluator(self.task, evaluate, every)
        with Progress(rounds, progress) as shown:
            for done, (last, _) in enumerate(self.rounds(rounds, last), 1):  # noqa: B020  the last one is the result
                if test.due(last.round, done == rounds):
                    with use_threads(self._threads):
                        self.history.extend(test(self.module(last)))
                if progress:
                    shown.update(
                        done, "  ".join(f"{k} {short_text(x)}" for k, x in list(self.history.last().items())[:3])
                    )
        return last

    def rounds(self, rounds: int, state: ServerState | None = None) -> Iterator[tuple[ServerState, Record]]:
        """Train for some rounds and yield the state and a record after each."""
        rounds = whole_number("rounds", rounds, what="the rounds to add")
        state = self.start() if state is None else self._form.check(state)
        self.local.check_rates(state.round, rounds)
        self.history.rewind(state.round)
        for _ in range(rounds):
            begun = perf_counter()
            state, record = self.round(state)
            seconds = round(perf_counter() - begun, 4)
            self.history.append({**record.row(self.local.rate(record.round)), "seconds": seconds})
            yield state, record

    def round(
        self, state: ServerState, clients: Sequence[int] | None = None, *, trace: Mapping[str, Any] | None = None
    ) -> tuple[ServerState, Record]:
        """Run one round.

        Args:
            state: the state before it.
            clients: the clients of the round; None selects them.
            trace: the round's row of a trace of arrivals, which has the clients: see `arrival_row`; None plans it.
        """
        with use_threads(self._threads):
            return self._round(state, clients, trace)

    def _round(
        self, state: ServerState, clients: Sequence[int] | None, trace: Mapping[str, Any] | None
    ) -> tuple[ServerState, Record]:
        """`round`, with the threads that torch has."""
        broadcast = server.send(self.job.algorithm, self._form.check(state), self.setting)
        if trace is None:
            first = self._first(state, broadcast, clients)
            plan = self.scheduler.plan(state.round, state.flight, first.clients, first.away)
        else:
            first, plan = _First(None), replayed_plan(trace, state.flight)
        self._lineage.check(state, [task.client for task in plan.arrived])
        tell("round %d, %d clients", state.round + 1, len(plan.arrived))
        outcome = self._train_plan(plan, state, broadcast)
        partial, reported = outcome.partial, Reported()
        given_up = {task.client: _CANCELLED for task in plan.cancelled} | {
            task.client: _DROPPED for task in plan.dropped
        }
        partial.absent |= {**first.absent, **given_up}
        partial.rejections += plan.late(state.round)
        after = self._step(state, outcome.versions, reported, partial.total)
        if self.scheduler.clock is not None:
            accepted = Overlay.of(after.accepted).updated(outcome.accepted)
            after = replace(after, accepted=accepted, flight=plan.flight(outcome.sent))
        quarantined = self.quarantined.take(state.round, partial.rejections)
        record = Record.of(
            state.round,
            partial,
            reported,
            asked=len(first.candidates.difference(first.clients or ())),
            quarantined=quarantined,
            plan=None if self.scheduler.clock is None else plan,
            outcomes=outcome.tasks,
        )
        self._lineage.record(state, after, outcome.visits, record.clients)
        return after, record

    def _first(self, state: ServerState, broadcast: Broadcast, clients: Sequence[int] | None) -> "_First":
        """Who begins with a round, or cannot.

        Args:
            state: the state before it.
            broadcast: what the server sends in it.
            clients: the clients that are given; None selects them, or leaves them to the schedule.
        """
        free = not self.job.algorithm.fills("schedule")
        if clients is not None:
            if not free:
                raise ValueError(f"round: {self.job.algorithm.schedule!r} draws its clients; leave clients out")
            return _First(check_clients(self.task, clients))
        held, candidates = self.quarantined.out(state.round), set[int]()
        if not free:
            return _First(None, away=held)
        selected = self.select(state, broadcast, candidates)
        absent = {client: str(held[client]) for client in selected if client in held}
        begin = [client for client in selected if client not in held]
        return _First(begin, absent=absent, candidates=frozenset(candidates))

    def _train_plan(self, plan: StepPlan, state: ServerState, broadcast: Broadcast) -> StepUploads:
        """Train the tasks whose uploads make a step; those of one list of groups at the same time.

        Args:
            plan: what arrives.
            state: the state before the round.
            broadcast: what the server sends in it.
        """
        if not self.job.algorithm.schedule.overlaps:
            tasks = {task.client: task.number for task, *_ in plan.numbered(state.round, 1)}
            partial = self.collect(broadcast, sorted(tasks, key=tasks.__getitem__), state.accepted)
            visits, ended = dict.fromkeys(tasks, state.round), outcomes(partial, tasks, state.round)
            sent = sent_versions(state, broadcast)
            return StepUploads(partial, [(broadcast, partial.total)], sent, visits, tasks=ended)

        def train(groups: Sequence[VersionGroup], known: Mapping[int, int]) -> Sequence[Partial]:
            return self._backend.collect(groups, known, len(plan.arrived))

        out = collect_uploads(plan, state, broadcast, self.job.algorithm, self.local, self._visits, train)
        whole = out.partial
        check_failures(len(whole.visits), whole.rejections, whole.absent, self.failures, whole.cause)
        return out

    def collect(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients of a round on the backend, sum their uploads and apply the failure policy."""
        if not clients:  # no client is available
            return Partial(Total(self.job.algorithm, self.local, broadcast.round, broadcast.parts))
        partial = self._sum_uploads(broadcast, clients, accepted)
        check_failures(len(partial.visits), partial.rejections, partial.absent, self.failures, partial.cause)
        return partial

    def _sum_uploads(self, broadcast: Broadcast, clients: Sequence[int], accepted: Mapping[int, int]) -> Partial:
        """Train the clients of a round, one at least, and sum their uploads, under secure sums if those are set."""
        if isinstance(self.secure, Secure):
            from undrift.engine.round.secure_round import collect_secure

            return collect_secure(self.worker, broadcast, clients, accepted, self.secure)
        return self._backend.collect([VersionGroup(broadcast, clients)], accepted, len(clients))[0]

    def close(
        self,
        state: ServerState,
        broadcast: Broadcast,
        total: Total,
        reported: Reported | None = None,
    ) -> ServerState:
        """End a round: the server step from the sum of its uploads; what blocks report goes to `reported`."""
        return self._step(state, [(broadcast, total)], reported)

    def _step(
        self,
        state: ServerState,
        versions: Sequence[tuple[Broadcast, Total]],
        reported: Reported | None,
        whole: Total | None = None,
    ) -> ServerState:
        """The server step; the first of the versions is the current model, `whole` the sum over all of them."""
        proxy = self._proxy_samples(versions[0][0]) if self.job.algorithm.needs.proxy else None
        return server.close(self.job.algorithm, state, self.setting, versions, proxy, reported, self.bound, whole)

    @cached_property
    def _releases(self) -> ExampleReleases:
        """Counts the noisy sums that clients' examples are in."""
        return ExampleReleases(self.job.algorithm, self.task, self.local, self.seed, cache(self.sample))

    @cached_property
    def _threads(self) -> int | None:
        """How many threads torch uses in this process; None leaves their number as it is."""
        if self.threads is None and self.device == "cpu":
            self.threads = choose_threads(self._form.sizes["params"])
        return self.threads

    @cached_property
    def _form(self) -> StateForm:
        """What a state must have in common with this model and this method."""
        return StateForm.of(self.job.algorithm, bind(self.task.model()))

    def _proxy_samples(self, broadcast: Broadcast) -> Samples:
        """The task's proxy data, with the losses and gradients of a model that has the broadcast statistics."""
        job, task, place, model = self.job, self.task, self.place, self._proxy_model
        if not isinstance(task, HasProxy):
            raise TypeError(
                f"aggregation={type(job.algorithm.aggregation).__name__} needs proxy data at the server: "
                f"give the task a method proxy(); {type(task).__name__} has none"
            )
        random = partial(generator, job.seed, broadcast.round, -1)
        model.restore(broadcast.buffers, broadcast.counts)
        oracle = Oracle(model, partial(task.loss, model.module), random)
        return Samples(random=random, _oracle=oracle, _epoch=lambda _: place.ahead(task.proxy()))

    @cached_property
    def _proxy_model(self) -> Bound:
        """The server's own model, for proxy data."""
        return bind(self.place.to(to_train(self.task.model())))

    def personal(self, state: ServerState, client: int) -> nn.Module:
        """The model a client is evaluated with, in evaluation mode: the worker's, valid until that is used again."""
        self._lineage.check(self._form.check(state), [number := check_client(self.task, client)])
        return self.worker.personal(number, state)

    def scores(self, state: ServerState, clients: Sequence[int], score: Score) -> dict[int, float]:
        """Every client's score with its personal model, computed where clients are trained; nan if its state is lost.

        Args:
            state: the server's.
            clients: the clients.
            score: a function of the task, the model and the client that other processes can import.
        """
        chosen = check_clients(self.task, clients, once=False)
        self._lineage.check(self._form.check(state), chosen)
        with use_threads(self._threads):
            return self._backend.scores(state, chosen, score)

    def sample(self, round: int) -> list[int]:
        """The clients of a round as they are drawn at random, without the method's selection, if all are there."""
        return self.participation.sample(self.seed, round)

    def select(self, state: ServerState, broadcast: Broadcast, evaluated: set[int] | None = None) -> list[int]:
        """The clients of a round, sorted, as the method selects them.

        Args:
            state: the state before the round.
            broadcast: what the server sends in it.
            evaluated: a set to which the clients are added whose losses the method requested.
        """
        there = VirtualArrivals(self.scheduler.clock, state.flight).there
        drawn = self.participation if there is None else self.participation.among(there)
        if not self.job.algorithm.fills("selection"):
            return drawn.sample(self.seed, state.round)

        def losses(clients: Sequence[int], batches: int | None) -> Mapping[int, float]:
            tell("round %d, losses of %d candidates", state.round + 1, len(clients))
            (set() if evaluated is None else evaluated).update(clients)
            there = [client for client in clients if client not in self.quarantined.withdrawn]
            found = self._backend.losses(broadcast, there, state.accepted, batches) if there else {}
            return {client: found.get(client, 0.0) for client in clients}  # who has left is not evaluated

        candidates = Candidates(state.round, self.seed, drawn, losses)
        return select_cohort(self.job.algorithm.selection, candidates)

    def privacy(self, rounds: int, delta: float | None = None) -> Statement | None:
        """What the run guarantees its clients, or each example, after some rounds; None if it guarantees nothing.

        Args:
            rounds: how many.
            delta: the delta; None is population^-1.1: see `privacy.statement` and `privacy.examples`.
        """
        if self.local.example_clip is not None:
            return example_statement(self._releases, rounds, delta)
        there = VirtualArrivals(self.scheduler.clock, None).there
        drawn = self.participation if there is None else self.participation.among(there)
        return statement(self.job.algorithm, drawn, rounds, delta)

    def module(self, state: ServerState) -> nn.Module:
        """A new model with a state's weights on the simulation's device, ready to evaluate."""
        bound = bind(self.place.to(self.task.model().eval()))
        bound.load(state.params, state.buffers, state.counts)
        return bound.module


class _First(NamedTuple):
    """Who begins with a round: the clients, or None if the schedule draws them without those that are away."""

    clients: list[int] | None
    away: Collection[int] = ()
    absent: Mapping[int, str] = {}
    candidates: frozenset[int] = frozenset()
