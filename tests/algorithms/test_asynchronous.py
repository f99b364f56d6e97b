"""Asynchronous methods: published formulas on a line, the bias of fast clients, and all methods under a buffer."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from oracle.asynchronous import Line, aced, decay, fadas, fedasync, fedbuff, fedfa
from support.registry import SCHEDULES
from undrift.algorithms import ALGORITHMS
from undrift.blocks import Asynchronous, Average, Buffered, ByAge, FedDyn, Mixing, Recent, Scaffold, Uniform
from undrift.compose.build import make
from undrift.compose.cards import can_overlap
from undrift.compose.grammar import parse, text
from undrift.core.method.algorithm import Algorithm, cost
from undrift.core.records.types import Local
from undrift.engine.round.simulation import Simulation
from undrift.testing.projected import blobs
from undrift.testing.rounds import LOCAL
from undrift.testing.tasks import Quadratics, clinic

LINE = Quadratics.scalar([1.0, 1.0], [0.0, 4.0], 1.0, [1, 3])
TWO = Local(lr=0.5, steps=2, batch_size=4)
PATTERN = (0, 0, 1, 0, 1, 0)
LATE = (0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1)
"""The clients in the order of their arrivals; each begins again at once. In the second one is late."""


def arrive(order: Sequence[int]) -> Callable[[int, int], float]:
    """Durations with which two clients arrive in an order, at the seconds 1, 2, 3, ...; each begins again at once."""
    places = {client: [at for at, one in enumerate(order, 1) if one == client] for client in (0, 1)}
    tasks = {client: [client, *(at + 1 for at in places[client])] for client in (0, 1)}  # the numbers of its tasks
    known: dict[tuple[int, int], float] = {}
    for client in (0, 1):
        for number, begun, end in zip(tasks[client], [0, *places[client]], places[client], strict=False):
            known[client, number] = end - begun
    return lambda client, number: known.get((client, number), 1e6)


def path(algorithm: Algorithm, steps: int, order: Sequence[int] = PATTERN) -> list[float]:
    """The models after every step."""
    simulation = Simulation(algorithm, LINE, TWO, cohort=2, durations=arrive(order))
    return [float(state.params) for state, _ in simulation.rounds(steps)]


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (Algorithm(aggregation=ByAge("constant"), schedule=Buffered(2)), [0.25, 1.28125, 2.207031]),
        (make("fedbuff(2)"), [0.25, 0.951745, 1.58921]),
        (make("fedasync(rule='constant', mu=0.0)"), [0.55, 0.3025, 2.071, 0.873775, 2.46016]),
        (make("fedasync(mu=0.0)"), [0.55, 0.3025, 1.323544, 0.794097, 1.870365]),
        (make("ca2fl(2)"), [0.625, 1.515625, 2.212891]),
        (make("ace(0.5)"), [0.8125, 0.660156, 1.070312, 1.509033, 1.93457, 2.200943]),
        (make("aced(0.5, delay=2)"), [0.8125, 0.660156, 1.070312, 0.822754, 1.248291, 1.643341]),
        (make("aced(0.5, delay=3)"), [0.8125, 0.660156, 1.070312, 1.509033, 1.93457, 2.200943]),
        (make("area"), [0.625, 0.578125, 1.703125, 1.697266, 1.785156, 1.925049]),
    ],
    ids=["buffer", "fedbuff", "constant", "polynomial", "ca2fl", "ace", "aced-2", "aced-3", "area"],
)
def test_numbers_of_the_sheet(algorithm: Algorithm, expected: list[float]) -> None:
    assert path(algorithm, len(expected)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (make("fedbuff", size=3, lr=0.7, a=0.8), fedbuff(Line(), PATTERN * 2, 3, 0.7, decay("polynomial", 0.8, 0))),
        (make("async-sgd", lr=0.5, concurrency=2), fedbuff(Line(), PATTERN * 2, 1, 0.5, decay("reciprocal", 0, 2))),
        (
            make("fedasync", rule="hinge", a=10.0, b=1.0),
            fedasync(Line(pull=0.005), PATTERN * 2, 0.6, decay("hinge", 10.0, 1.0)),
        ),
        (make("fedasync", alpha=0.3), fedasync(Line(pull=0.005), PATTERN * 2, 0.3, decay("polynomial", 0.5, 0))),
        (make("fedfa", size=3), fedfa(Line(), PATTERN * 2, 3)),
        (make("fedfa", size=1), fedasync(Line(), PATTERN * 2, 1.0, decay("constant", 0, 0))),
    ],
    ids=["fedbuff", "async-sgd", "hinge", "polynomial", "fedfa", "last"],
)
def test_equals_its_oracle(algorithm: Algorithm, expected: list[float]) -> None:
    assert path(algorithm, len(expected), PATTERN * 2) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("size", "delay"), [(2, 1), (2, 2), (1, 3), (2, None)])
def test_the_rate_of_fadas_falls_with_the_oldest_upload(size: int, delay: int | None) -> None:
    expected = fadas(Line(), LATE, size, 0.05, 0.8, 0.9, 1e-3, float("inf") if delay is None else delay)
    algorithm = make("fadas", size=size, lr=0.05, beta1=0.8, beta2=0.9, eps=1e-3, delay=delay)
    assert path(algorithm, len(expected), LATE) == pytest.approx(expected, abs=1e-9)
    fixed = fadas(Line(), LATE, size, 0.05, 0.8, 0.9, 1e-3, float("inf"))
    assert (expected == fixed) == (delay is None)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize(
    ("algorithm", "size", "expected"),
    [
        (Algorithm(aggregation=ByAge("constant"), server_optimizer=Average(0.1), schedule=Buffered(4)), 4, 1.0),
        (make("fedasync(alpha=0.1, rule='constant', mu=0.0)"), 1, 1.12446),
        (
            Algorithm(drift=Scaffold(), aggregation=Uniform(), server_optimizer=Average(0.3), schedule=Buffered(2)),
            2,
            2.0,
        ),
        (Algorithm(drift=FedDyn(1.0), aggregation=Uniform(), schedule=Buffered(2)), 2, 2.0),
        (make("ca2fl(2, lr=0.3)"), 2, 2.0),
        (make("ace"), 1, 2.0),
        (make("aced(delay=8)"), 1, 2.0),
        (make("area"), 1, 2.0),
    ],
    ids=["fedbuff", "fedasync", "scaffold", "feddyn", "ca2fl", "ace", "aced", "area"],
)
def test_who_removes_the_bias_of_a_client_that_is_three_times_as_fast(
    algorithm: Algorithm, size: int, expected: float
) -> None:
    arrivals = 480
    assert path(algorithm, arrivals // size, (0, 0, 0, 1) * (arrivals // 4))[-1] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("order", [PATTERN * 2, LATE, (0, 0, 0, 0, 1) * 3], ids=["pattern", "late", "fast"])
@pytest.mark.parametrize("delay", [0, 1, 2, 3, 7])
def test_aced_leaves_old_displacements_out(delay: int, order: Sequence[int]) -> None:
    expected = aced(Line(), order, 0.5, delay)
    assert path(make("aced", lr=0.5, delay=delay), len(expected), order) == pytest.approx(expected, abs=1e-9)


def test_aced_with_a_long_delay_is_ace() -> None:
    assert make("aced", lr=0.3, delay=None) == make("ace", lr=0.3)
    ace = path(make("ace", lr=0.5), 12, LATE)
    assert ace == pytest.approx(aced(Line(), LATE, 0.5, float("inf")), abs=1e-9)
    assert path(make("aced", lr=0.5, delay=12), 12, LATE) == pytest.approx(ace, abs=1e-9)
    assert path(make("aced", lr=0.5, delay=2), 12, LATE) != pytest.approx(ace, abs=1e-3)


def test_aced_without_delay_and_with_one_client_in_flight_is_sgd() -> None:
    order, line, w = (0, 0, 0, 0), Line(), 1.0
    simulation = Simulation(make("aced(0.5, delay=0)"), LINE, TWO, cohort=1, seed=3)
    for state, record in simulation.rounds(6):
        (client,) = record.clients
        w += 0.5 * (line.train(client, w) - w) / (2 if record.round == 0 else 1)  # at first the other counts as zero
        assert float(state.params) == pytest.approx(w, abs=1e-9)
    assert path(make("aced(0.5, delay=0)"), 4, order)  # the late client is not waited for


def test_aced_keeps_the_sums_of_its_clients() -> None:
    """The rows of the server are the sums of what the clients remember, by version."""
    algorithm = make("aced(delay=4)")
    simulation = Simulation(algorithm, clinic(algorithm), LOCAL, cohort=5, seed=7, durations="log-normal(1, sd=1.5)")
    state = simulation.run(15)
    window = state.parts["release"]
    kept = [simulation.worker.store.load(one, key).parts["release"] for one, key in state.accepted.items()]
    for row, count, version in zip(window.rows, window.counts, window.versions, strict=True):  # type: ignore[union-attr]
        own = [one for one in kept if one.version == version]  # type: ignore[union-attr]
        if version >= state.round - 1 - 4:
            assert len(own) == int(count)
            assert torch.allclose(sum((one.u for one in own), torch.zeros_like(row)), row, atol=1e-6)  # type: ignore[union-attr]
    assert sum(window.counts) > 1  # type: ignore[union-attr]


def test_aced_in_rounds_of_several_uploads_is_their_mean() -> None:
    plain, recent = Algorithm(aggregation=Uniform()), Algorithm(release=Recent(2), aggregation=Uniform())
    states = [Simulation(one, blobs(range(3, 9)), LOCAL, cohort=4, seed=7).run(4) for one in (plain, recent)]
    assert torch.equal(states[0].params, states[1].params)
    assert not states[1].parts["release"].counts.any()  # type: ignore[union-attr]


def test_aced_takes_one_upload_per_step() -> None:
    with pytest.raises(TypeError, match=r"takes one upload per step, found schedule=Buffered"):
        Algorithm(release=Recent(), aggregation=Uniform(), schedule=Buffered(2))
    with pytest.raises(TypeError, match="needs equal weights"):
        Algorithm(release=Recent(), schedule=Asynchronous())


def test_uploads_of_one_version_may_arrive_in_any_order() -> None:
    """Permuted arrivals in a buffer change no bit: here all tasks of a step begin with it."""
    algorithm = replace(make("scaffold"), schedule=Buffered(5, restart="flush"))
    task, found = clinic(algorithm), set()
    for seconds in ((1, 2, 3, 4, 5, 6, 7, 8), (8, 7, 6, 5, 4, 3, 2, 1), (5, 1, 4, 2, 8, 3, 7, 6)):
        durations = list(seconds)[: task.population]
        found.add(tuple(Simulation(algorithm, task, LOCAL, cohort=5, durations=durations).run(3).params.tolist()))
    assert len(found) == 1


def test_weights_by_age() -> None:
    assert [ByAge("polynomial", 0.5).factor(age) for age in (0, 3)] == [1.0, 0.5]
    assert [ByAge("hinge", 2.0, 4.0).factor(age) for age in (4, 5, 6)] == [1.0, 1 / 3, 0.2]
    assert [ByAge("reciprocal", b=4.0).factor(age) for age in (0, 4, 8)] == [1.0, 1.0, 0.5]
    with pytest.raises(TypeError, match="mixes one model at a time"):
        Algorithm(aggregation=Mixing(), schedule=Buffered(2))
    with pytest.raises(ValueError, match="above that of a fresh upload"):
        ByAge().check(None, 3, {"": 2.0, "whole": 1.0})


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_schedules_are_text(schedule: Buffered | Asynchronous) -> None:
    algorithm = replace(make("scaffold"), schedule=schedule)
    assert parse(text(algorithm)) == algorithm


ONE_MODEL = {
    "fedlin",
    "scaffnew",
    "rolora",
    "fedsvd",
    "fedex-lora",
    "flora",
    "flexlora",
    "hetlora",
    "lora-fair",
    "fedpac",
    "fed-sb",
}
"""Methods whose uploads of a step must start from one model."""

ONE_BY_ONE = {"fedasync", "fedfa", "aced"}
"""Methods that step at every arrival."""


@pytest.mark.sweep(every=8)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_trains_under_a_buffer(name: str) -> None:
    if not can_overlap(make(name)):
        assert name in ONE_MODEL
        with pytest.raises(TypeError, match=r"(found|with) schedule=Buffered\(.*; use "):
            replace(make(name), schedule=Buffered(3))
        return
    algorithm = replace(make(name), schedule=Buffered(3)) if name not in ONE_BY_ONE else make(name)
    simulation = Simulation(algorithm, clinic(algorithm), LOCAL, cohort=5, seed=7, durations="log-normal(1, sd=1.5)")
    ages = []
    for state, record in simulation.rounds(6):
        assert torch.isfinite(state.params).all()
        ages.append(record.row(0.1).get("age_max", 0))
    assert max(ages) > 0


def test_what_the_server_keeps_in_arrays_counts() -> None:
    """ACED has a sum for each of delay + 1 versions, FedFa a queue of models, beside the model itself."""
    assert cost(make("aced(delay=3)")).server_state == 1 + 4
    assert cost(make("fedfa(size=5)")).server_state == 1 + 5
    assert cost(make("scaffold")).server_state == 2
