"""Schedules in virtual time: their limits, what they may never do, and the same bits everywhere."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import pi, sqrt
from statistics import mean, stdev

import pytest
import torch

from undrift.blocks import Asynchronous, Buffered, OverSelected, PowerOfChoice, PrivateSum
from undrift.compose.build import make
from undrift.core.method.algorithm import Algorithm
from undrift.core.records.rejection import Reason
from undrift.core.records.types import Local, ServerState
from undrift.core.server.wire import WireError, fingerprint, flatten, from_bytes, restore, to_bytes
from undrift.core.tasks.durations import SECOND, Clock
from undrift.engine.round import scheduler
from undrift.engine.round.backend import InProcess
from undrift.engine.round.record import Record
from undrift.engine.round.scheduler import tasks_of
from undrift.engine.round.simulation import Simulation
from undrift.testing.projected import blobs
from undrift.testing.rounds import LOCAL
from undrift.testing.tasks import clinic

SPREAD = "log-normal(1, sd=1.5)"


def buffered(method: str, size: int = 3, durations: object = SPREAD, **others: object) -> Simulation:
    """A small run with a buffer, in which a client may arrive twice between two steps."""
    algorithm = replace(make(method), schedule=Buffered(size, **others))  # type: ignore[arg-type]
    return Simulation(algorithm, clinic(algorithm), LOCAL, cohort=5, seed=7, durations=durations)  # type: ignore[arg-type]


def plans(simulation: Simulation, rounds: int) -> list[Record]:
    """The records of some rounds."""
    return [record for _, record in simulation.rounds(rounds)]


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "feddyn", "fedcm", "krum", "fedavg + private-norms"])
def test_a_buffer_of_the_cohort_that_restarts_after_the_flush_is_synchronous(method: str) -> None:
    algorithm = make(method)
    plain = Simulation(algorithm, clinic(algorithm), LOCAL, cohort=5, seed=7).run(4)
    state = buffered(method, 5, restart="flush").run(4)
    assert state.flight is not None and state.flight.time > 0 and not len(state.flight.tasks)
    assert fingerprint(replace(state, flight=None)) == fingerprint(plain)


def test_over_selection_by_one_is_synchronous_and_by_more_cancels_the_slowest() -> None:
    task = blobs(range(3, 3 + 12))
    plain = Simulation("scaffold", task, LOCAL, cohort=4, seed=3).run(3)
    same = Simulation("scaffold + over-selected(1.0)", task, LOCAL, cohort=4, seed=3, durations=SPREAD).run(3)
    assert fingerprint(replace(same, flight=None)) == fingerprint(plain)
    for record in plans(Simulation("fedavg + over-selected(1.5)", task, LOCAL, cohort=4, durations=SPREAD), 3):
        assert record.plan is not None and len(record.visits) == 4 and len(record.absent) == 2
        assert max(task.end for task in record.plan.arrived) <= min(task.end for task in record.plan.cancelled)
        assert all("cancelled" in why for _, why in record.absent)


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("schedule", ["buffered(3)", "buffered(2, restart='flush')", "asynchronous"])
def test_no_age_is_negative_and_each_task_counts_once(schedule: str) -> None:
    records = plans(Simulation(f"scaffold + {schedule}", blobs(range(3, 3 + 6)), LOCAL, cohort=4, durations=SPREAD), 40)
    tasks = [task for record in records for task in record.plan.arrived]  # type: ignore[union-attr]
    assert len({task.number for task in tasks}) == len(tasks) == sum(len(record.visits) for record in records)
    size = {"buffered(3)": 3, "asynchronous": 1}.get(schedule, 2)
    assert {len(record.visits) for record in records} == {size}
    for record in records:
        assert record.plan is not None
        assert all(record.round - task.version >= 0 and task.begun < task.end for task in record.plan.arrived)
        flying = Counter(task.client for task in record.plan.flying)
        assert max(flying.values(), default=0) <= 1 and len(record.plan.flying) < 4 + 1
    assert max(record.row(0.1)["age_max"] for record in records) > 0
    times = [record.row(0.1)["virtual_seconds"] for record in records]
    assert times == sorted(times)


def test_a_client_that_arrives_twice_in_a_step_continues_from_its_own_state() -> None:
    records = plans(buffered("scaffold", 4, "log-normal(1, sd=2.5)"), 12)
    assert any(len({v.client for v in record.visits}) < len(record.visits) for record in records)
    turns = [task.turn for record in records for task in record.plan.arrived]  # type: ignore[union-attr]
    assert max(turns) > 0


def test_a_variate_is_the_mean_of_the_clients_whatever_arrives_when() -> None:
    simulation = buffered("scaffold", 4, "log-normal(1, sd=2.5)")
    state = simulation.run(12)
    kept = [simulation.worker.store.load(client, number) for client, number in state.accepted.items()]
    own = torch.stack([one.parts["drift"].c for one in kept]).sum(0) / simulation.task.population  # type: ignore[union-attr]
    assert torch.allclose(state.parts["drift"].c, own, atol=1e-5)  # type: ignore[union-attr]


def test_a_stale_upload_is_rejected_and_leaves_the_state_of_its_client() -> None:
    simulation = buffered("scaffold", 2, "log-normal(1, sd=2)", max_age=1)
    before, seen = simulation.start(), 0
    for _ in range(20):
        after, record = simulation.round(before)
        late = [rejection for rejection in record.rejections if rejection.reason is Reason.STALE]
        for rejection in late:
            seen += 1
            if rejection.client not in record.clients:
                assert after.accepted.get(rejection.client) == before.accepted.get(rejection.client)
        assert record.row(0.1).get("age_max", 0) <= 1
        before = after
    assert seen > 0


@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_a_run_resumes_from_any_step(method: str) -> None:
    whole = [state for state, _ in buffered(method).rounds(6)]
    assert any(state.flight is not None and len(state.flight.sent) > 1 for state in whole)
    simulation = buffered(method)
    state: ServerState | None = None
    for expected in whole:
        state, _ = next(iter(simulation.rounds(1, state)))
        data = to_bytes(state)
        state = from_bytes(ServerState, simulation.job.algorithm, data, len(state.params))
        assert fingerprint(state) == fingerprint(expected)


def test_a_damaged_flight_is_refused() -> None:
    simulation = buffered("fedavg")
    state = simulation.run(3)
    tensors = flatten(state)
    for name, value, message in (
        ("flight.tasks", torch.zeros(3), "rows of whole numbers"),
        ("flight.sent.x.params", state.params, "number of a round"),
        ("flight.started", torch.zeros(2), "expected one int"),
    ):
        with pytest.raises(WireError, match=message):
            restore(ServerState, simulation.job.algorithm, {**tensors, name: value}, len(state.params))


def test_clocks_that_differ_by_a_factor_give_the_same_run() -> None:
    one, other = buffered("scaffold"), buffered("scaffold", durations="log-normal(1000, sd=1.5)")
    first, second = one.run(8), other.run(8)
    assert torch.equal(first.params, second.params) and first.accepted == second.accepted
    assert first.flight is not None and second.flight is not None
    assert second.flight.time == pytest.approx(1000 * first.flight.time)


def test_states_on_disk_give_the_same_bits(tmp_path: object) -> None:
    algorithm = replace(make("scaffold"), schedule=Buffered(4))
    task = clinic(algorithm)
    memory = Simulation(algorithm, task, LOCAL, cohort=5, seed=7, durations=SPREAD).run(6)
    backend = InProcess(root=tmp_path)  # type: ignore[arg-type]
    disk = Simulation(algorithm, task, LOCAL, cohort=5, seed=7, durations=SPREAD, backend=backend, depth=2)
    killed = next(state for state, _ in disk.rounds(6) if state.round == 4)
    disk.run(2, killed)  # the steps after a checkpoint again, with the states that later ones have written
    assert fingerprint(disk.run(2, killed)) == fingerprint(memory)


@pytest.mark.sweep(every=4)
def test_tasks_in_flight_are_their_rate_times_their_duration() -> None:
    """Little's theorem, from the records alone: M is the number of tasks that begin per second times their length."""
    records = plans(buffered("fedavg", 5, "exponential(2)", concurrency=6), 120)
    tasks = [task for record in records[10:] for task in record.plan.arrived]  # type: ignore[union-attr]
    lengths = [(task.end - task.begun) / SECOND for task in tasks]
    span = (max(task.end for task in tasks) - min(task.end for task in tasks)) / SECOND
    error = 3 * stdev(lengths) / sqrt(len(lengths)) * len(tasks) / span
    assert abs(6 - mean(lengths) * len(tasks) / span) < error


