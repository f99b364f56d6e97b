"""Power-of-choice: which clients it takes, its cost, and that it depends on seed, round and state only."""

from collections import Counter
from dataclasses import dataclass, fields, replace
from math import comb
from typing import Any

import numpy as np
import pytest

from undrift import Algorithm, Local, Simulation, cost, make, parse
from undrift.blocks import PowerOfChoice
from undrift.core.method.selection import Candidates, Selection, select_cohort
from undrift.core.model.random import weighted_draw
from undrift.core.server import step as server
from undrift.testing import Clinic, Quadratics, fingerprint

SIZES = (5, 1, 8, 2, 3, 6, 4, 7)
BOWLS = Quadratics.scalar(
    (1.0, 0.5, 2.0, 1.0, 3.0, 1.0, 0.2, 1.0), (0.0, 4.0, -1.0, 2.0, 1.0, -3.0, 9.0, 5.0), 0.5, SIZES
)
LOCAL = Local(lr=0.05, batch_size=4)


def losses(w: float) -> list[float]:
    """a_i (w - b_i)^2 / 2."""
    return [float(a) * (w - float(b)) ** 2 / 2 for a, b in zip(BOWLS.curvatures, BOWLS.optima, strict=True)]


def test_all_candidates_choose_the_largest_losses() -> None:
    """With every client a candidate, the choice is the closed form, round after round, and no draw matters."""
    for seed in (0, 1):
        simulation = Simulation(Algorithm(selection=PowerOfChoice(8)), BOWLS, LOCAL, cohort=3, seed=seed)
        state = simulation.start()
        for _ in range(12):
            each = losses(float(state.params))
            expected = sorted(sorted(range(8), key=lambda client: -each[client])[:3])
            state, record = simulation.round(state)
            assert list(record.clients) == expected and record.asked == 5


@pytest.mark.quick
def test_candidates_are_drawn_by_examples() -> None:
    simulation = Simulation(Algorithm(selection=PowerOfChoice(4)), BOWLS, LOCAL, cohort=2, seed=7)
    state = simulation.start()
    weights = simulation.participation.examples
    for round in range(12):
        drawn = weighted_draw(7, round, weights, 4, "candidates")
        each = losses(float(state.params))
        state, record = simulation.round(state)
        assert list(record.clients) == sorted(sorted(drawn, key=lambda client: -each[client])[:2])
        assert record.asked == 2 and len(set(drawn)) == 4


def test_a_list_of_weights_is_multiplied_with_the_examples() -> None:
    weights = [0, 1, 0, 2, 1, 0, 1, 1]
    simulation = Simulation(Algorithm(selection=PowerOfChoice(4)), BOWLS, LOCAL, cohort=2, sampling=weights)
    for round in range(6):
        drawn = weighted_draw(0, round, simulation.participation.examples * weights, 4, "candidates")
        state = replace(simulation.start(), round=round)
        each = losses(float(state.params))
        found = simulation.select(state, server.send(simulation.job.algorithm, state, simulation.job.setting))
        assert found == sorted(sorted(drawn, key=lambda client: -each[client])[:2])
        assert all(weights[client] for client in found)
    by_examples = Simulation(Algorithm(selection=PowerOfChoice(4)), BOWLS, LOCAL, cohort=2, sampling="examples")
    plain = Simulation(Algorithm(selection=PowerOfChoice(4)), BOWLS, LOCAL, cohort=2)
    assert fingerprint(by_examples.run(2)) == fingerprint(plain.run(2))


@dataclass(frozen=True)
class Taking(Selection):
    """Takes what it is told to."""

    clients: tuple[object, ...] = ()

    def select(self, candidates: Candidates) -> tuple[object, ...]:  # type: ignore[override]
        return self.clients


def test_what_a_selection_returns_is_checked() -> None:
    simulation = Simulation(Algorithm(selection=Taking((np.int64(5), 2))), BOWLS, LOCAL)
    _, record = simulation.round(simulation.start())
    assert record.clients == (2, 5) and not record.rejections
    candidates = Candidates(0, 0, simulation.participation, lambda clients, batches: {})
    assert select_cohort(Taking(), candidates) == []
    for clients, message in (
        ((0, 99), "selection=Taking: select must return whole numbers between 0 and 7, the clients' numbers, got 99"),
        ((-1, 0), "got -1"),
        ((1.0,), "got 1.0"),
        ((True,), "got True"),
        ((1, 3, 1), "select must return each client once, got 1 twice"),
    ):
        with pytest.raises(ValueError, match=message):
            select_cohort(Taking(clients), candidates)


def test_a_task_may_count_with_numpy() -> None:
    class Counting(Quadratics):
        """As NumPy counts."""

        def examples(self, client: int) -> np.int64:  # type: ignore[override]
            return np.int64(super().examples(client))

    counting = Counting(**{f.name: getattr(BOWLS, f.name) for f in fields(BOWLS)})
    simulation = Simulation("fedavg", counting, LOCAL, failures="raise")  # type: ignore[arg-type]
    _, record = simulation.round(simulation.start())
    assert len(record.clients) == 8 and not record.rejections


