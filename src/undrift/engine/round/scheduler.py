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
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol

import torch

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
    """

    arrived: tuple[TaskInFlight, ...]
    stale: tuple[TaskInFlight, ...]
    cancelled: tuple[TaskInFlight, ...]
    flying: tuple[TaskInFlight, ...]
    time: int
    started: int
    dropped: tuple[TaskInFlight, ...] = ()
    keys: Mapping[int, int] | None = None

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
        needed = sorted({task.version for task in self.flying})
        tasks = torch.tensor(self.flying, dtype=torch.int64).reshape(len(self.flying), len(TaskInFlight._fields))
        return Flight(self.time, self.started, tasks, {version: sent[version] for version in needed})


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


class VirtualArrivals:
    """Tasks that end by the clock, in virtual time; the uploads of all that are not dropped count.

    If nothing is under way, it waits until a client is there.

    Args:
        clock: how long tasks take; None takes no time.
        flight: what is under way; None if nothing is.
    """

    keys = None

    def __init__(self, clock: Clock | None, flight: Flight | None) -> None:
        self.clock, self.time = clock, 0 if flight is None else flight.time
        self._presence = None if clock is None else clock.presence
        self._heap = [(task.end, self._drops(task), task.number, task) for task in tasks_of(flight)]
        heapify(self._heap)
        self._joins = 0
        if self._presence is not None and not self._heap:
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
        if self._heap and self._heap[0][0] <= joins:
            return False
        self.time, self._joins = joins, self._joins + 1
        return True

    def begin(self, number: int, client: int, version: int, turn: int) -> TaskInFlight:
        """Put a task into the heap."""
        end = self.time + (0 if self.clock is None else self.clock.nanoseconds(number, client, version))
        leave = None if self._presence is None else self._presence.leave(client, self.time)
        drops = leave is not None and leave < end
        task = TaskInFlight(number, client, version, turn, self.time, leave if leave is not None and drops else end)
        heappush(self._heap, (task.end, drops, task.number, task))
        self._joins = 0
        return task

    def _drops(self, task: TaskInFlight) -> bool:
        """Whether a task in flight ends because its client leaves: then before its time."""
        if self._presence is None or self.clock is None:
            return False
        return task.end - task.begun < self.clock.nanoseconds(task.number, task.client, task.version)

    def next(self) -> tuple[TaskInFlight, bool] | None:
        """The earliest task."""
        if not self._heap:
            return None
        self.time, drops, _, task = heappop(self._heap)
        return task, not drops

    def accept(self, task: TaskInFlight, age: int) -> bool:
        """True: what becomes of an upload is known once it is trained."""
        return True


def tasks_of(flight: Flight | None) -> list[TaskInFlight]:
    """The tasks in flight, in the order in which they began.

    Args:
        flight: what is under way; None if nothing is.
    """
    return [] if flight is None else [TaskInFlight(*row) for row in flight.tasks.tolist()]


@dataclass(frozen=True)
class Scheduler:
    """Plans the steps of a run.

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
        schedule, drawn = self.schedule, self.participation
        source = VirtualArrivals(self.clock, flight) if source is None else source
        flying, started = {task.number: task for task in tasks_of(flight)}, 0 if flight is None else flight.started
        busy, turns = {*away, *(task.client for task in flying.values())}, Counter[int]()

        def begin(clients: Sequence[int]) -> None:
            nonlocal started
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
        counted, enough = 0, schedule.enough(size)
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
            late = schedule.oldest is not None and age > schedule.oldest
            (stale if replied and late else arrived if replied else lost).append(task)
            counts = replied and not late and source.accept(task, age)
            counted += counts
            if counts or (replied and late) or there:  # one that fails begins again after the step at the earliest
                busy.discard(task.client)
            if schedule.refills and counted < enough and not there:
                begin(drawn.draw(self.seed, round, 1, busy, started))
        left, gone = tuple(flying.values()), tuple(lost)
        cancelled, still = ((), left) if schedule.overlaps else (left, ())
        cancelled, dropped = (cancelled, gone) if source.there else (cancelled + gone, ())
        return StepPlan(tuple(arrived), tuple(stale), cancelled, still, source.time, started, dropped, keys=source.keys)
