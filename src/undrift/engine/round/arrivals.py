"""The trace of arrivals: who began from which model, what arrived when and what became of it; and its replay.

A run with a clock writes one row per step of the server, from which the step can be made again anywhere that has the
clients' data: the tasks of a step and the models that they started from determine its bits, not the machine, the number
of workers or the time that passed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Broadcast, Flight, Local, ServerState
from undrift.core.server import step as server
from undrift.core.server.total import Total, add_versions
from undrift.core.server.wire import fingerprint
from undrift.engine.round.scheduler import StepPlan, TaskInFlight, tasks_of
from undrift.engine.worker.job import VersionGroup
from undrift.engine.worker.partial_sum import Partial
from undrift.util.overlay import Overlay

ACCEPTED, STALE, CANCELLED, DROPPED = "accepted", "stale", "cancelled", "dropped"
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
    everyone = (*plan.arrived, *plan.stale, *plan.cancelled, *plan.dropped, *plan.flying)
    done = [(task, ended.get(task.number, TaskOutcome(CANCELLED, 0))) for task in plan.arrived]
    done += [(task, TaskOutcome(STALE, 0)) for task in plan.stale]
    done += [(task, TaskOutcome(CANCELLED, 0)) for task in plan.cancelled]
    done += [(task, TaskOutcome(DROPPED, 0)) for task in plan.dropped]
    return {
        "round": round + 1,
        "time": plan.time,
        "started": plan.started,
        "begun": [list(task) for task in sorted(task for task in everyone if task.version == round)],
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


def replayed_plan(row: Mapping[str, Any], flight: Flight | None) -> StepPlan:
    """What happened up to a step that a trace has.

    Args:
        row: of the step: see `arrival_row`.
        flight: what is under way before it; None if nothing is.
    """
    begun = (*tasks_of(flight), *(TaskInFlight(*one) for one in row["begun"]))
    open_tasks = {task.number: task for task in begun}
    kinds: dict[str, list[TaskInFlight]] = {STALE: [], CANCELLED: [], DROPPED: [], "arrived": []}
    keys = dict[int, int]()
    for one in row["arrivals"]:
        task = open_tasks.pop(one["task"])._replace(end=one["end"])
        kinds[one["result"] if one["result"] in kinds else "arrived"].append(task)
        if one["result"] == ACCEPTED:
            keys[task.number] = one["state"]
    arrived, stale, cancelled, dropped = (tuple(kinds[name]) for name in ("arrived", STALE, CANCELLED, DROPPED))
    flying = tuple(sorted(open_tasks.values()))
    return StepPlan(arrived, stale, cancelled, flying, row["time"], row["started"], dropped, keys=keys)


Collect = Callable[[Sequence[VersionGroup], Mapping[int, int]], Sequence[Partial]]
"""Returns the sum of each group, from the groups and the last accepted state of each client."""


@dataclass(frozen=True, eq=False)
class StepUploads:
    """What the tasks of a step gave.

    Args:
        partial: the outcome of all clients.
        versions: what was sent and the sum of the uploads that started from it; the first is the current model.
        sent: what was sent in each round from which a task of the step, or one in flight, started.
        visits: client -> the number under which the state of its last task is stored.
        accepted: the same for clients whose uploads were accepted, if they have states.
        tasks: what became of each task that arrived.
    """

    partial: Partial
    versions: list[tuple[Broadcast, Total]]
    sent: Mapping[int, Broadcast]
    visits: dict[int, int]
    accepted: dict[int, int] = field(default_factory=dict)
    tasks: dict[int, TaskOutcome] = field(default_factory=dict)


def sent_versions(state: ServerState, broadcast: Broadcast) -> dict[int, Broadcast]:
    """What was sent in each round from which a task may have started.

    Args:
        state: the state before the step.
        broadcast: what is sent in its round.
    """
    return {**({} if state.flight is None else state.flight.sent), state.round: broadcast}


def collect_uploads(
    plan: StepPlan,
    state: ServerState,
    broadcast: Broadcast,
    algorithm: Algorithm,
    local: Local,
    visits: int,
    collect: Collect,
) -> StepUploads:
    """Collect the uploads of a step, those of one list of groups at the same time.

    Args:
        plan: what arrives.
        state: the state before the step.
        broadcast: what is sent in its round.
        algorithm: the method.
        local: the settings all clients share.
        visits: how often one client may arrive in a step, at most.
        collect: trains groups, or has trained them.
    """
    sent = sent_versions(state, broadcast)
    out = StepUploads(Partial(Total(algorithm, local, state.round, broadcast.parts)), [], sent, {})
    out.versions.append((broadcast, out.partial.total))
    known, remembers = Overlay.of(state.accepted), server.remembers(algorithm, local)
    numbers = {(task.client, key): task.number for task, _, key in plan.numbered(state.round, visits)}
    for groups in plan.groups(sent, state.round, visits):
        for group, part in zip(groups, collect(groups, known), strict=True):
            number = group.timing.key or 0
            out.versions.append((group.broadcast, part.total))
            out.visits.update(dict.fromkeys(group.clients, number))
            out.accepted.update({visit.client: number for visit in part.visits} if remembers else {})
            out.tasks.update(outcomes(part, {one: numbers[one, number] for one in group.clients}, number))
            out.partial.merge(part)
        known = known.updated(out.accepted)
    out.partial.total = add_versions([total for _, total in out.versions])
    return out
