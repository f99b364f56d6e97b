"""The trace of arrivals: who began from which model, what arrived when and what became of it; and its replay.

A run with a clock writes one row per step of the server, from which the step can be made again anywhere that has the
clients' data: the tasks of a step and the models that they started from determine its bits, not the machine, the number
of workers or the time that passed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from undrift.core.records.types import Flight, ServerState
from undrift.core.server.wire import fingerprint
from undrift.engine.round.scheduler import Arrivals, Scheduler, StepPlan, TaskInFlight, tasks_of
from undrift.engine.worker.partial_sum import Partial

ACCEPTED, STALE, CANCELLED = "accepted", "stale", "cancelled"
"""What may become of a task; a rejected one has the reason's name."""


class TaskOutcome(NamedTuple):
    """What became of a task that arrived.

    Args:
        result: "accepted", or the name of the reason of its rejection in small letters.
        state: the number under which the new state of its client is stored.
        examples: how many training examples its client has.
        gradients: how many gradients its training evaluated.
        weight: the weight of its upload in the mean.
    """

    result: str
    state: int
    examples: int = 0
    gradients: int = 0
    weight: float = 0.0


def outcomes(partial: Partial, tasks: Mapping[int, int], state: int) -> dict[int, TaskOutcome]:
    """What became of tasks, by their numbers.

    Args:
        partial: the result of their clients.
        tasks: client -> the number of its task.
        state: the number under which their new states are stored.
    """
    found = {tasks[one.client]: TaskOutcome(one.reason.name.lower(), state) for one in partial.rejections}
    for one in partial.visits:
        found[tasks[one.client]] = TaskOutcome(ACCEPTED, state, one.examples, one.gradients, one.weight)
    return found


def arrival_row(state: ServerState, plan: StepPlan, ended: Mapping[int, TaskOutcome]) -> dict[str, Any]:
    """The row of a step.

    Args:
        state: the state after it.
        plan: who began and arrived when.
        ended: what became of the tasks that arrived, by their numbers.
    """
    round = state.round - 1
    everyone = (*plan.arrived, *plan.stale, *plan.cancelled, *plan.flying)
    done = [(task, ended.get(task.number, TaskOutcome(CANCELLED, 0))) for task in plan.arrived]
    done += [(task, TaskOutcome(STALE, 0)) for task in plan.stale]
    done += [(task, TaskOutcome(CANCELLED, 0)) for task in plan.cancelled]
    return {
        "round": round + 1,
        "time": plan.time,
        "started": plan.started,
        "begun": [list(task) for task in sorted(everyone) if task.version == round],
        "arrivals": [
            {
                "task": task.number,
                "client": task.client,
                "version": task.version,
                "age": round - task.version,
                "begun": task.begun,
                "end": task.end,
                **outcome._asdict(),
            }
            for task, outcome in done
        ],
        "sha256": model_hash(state),
    }


def model_hash(state: ServerState) -> str:
    """The hash of a state without what is in flight: of the model and of all that the method keeps on the server."""
    return fingerprint(replace(state, flight=None))


@dataclass(frozen=True)
class ReplayedScheduler(Scheduler):
    """Plans the steps of a run as a trace has them.

    Args:
        rows: the trace: see `arrival_row`.
    """

    rows: Sequence[Mapping[str, Any]] = field(default=())

    def plan(
        self,
        round: int,
        flight: Flight | None,
        cohort: Sequence[int] | None = None,
        away: Collection[int] = (),
        source: Arrivals | None = None,
    ) -> StepPlan:
        """What happened up to the step of a round.

        Args:
            round: the round.
            flight: what is under way before it; None if nothing is.
            cohort: of no effect: the trace has who began.
            away: of no effect as well.
            source: of no effect as well.
        """
        row = self.rows[round]
        begun = (*tasks_of(flight), *(TaskInFlight(*one) for one in row["begun"]))
        open_tasks = {task.number: task for task in begun}
        kinds: dict[str, list[TaskInFlight]] = {STALE: [], CANCELLED: [], "arrived": []}
        keys = dict[int, int]()
        for one in row["arrivals"]:
            task = open_tasks.pop(one["task"])._replace(end=one["end"])
            kinds[one["result"] if one["result"] in kinds else "arrived"].append(task)
            if one["result"] == ACCEPTED:
                keys[task.number] = one["state"]
        arrived, stale, cancelled = (tuple(kinds[name]) for name in ("arrived", STALE, CANCELLED))
        flying = tuple(sorted(open_tasks.values()))
        return StepPlan(arrived, stale, cancelled, flying, row["time"], row["started"], keys)
