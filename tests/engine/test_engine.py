"""The reference engine and its randomness."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from undrift import Algorithm, Local, Simulation, TensorTask
from undrift.algorithms import ALGORITHMS, make
from undrift.blocks import CoordinateMedian
from undrift.core.client.visit import ClientError
from undrift.core.model.random import bernoulli_size, cohort, generator
from undrift.core.records.rejection import Reason
from undrift.engine.stores.store import StoreError
from undrift.testing import Clinic, fingerprint
from undrift.testing.rounds import states_of


def test_generators_depend_on_everything_that_is_named() -> None:
    names = [(s, r, c, p) for s in (0, 1) for r in (0, 1) for c in (0, 11) for p in ("batches", "filter")]
    draws = {torch.rand(4, generator=generator(*name)).numpy().tobytes() for name in names}
    assert len(draws) == len(names)
    assert generator(0, 1, 11, "x").initial_seed() != generator(0, 11, 1, "x").initial_seed()


def test_cohorts_are_fixed_by_seed_and_round_and_are_fair() -> None:
    assert cohort(0, 3, 100, 10) == cohort(0, 3, 100, 10) != cohort(0, 4, 100, 10)
    counts = Counter(client for round in range(2000) for client in cohort(1, round, 20, 5))
    assert len(counts) == 20 and max(counts.values()) < 600 and min(counts.values()) > 400
    assert len(set(cohort(0, 0, 1_000_000, 10_000))) == 10_000
    with pytest.raises(ValueError, match="between 1 and the population of 5, got 6"):
        cohort(0, 0, 5, 6)


def test_bernoulli_cohorts_vary_in_size_and_are_never_empty() -> None:
    sizes = [bernoulli_size(0, round, 100, 0.1) for round in range(300)]
    assert 9 < sum(sizes) / 300 < 11 and len(set(sizes)) > 5
    assert all(bernoulli_size(0, round, 3, 0.01) for round in range(20))
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="probability must be above 0 and at most 1"):
            Simulation(make("uniform"), Clinic(), probability=wrong)
    for sampling in ("uniform", "examples"):
        with pytest.raises(ValueError, match="between 1 and the population of 8, got 9"):
            Simulation(make("uniform"), Clinic(), cohort=9, sampling=sampling)
    state, record = next(iter(Simulation(make("uniform"), Clinic(), probability=0.5).rounds(1)))
    assert state.round == 1 and len(record.clients) + len(record.rejections) <= 8


def test_the_global_generator_is_neither_used_nor_changed() -> None:
    class Noisy(nn.Module):
        """Dropout draws from the global generator."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    data = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    task = TensorTask(Noisy, data, torch.arange(20) % 2, list(torch.arange(20).chunk(4)))
    prints = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.random.get_rng_state()
        prints.add(fingerprint(Simulation(make("fedavg"), task, Local(batch_size=3)).run(3)))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert len(prints) == 1


def test_a_round_without_uploads_is_abandoned() -> None:
    simulation = Simulation(make("scaffold"), Clinic())
    start = simulation.start()
    state, record = simulation.round(start, [1])
    assert state.round == 1 and torch.equal(state.params, start.params) and record.clients == ()
    assert record.rejections[0].reason is Reason.EMPTY


def test_a_missing_client_state_is_named() -> None:
    simulation = Simulation(make("scaffold"), Clinic(), Local(batch_size=4))
    state = simulation.run(1)
    states_of(simulation).clear()
    with pytest.raises(
        ClientError, match="no state of client 0 after round 1; resume with the clients' states"
    ) as seen:
        simulation.run(1, state)
    assert isinstance(seen.value.__cause__, StoreError)


def test_only_the_last_two_states_of_a_client_are_held() -> None:
    simulation = Simulation(make("feddyn"), Clinic(), Local(batch_size=4))
    simulation.run(6)
    assert all(len(held) <= 2 for held in states_of(simulation).values())


def test_records_tell_who_took_part() -> None:
    simulation = Simulation(make("fedavg"), Clinic(), Local(lr=0.1, batch_size=4), cohort=6)
    records = [record for _, record in simulation.rounds(8)]
    assert [record.round for record in records] == list(range(8))
    assert all(len(r.clients) + len(r.rejections) == 6 for r in records)
    assert records[-1].loss < records[0].loss


def test_names_find_their_algorithm() -> None:
    assert make("fedprox", mu=0.5) == ALGORITHMS["fedprox"](0.5)
    with pytest.raises(ValueError, match="no algorithm is named 'fedproxx'; did you mean 'fedprox'"):
        make("fedproxx")
    with pytest.raises(ValueError, match="known are fedavg"):
        make("zzz")


def test_a_record_tells_how_far_clients_drift_from_their_mean() -> None:
    """Against explicit distances, for a weighted mean, a uniform one and a method that gathers."""
    local = Local(lr=0.05, epochs=2, batch_size=4)
    for algorithm in (make("fedavg"), make("uniform"), Algorithm(aggregation=CoordinateMedian())):
        simulation = Simulation(algorithm, Clinic(), local)
        state = simulation.start()
        _, record = simulation.round(state, range(8))
        ends = {client: simulation.round(state, [client])[0].params - state.params for client in record.clients}
        weights = torch.tensor([visit.weight for visit in record.visits], dtype=torch.float64)
        moves = torch.stack([ends[client].double() for client in record.clients])
        mean = (weights[:, None] * moves).sum(0) / weights.sum()
        squares = (moves - mean).square().sum(1)
        assert record.drift == pytest.approx(float((weights * squares).sum() / weights.sum()) ** 0.5, rel=1e-4)
        assert record.moved == pytest.approx(float(mean.norm()), rel=1e-5)
        assert 0 < record.drift < record.norm
