"""Displacements of tasks in flight against fresh ones, by band."""

from dataclasses import replace

import pytest
import torch

from undrift.compose.grammar import parse
from undrift.core.server import step as server
from undrift.core.server.wire import fingerprint
from undrift.engine.round.simulation import Simulation
from undrift.lens import client_vectors
from undrift.observe.stale import measure_staleness
from undrift.testing.rounds import LOCAL
from undrift.testing.tasks import clinic


def started(method: str = "scaffold + buffered(2)") -> Simulation:
    """A run in which clients differ in speed."""
    algorithm = parse(method)
    return Simulation(algorithm, clinic(algorithm), LOCAL, cohort=5, seed=7, durations="log-normal(1, sd=1.5)")


@pytest.mark.parametrize("method", ["fedavg + buffered(2)", "scaffold + buffered(2)", "ace"])
def test_energies_are_those_of_the_vectors(method: str) -> None:
    simulation = started(method)
    state = simulation.run(8)
    before = fingerprint(state)
    found = measure_staleness(simulation, state, bands=2)
    assert found is not None and found.ages == tuple(sorted(found.ages)) and found.ages[0] >= 1
    fresh = client_vectors(simulation, state, found.clients, "update").double()
    layout = simulation.setting.layout
    kept = [i for i, size in enumerate(layout.sizes) if size // 2 + 1 >= 2]
    whole = sum(float(layout.split(v)[i].square().sum()) for v in fresh for i in kept)
    assert float(found.fresh.sum()) == pytest.approx(whole, rel=1e-9)
    assert bool((found.agreement <= 1 + 1e-9).all()) and bool((found.ratio > 0).all())
    assert not torch.allclose(found.agreement, torch.ones(2, dtype=torch.float64), atol=1e-6)
    assert fingerprint(state) == before
    assert fingerprint(simulation.run(2, state)) == fingerprint(started(method).run(10)), "nothing was changed"


def test_age_changes_nothing_if_the_models_are_equal() -> None:
    simulation = started()
    state = simulation.run(8)
    assert state.flight is not None
    now = server.send(simulation.job.algorithm, state, simulation.setting)
    sent = dict.fromkeys(state.flight.sent, now)
    found = measure_staleness(simulation, replace(state, flight=replace(state.flight, sent=sent)), bands=2)
    assert found is not None
    assert found.agreement.tolist() == pytest.approx([1, 1], abs=1e-9) and found.ratio.tolist() == pytest.approx([1, 1])


def test_it_takes_some_of_all_ages_or_nothing() -> None:
    simulation = started("fedavg + asynchronous")
    state = simulation.run(12)
    every, two = measure_staleness(simulation, state, bands=2), measure_staleness(simulation, state, 2, bands=2)
    assert every is not None and two is not None
    assert two.ages == (every.ages[0], every.ages[-1]) and len(set(every.clients)) == len(every.clients)
    assert measure_staleness(simulation, simulation.start(), bands=2) is None
    plain = Simulation("fedavg", clinic(parse("fedavg")), LOCAL, cohort=5, durations=1.0)
    assert measure_staleness(plain, plain.run(2), bands=2) is None
    with pytest.raises(ValueError, match="no tensor has"):
        measure_staleness(simulation, state, bands=10**6)