def clock(durations: object, **local: object) -> Callable[[int, int], float]:
    """Seconds of a task of a client."""
    found = Clock(durations, 0, blobs(range(3, 3 + 6)), Local(lr=0.1, **local))  # type: ignore[arg-type]
    return lambda number, client: found.nanoseconds(number, client, 0) / SECOND


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        (2, 2.0),
        ("constant(0.5)", 0.5),
        ("uniform(1, 3)", 2.0),
        ("exponential(2)", 2.0),
        ("half-normal(2, least=1)", 1 + 2 * sqrt(2 / pi)),
        ("log-normal(1, sd=0.5)", 1.1331484530668263),
        pytest.param(lambda client, task: 0.25, 0.25, id="function"),
    ],
)
def test_durations_have_their_means(durations: object, expected: float) -> None:
    seconds = clock(durations)
    drawn = [seconds(number, 1) for number in range(4000)]
    assert mean(drawn) == pytest.approx(expected, abs=3 * stdev(drawn) / sqrt(4000) + 1e-9)


def test_durations_by_client_class_step_and_example() -> None:
    task, each = blobs(range(3, 3 + 6)), clock([1, 2, 3, 4, 5, 6])
    assert [each(0, client) for client in range(6)] == [1, 2, 3, 4, 5, 6]
    once = clock("exponential(1, once=True)")
    assert once(0, 3) == once(17, 3) != once(0, 4)
    found = {clock("constant(1, classes=(1, 4))")(0, client) for client in range(6)}
    assert found == {1.0, 4.0}
    assert clock("constant(0.1, per='example')")(0, 2) == pytest.approx(0.1 * task.examples(2))
    assert clock("constant(0.1, per='step')", steps=7)(0, 2) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        (0, "positive number of seconds"),
        ("exponential(-1)", "positive and finite"),
        ("uniform(3, 1)", "from a smaller to a larger"),
        ("gamma(1)", "no distribution is named"),
        ("constant(1, per='round')", "per must be|per"),
        ([1.0, 2.0], "give one per client"),
        ("math:pi", "must be a function"),
    ],
)
def test_durations_that_cannot_be_used(durations: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clock(durations)


def test_schedules_that_cannot_work_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"schedule=Buffered.*PowerOfChoice"):
        Algorithm(schedule=Buffered(), selection=PowerOfChoice())
    with pytest.raises(TypeError, match=r"schedule=OverSelected.*PowerOfChoice"):
        Algorithm(schedule=OverSelected(), selection=PowerOfChoice())
    private = replace(make("uniform"), release=PrivateSum(1.0, 1.0))
    for schedule in (Asynchronous(), OverSelected()):
        with pytest.raises(TypeError, match=r"accounted; leave"):
            replace(private, schedule=schedule)
    task = blobs(range(3, 3 + 6))
    with pytest.raises(ValueError, match=r"in flight as the buffer takes, got 4 and size=9"):
        Simulation("fedavg + buffered(9, restart='flush')", task, cohort=4)
    for text in ("buffered", "over-selected"):
        with pytest.raises(ValueError, match="cohort= instead of probability="):
            Simulation(f"fedavg + {text}", task, probability=0.5)
    with pytest.raises(ValueError, match="cancels the slowest clients: give durations="):
        Simulation("fedavg + over-selected", task, cohort=4)
    simulation = Simulation("fedavg + asynchronous", task, cohort=4)
    with pytest.raises(ValueError, match="draws its clients; leave clients out"):
        simulation.round(simulation.start(), [1, 2])
    with pytest.raises(ValueError, match=r"secure: schedule=Asynchronous.*several models"):
        Simulation("fedavg + asynchronous", task, cohort=4, secure=True)
    for bad in ({"size": 0}, {"restart": "never"}, {"max_age": -1}, {"concurrency": 0}):
        with pytest.raises((ValueError, TypeError), match="Buffered"):
            Buffered(**bad)


