"""What happens between two steps of the server: who begins, who arrives, in virtual time.

A task is one client's training from one model. Tasks in flight wait in a heap by the time at which they end; the
earliest arrives first, equal times in the order in which tasks began. Nothing here depends on what clients compute: the
plan of a step follows from the schedule, the seed and the durations alone. So a step's tasks are trained when the
server needs them, together and in any order, and a resumed run makes the same plans.

Where a file has when clients are there, a client begins only while it is. Its task ends without an upload if it leaves
before; at equal times uploads arrive first, then clients leave, then others join and begin.

On real nodes the same scheduler takes arrivals from another source, which sends the tasks and waits for replies.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

from undrift.core.local.presence import PresentNow
from undrift.core.method.schedule import Synchronous
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import Broadcast, Flight
from undrift.core.tasks.durations import SECOND, Clock
from undrift.core.tasks.participation import Participation
from undrift.engine.worker.job import Timing, VersionGroup


class TaskInFlight(NamedTuple):
    """One client's training from one model.

    Args:
        number: of the task in the run, from 0.
        client: who trains.
        version: the round of the model that it starts from.
        turn: how many tasks from the same model the client began before.
        begun: when it begins, in nanoseconds.
        end: when its upload arrives; 0 on real nodes, until it has.
    """

    number: int
    client: int
    version: int
    turn: int
    begun: int
    end: int


class StepPlan(NamedTuple):
    """What happens up to the next step of the server.

    Args:
        arrived: the tasks whose uploads make the step, in the order of arrival.
        stale: tasks that arrived too late to be trained at all.
        cancelled: tasks that are given up because the step has enough, or because a node is gone.
        flying: the tasks that are in flight after the step, in the order in which they began.
        time: of the step, in nanoseconds.
        started: how many tasks have begun so far.
        dropped: the tasks whose clients left before they had ended.
        keys: of a step that has happened already, on real nodes or in a trace, the number under which the state of
            each accepted task is stored; the other tasks that arrived have no upload.
        gone: the versions from which the last task in flight has ended in this step, or none began; None if they were
            not counted.
    """

    arrived: tuple[TaskInFlight, ...]
    stale: tuple[TaskInFlight, ...]
    cancelled: tuple[TaskInFlight, ...]
    flying: tuple[TaskInFlight, ...]
    time: int
    started: int
    dropped: tuple[TaskInFlight, ...] = ()
    keys: Mapping[int, int] | None = None
    gone: Collection[int] | None = None

    def numbered(self, round: int, visits: int) -> list[tuple[TaskInFlight, int, int]]:
        """The tasks to train for the step, each with how often its client arrived before, and the number of its state.

        Args:
            round: of the step.
            visits: how often one client may arrive in a step, at most.
        """
        seen, found = Counter[int](), list[tuple[TaskInFlight, int, int]]()
        for task in self.arrived:
            if self.keys is None or task.number in self.keys:
                wave = seen[task.client]
                key = round * visits + wave if self.keys is None else self.keys[task.number]
                found.append((task, wave, key))
                seen[task.client] += 1
        return found

    def groups(self, sent: Mapping[int, Broadcast], round: int, visits: int) -> list[list[VersionGroup]]:
        """The tasks to train for the step, one list after the other: no client is in a list twice.

        Args:
            sent: what was sent in each round from which a task started.
            round: of the step.
            visits: how often one client may arrive in a step, at most.
        """
        found = dict[tuple[int, int, int, int], list[TaskInFlight]]()
        for task, wave, key in self.numbered(round, visits):
            found.setdefault((wave, task.version, task.turn, key), []).append(task)
        waves: list[list[VersionGroup]] = [[] for _ in range(1 + max((wave for wave, *_ in found), default=-1))]
        for (wave, version, turn, key), tasks in sorted(found.items()):
            timing = Timing(round - version, turn, key)
            waves[wave].append(VersionGroup(sent[version], [task.client for task in sorted(tasks)], timing))
        return waves

    def late(self, round: int) -> list[Rejection]:
        """The rejections of stale uploads, each with its age.

        Args:
            round: of the step.
        """
        return [Rejection(task.client, Reason.STALE, f"age {round - task.version}") for task in self.stale]

    def row(self, round: int) -> dict[str, float]:
        """The numbers of the step: virtual seconds, ages of the uploads, tasks in flight.

        Args:
            round: of the step.
        """
        ages = [round - task.version for task in self.arrived]
        row: dict[str, float] = {"virtual_seconds": self.time / SECOND, "in_flight": len(self.flying)}
        return row | ({"age": sum(ages) / len(ages), "age_max": max(ages)} if ages else {})

    def flight(self, sent: Mapping[int, Broadcast]) -> Flight:
        """What is under way after the step, with what was sent in each round from which a task in flight started."""
        kept = dict(sent)
        for version in kept.keys() - {x.version for x in self.flying} if self.gone is None else self.gone:
            del kept[version]
        return Flight(self.time, self.started, self.flying, kept)


class Arrivals(Protocol):
    """Where tasks go when they begin, and where they come from when they end, up to one step of the server."""

    @property
    def time(self) -> int:
        """Now, in nanoseconds since the start of the run."""

    @property
    def keys(self) -> Mapping[int, int] | None:
        """The `keys` of the plan."""

    @property
    def there(self) -> PresentNow | None:
        """Who is there now; None if all are, always, or if that is not known."""

    def join(self) -> bool:
        """Wait for a client that joins before the next task ends; whether one did."""

    def begin(self, number: int, client: int, version: int, turn: int) -> TaskInFlight:
        """Let a client begin a task now: see `TaskInFlight` for the arguments."""

    def next(self) -> tuple[TaskInFlight, bool] | None:
        """The next task that ends, and whether it arrived; None if none does before the step."""

    def accept(self, task: TaskInFlight, age: int) -> bool:
        """Whether the upload of a task that has just arrived counts.

        Args:
            task: the task.
            age: how many steps the server has made since the task began.
        """


Heap: TypeAlias = list[tuple[int, bool, int, TaskInFlight]]
"""The tasks in flight by the time at which they end, whether their clients leave then, and their numbers."""


class VirtualArrivals:
    """Tasks that end by the clock, in virtual time; the uploads of all that are not dropped count.

    If nothing is under way, it waits until a client is there.

    Args:
        clock: how long tasks take; None takes no time.
        flight: what is under way; None if nothing is.
        heap: its tasks as an earlier source of this clock has left them; None makes it.
    """

    keys = None

    def __init__(self, clock: Clock | None, flight: Flight | None, heap: Heap | None = None) -> None:
        self.clock, self.time = clock, 0 if flight is None else flight.time
        self._presence = None if clock is None else clock.presence
        self.heap = [(x.end, self._drops(x), x.number, x) for x in tasks_of(flight)] if heap is None else heap
        if heap is None:
            heapify(self.heap)
        self._joins = 0
        if self._presence is not None and not self.heap:
            self.time = self._presence.opening(self.time)

    @property
    def there(self) -> PresentNow | None:
        """By the clock."""
        return None if self._presence is None else PresentNow(self._presence, self.time)

    def join(self) -> bool:
        """By the clock; not if nothing is under way and none of those who join can begin."""
        joins = None if self._presence is None else self._presence.next_join(self.time)
        if self._presence is None or joins is None or self._joins > self._presence.count:
            return False
        if self.heap and self.heap[0][0] <= joins:
            return False
        self.time, self._joins = joins, self._joins + 1
        return True

    def begin(self, number: int, client: int, version: int, turn: int) -> TaskInFlight:
        """Put a task into the heap."""
        end = self.time + (0 if self.clock is None else self.clock.nanoseconds(number, client, version))
        leave = None if self._presence is None else self._presence.leave(client, self.time)
        drops = leave is not None and leave < end
        task = TaskInFlight(number, client, version, turn, self.time, leave if leave is not None and drops else end)
        heappush(self.heap, (task.end, drops, task.number, task))
        self._joins = 0
        return task

    def _drops(self, task: TaskInFlight) -> bool:
        """Whether a task in flight ends because its client leaves: then before its time."""
        if self._presence is None or self.clock is None:
            return False
        return task.end - task.begun < self.clock.nanoseconds(task.number, task.client, task.version)

    def next(self) -> tuple[TaskInFlight, bool] | None:
        """The earliest task."""
        if not self.heap:
            return None
        self.time, drops, _, task = heappop(self.heap)
        return task, not drops

    def accept(self, task: TaskInFlight, age: int) -> bool:
        """True: what becomes of an upload is known once it is trained."""
        return True


def tasks_of(flight: Flight | None) -> list[TaskInFlight]:
    """The tasks in flight, in the order in which they began.

    Args:
        flight: what is under way; None if nothing is.
    """
    return [] if flight is None else list(map(TaskInFlight._make, flight.rows))


class _Underway(NamedTuple):
    """The tasks in flight after a step, as the plan of the next one changes them.

    Args:
        rows: the tasks in the order in which they began, as the step's state has them.
        flying: by their numbers, in the same order.
        busy: their clients.
        versions: how many of them start from each model.
        heap: by the time at which they end; None makes it.
    """

    rows: tuple[tuple[int, ...], ...]
    flying: dict[int, TaskInFlight]
    busy: set[int]
    versions: Counter[int]
    heap: Heap | None

    @classmethod
    def of(cls, flight: Flight | None) -> Self:
        """As a state has them.

        Args:
            flight: what is under way; None if nothing is.
        """
        tasks = tasks_of(flight)
        versions = Counter(task.version for task in tasks)
        return cls((), {task.number: task for task in tasks}, {task.client for task in tasks}, versions, None)


@dataclass(frozen=True)
class Scheduler:
    """Plans the steps of a run.

    A step that follows the last one planned continues with the tasks as that one left them, so that its time does not
    grow with their number; from any other state they are read anew.

    Args:
        schedule: the method's.
        participation: who can begin, and how they are drawn.
        clock: how long tasks take; None takes no time.
        seed: the run's seed.
    """

    schedule: Synchronous[Any, Any, Any, Any, Any]
    participation: Participation
    clock: Clock | None
    seed: int
    _last: list[_Underway] = field(default_factory=list, init=False, repr=False, compare=False)

    def plan(
        self,
        round: int,
        flight: Flight | None,
        cohort: Sequence[int] | None = None,
        away: Collection[int] = (),
        source: Arrivals | None = None,
    ) -> StepPlan:
        """What happens up to the step of a round.

        Args:
            round: the round.
            flight: what is under way before it; None if nothing is.
            cohort: the clients that begin with the round; None draws them.
            away: clients that cannot begin.
            source: where tasks go and come from; None is virtual time.
        """
        schedule, drawn, turns = self.schedule, self.participation, Counter[int]()
        _, flying, busy, versions, heap = self._read(flight)
        source = VirtualArrivals(self.clock, flight, heap) if source is None else source
        started, held = 0 if flight is None else flight.started, set(away) - busy
        busy |= held  # clients without a task in flight that cannot begin

        def begin(clients: Sequence[int]) -> None:
            nonlocal started
            versions[round] += len(clients)
            for client in clients:
                flying[started] = source.begin(started, client, round, turns[client])
                busy.add(client)
                turns[client] += 1
                started += 1

        size = (drawn.fixed or 0) if cohort is None else len(cohort)
        wanted = schedule.in_flight(size)
        if cohort is None:
            cohort = drawn.draw(self.seed, round, max(0, wanted - len(flying)), busy, there=source.there)
        begin(cohort)
        arrived, stale, lost = list[TaskInFlight](), list[TaskInFlight](), list[TaskInFlight]()
        counted, enough, ended = 0, schedule.enough(size), {round}
        while counted < enough:
            there = source.there
            if there and schedule.overlaps and (schedule.refills or not flying) and len(flying) < wanted:
                begin(drawn.draw(self.seed, round, wanted - len(flying), busy, started, there))
                if len(flying) < wanted and source.join():
                    continue
            if (found := source.next()) is None:
                break
            task, replied = found
            age = round - flying.pop(task.number).version
            versions[task.version] -= 1
            ended.add(task.version)
            late = schedule.oldest is not None and age > schedule.oldest
            (stale if replied and late else arrived if replied else lost).append(task)
            counts = replied and not late and source.accept(task, age)
            counted += counts
            if task.client not in away and (counts or (replied and late) or there):  # who fails waits for the next step
                busy.discard(task.client)
            else:
                held.add(task.client)
            if schedule.refills and counted < enough and not there:
                begin(drawn.draw(self.seed, round, 1, busy, started))
        left, gone = tuple(flying.values()), tuple(lost)
        cancelled, still = ((), left) if schedule.overlaps else (left, ())
        over = {version for version in ended if not versions[version]}
        for version in over:
            del versions[version]
        if still and isinstance(source, VirtualArrivals):
            busy -= held
            self._last[:] = [_Underway(still, flying, busy, versions, source.heap)]
        cancelled, dropped = (cancelled, gone) if source.there else (cancelled + gone, ())
        ends = (tuple(arrived), tuple(stale), cancelled)
        return StepPlan(*ends, still, source.time, started, dropped, source.keys, over if still else None)

    def _read(self, flight: Flight | None) -> _Underway:
        """The tasks in flight, for the plan to change."""
        last = self._last.pop() if self._last else None
        return last if last and flight and last.rows is flight.rows else _Underway.of(flight)
