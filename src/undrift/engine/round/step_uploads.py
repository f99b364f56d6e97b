"""The uploads of a step under a schedule without a barrier: one sum for each model that some of them started from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import Broadcast, Local, ServerState
from undrift.core.server import step as server
from undrift.core.server.total import Total, add_versions
from undrift.engine.round.arrivals import TaskOutcome, outcomes
from undrift.engine.round.scheduler import StepPlan
from undrift.engine.worker.job import VersionGroup
from undrift.engine.worker.partial_sum import Partial

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
    return {state.round: broadcast, **({} if state.flight is None else state.flight.sent)}


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
    out = StepUploads(Partial(Total(algorithm, local, state.round)), [], sent, {})
    out.versions.append((broadcast, out.partial.total))
    known, remembers = state.accepted, server.remembers(algorithm, local)
    numbers = {(task.client, key): task.number for task, _, key in plan.numbered(state.round, visits)}
    for groups in plan.groups(sent, state.round, visits):
        for group, part in zip(groups, collect(groups, known), strict=True):
            number = group.timing.key or 0
            out.versions.append((group.broadcast, part.total))
            out.visits.update(dict.fromkeys(group.clients, number))
            out.accepted.update({visit.client: number for visit in part.visits} if remembers else {})
            out.tasks.update(outcomes(part, {one: numbers[one, number] for one in group.clients}, number))
            out.partial.merge(part)
        known = {**state.accepted, **out.accepted}
    out.partial.total = add_versions([total for _, total in out.versions])
    return out