def test_who_begins_is_available_idle_and_drawn_by_weight() -> None:
    task = blobs(range(3, 3 + 8))
    away = {str(client): [[100, 200]] for client in (1, 2)}
    common = {"cohort": 3, "durations": "uniform(1, 2)"}
    for others in ({"availability": away}, {"sampling": [1.0, 0, 0, 1, 1, 1, 1, 1]}):
        records = plans(Simulation("fedavg + buffered(2)", task, LOCAL, **common, **others), 25)  # type: ignore[arg-type]
        seen = {task.client for record in records for task in record.plan.arrived}  # type: ignore[union-attr]
        assert seen == {0, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    "others",
    [{}, {"restart": "flush"}, {"max_age": 1}, {"concurrency": 7}, {"size": 1}],
    ids=["arrival", "flush", "stale", "wide", "one"],
)
def test_a_plan_that_continues_the_last_one_is_that_of_the_state(others: dict[str, object]) -> None:
    """Tasks in flight are kept between steps; a plan from a state that is read anew, or earlier, is the same."""
    simulation = buffered("scaffold", **{"size": 2, **others})  # type: ignore[arg-type]
    state = simulation.start()
    for round in range(12):
        before = state
        state, record = simulation.round(before)
        for again in (simulation.scheduler, replace(simulation.scheduler)):  # the second has planned nothing
            plan = again.plan(round, before.flight)
            assert plan == record.plan
        assert state.flight is not None and record.plan is not None
        assert list(state.flight.sent) == sorted({task.version for task in record.plan.flying})
        assert state.flight.tasks.tolist() == [list(task) for task in record.plan.flying]


def test_a_client_that_is_away_does_not_begin_again_when_its_task_arrives() -> None:
    simulation = buffered("fedavg", size=4)
    state, arrived = simulation.run(1), 0
    for round in range(1, 25):
        away = {task.client for task in tasks_of(state.flight)}
        plan = simulation.scheduler.plan(round, state.flight, away=away)
        assert not {task.client for task in plan.flying if task.version == round} & away
        arrived += len({task.client for task in plan.arrived} & away)
        assert replace(simulation.scheduler).plan(round, state.flight, away=away) == plan
        state = simulation.run(1, state)
    assert arrived > 20


def test_tasks_in_flight_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[int]()
    simulation = Simulation("fedavg + asynchronous", blobs(range(3, 3 + 6)), LOCAL, cohort=4, durations=SPREAD)
    state = simulation.run(2)
    monkeypatch.setattr(scheduler, "tasks_of", lambda flight: [*map(read.append, [1]), *tasks_of(flight)][1:])
    simulation.run(8, state)
    assert not read
    simulation.run(1, state)  # an earlier state
    assert len(read) == 2