def test_clients_with_larger_losses_take_part_more_often() -> None:
    """Of equal size and with frozen losses: the chance to be among the best 2 of 4 candidates rises with the loss."""
    level = Quadratics.scalar([1.0] * 8, [float(i) for i in range(8)], 0.0, [1] * 8)  # losses 0, 0.5, 2, ..., 24.5
    simulation = Simulation(Algorithm(selection=PowerOfChoice(4)), level, LOCAL, cohort=2)
    taken: Counter[int] = Counter()
    for round in range(600):
        state = replace(simulation.start(), round=round)
        taken.update(simulation.select(state, server.send(simulation.job.algorithm, state, simulation.job.setting)))
    counts = [taken[client] for client in range(8)]
    # Client i is taken if it is a candidate, 1/2, and at most one of the three others has a larger loss.
    chances = [sum(comb(7 - i, k) * comb(i, 3 - k) for k in (0, 1)) / comb(7, 3) / 2 for i in range(8)]
    assert chances == sorted(chances) and chances[:2] == [0, 0] and chances[7] == 0.5
    for count, chance in zip(counts, chances, strict=True):
        assert abs(count - 600 * chance) <= 5 * (600 * chance * (1 - chance)) ** 0.5


def test_as_many_candidates_as_clients_in_a_round_are_those_drawn() -> None:
    simulation = Simulation(Algorithm(selection=PowerOfChoice(3)), BOWLS, LOCAL, cohort=3, seed=2)
    expected = Simulation(Algorithm(), BOWLS, LOCAL, cohort=3, seed=2)
    _, record = next(simulation.rounds(1))
    assert record.asked == 0 and list(record.clients) == sorted(
        weighted_draw(2, 0, simulation.participation.examples, 3, "candidates")
    )
    _, record = next(expected.rounds(1))
    assert record.asked == 0 and list(record.clients) == expected.sample(0)


@pytest.mark.parametrize("method", ["scaffold", "fedper", "fedbn", "fedavgm"])
def test_a_resumed_run_selects_the_same(method: str) -> None:
    algorithm = parse(f"{method} + power-of-choice(6, batches=1)")
    first = Simulation(algorithm, Clinic(), LOCAL, cohort=2, seed=3)
    stopped = first.run(2)
    whole = first.run(2, stopped)
    second = Simulation(algorithm, Clinic(), LOCAL, cohort=2, seed=3)
    assert fingerprint(second.run(4)) == fingerprint(whole)
    assert fingerprint(whole) != fingerprint(Simulation(make(method), Clinic(), LOCAL, cohort=2, seed=3).run(4))


def test_unavailable_clients_are_no_candidates() -> None:
    simulation = Simulation(
        Algorithm(selection=PowerOfChoice(8)), BOWLS, LOCAL, cohort=3, availability=[[1], [1], *[[]] * 6]
    )
    records = [record for _, record in simulation.rounds(2)]
    assert [list(record.clients) for record in records] == [[0, 1], []] and records[0].asked == 0


def test_a_loss_that_is_no_number_comes_first() -> None:
    class Broken(Clinic):
        def loss(self, model: Any, batch: Any) -> Any:
            return super().loss(model, batch) * float("nan")

    simulation = Simulation(Algorithm(selection=PowerOfChoice(4)), Broken(), LOCAL, cohort=2)
    state = simulation.start()
    assert len(simulation.select(state, server.send(simulation.job.algorithm, state, simulation.job.setting))) == 2


def test_it_is_written_shown_and_counted() -> None:
    algorithm = parse("scaffold + power-of-choice(candidates=12)")
    assert repr(algorithm).endswith("selection=PowerOfChoice(candidates=12, batches=None))")
    assert cost(algorithm).candidates == 12 and cost(make("scaffold")).candidates == 0
    assert "selection" not in repr(make("scaffold"))


def test_what_does_not_fit_is_refused() -> None:
    algorithm = Algorithm(selection=PowerOfChoice(4))
    with pytest.raises(ValueError, match="candidates must be at least the cohort of 5 clients, got 4"):
        Simulation(algorithm, BOWLS, LOCAL, cohort=5)
    with pytest.raises(ValueError, match="needs a cohort of fixed size: give cohort= instead of probability="):
        Simulation(algorithm, BOWLS, LOCAL, probability=0.5)
    pytest.importorskip("flwr")
    from undrift.flower import UndriftStrategy

    with pytest.raises(
        TypeError, match=r"selection=PowerOfChoice\(candidates=4, batches=None\) evaluates candidates before"
    ):
        UndriftStrategy(algorithm, BOWLS.model(), population=8, cohort=2)
