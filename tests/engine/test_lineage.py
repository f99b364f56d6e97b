"""Branches of one simulation: a client's state of another branch is refused, never taken for its own."""

from dataclasses import replace

import pytest

from undrift import Local, Simulation
from undrift.engine.stores.lineage import Lineage
from undrift.testing import blobs, fingerprint

LOCAL = Local(lr=0.05, batch_size=4)


def test_a_state_of_another_branch_is_refused() -> None:
    simulation = Simulation("scaffold", blobs(), LOCAL)
    first = simulation.start()
    one, _ = simulation.round(first, [0, 1])
    other, _ = simulation.round(first, [0, 2])
    two, _ = simulation.round(one, [0])
    simulation.round(other, [0])  # writes another state of client 0 after round 2
    with pytest.raises(ValueError, match=r"the state of client 0 after round 2 was replaced .*a Simulation of its own"):
        simulation.round(two, [0])
    with pytest.raises(ValueError, match="the state of client 0 after round 2 was replaced"):
        simulation.personal(two, 0)
    with pytest.raises(ValueError, match="the state of client 0 after round 2 was replaced"):
        simulation.scores(two, [0], lambda task, model, client: 0.0)
    simulation.round(two, [1])  # its own state is still there
    again, _ = simulation.round(one, [0])
    assert fingerprint(again) == fingerprint(two)
    simulation.round(two, [0])


def test_histories_that_are_alike_go_on() -> None:
    simulation, reference = Simulation("scaffold", blobs(), LOCAL), Simulation("scaffold", blobs(), LOCAL)
    state = simulation.run(2)
    simulation.run(2)
    simulation.run(1, state)
    assert fingerprint(simulation.run(2, state)) == fingerprint(reference.run(4))
    plain = Simulation("fedavg", blobs(), LOCAL)  # clients keep nothing
    early = plain.run(2)
    plain.run(2, replace(plain.start(), params=early.params * 2))
    assert fingerprint(plain.run(1, early)) == fingerprint(Simulation("fedavg", blobs(), LOCAL).run(3))


def test_a_changed_start_is_another_branch() -> None:
    simulation = Simulation("scaffold", blobs(), LOCAL)
    state = simulation.run(2)
    simulation.run(2, replace(simulation.start(), params=state.params))
    with pytest.raises(ValueError, match="was replaced when this simulation was continued from another state"):
        simulation.run(1, state)


def test_states_from_elsewhere_are_not_judged() -> None:
    lineage, state = Lineage(), Simulation("scaffold", blobs(), LOCAL).run(1)
    lineage.check(state, range(4))
    assert lineage.begin(state) is state
