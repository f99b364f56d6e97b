"""Gradients are counted where they are taken: steps, pilot batches, full passes and whatever else a block looks at."""

from typing import Any

import pytest

from support.rounds import LATE
from undrift import Local, Simulation, make
from undrift.algorithms import ALGORITHMS
from undrift.core.method.algorithm import cost
from undrift.core.model.flat_model import Bound
from undrift.core.model.oracle import Oracle
from undrift.testing import blobs, clinic

LOCAL = Local(lr=0.05, epochs=2, batch_size=4)


def counted(name: str, monkeypatch: pytest.MonkeyPatch, rounds: int = 2) -> tuple[list[int], list[int]]:
    """What the visits of a run say, and how many backward passes there were, client by client."""
    passes, original, train = [0], Bound.gradient, []

    def gradient(self: Bound, *args: object, **kwargs: Any) -> object:
        passes[0] += 1
        return original(self, *args, **kwargs)  # type: ignore[arg-type]

    def release(self: Oracle) -> None:
        train.append(passes[0])
        passes[0] = 0
        end(self)

    end = Oracle.release
    monkeypatch.setattr(Bound, "gradient", gradient)
    monkeypatch.setattr(Oracle, "release", release)
    algorithm = make(name)
    simulation = Simulation(algorithm, clinic(algorithm), LOCAL)
    records = [record for _, record in simulation.rounds(rounds)]
    return [visit.gradients for record in records for visit in record.visits], train


@pytest.mark.sweep(every=5)
@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - LATE - {"fedlaw"}))  # it also learns at the server
def test_what_is_reported_is_what_was_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reported, taken = counted(name, monkeypatch)
    assert reported == taken and all(n > 0 for n in reported)


def gradients(name: str, **arguments: Any) -> list[int]:
    """What every client of the first round evaluates: 9 examples are 3 steps an epoch, two epochs."""
    task = blobs(sizes=(9, 9))
    (_, record) = next(Simulation(make(name, **arguments), task, LOCAL).rounds(1))
    return [visit.gradients for visit in record.visits]


def test_counts_of_the_formulas() -> None:
    steps = 2 * 3
    assert gradients("fedavg") == [steps] * 2
    assert gradients("fedsam") == [2 * steps] * 2
    assert gradients("scaffold-i") == [steps + 3] * 2  # and one pass over all data
    # FedSCAM: two gradients a step, three pilot batches, and one at the perturbed point for the direction.
    assert gradients("fedscam") == [2 * steps + 4] * 2
    assert gradients("fedscam-wa") == [steps + 3] * 2
    assert gradients("ditto") == [2 * steps] * 2


@pytest.mark.sweep(every=0)
def test_steps_alone_follow_from_the_declarations() -> None:
    looks_besides = {"fedscam", "fedscam-sam", "fedscam-wa", "scaffold-i", "fedala", "q-fedavg", "apfl", "fedsol"}
    for name in sorted(set(ALGORITHMS) - LATE):
        algorithm = make(name)
        if name in looks_besides or algorithm.needs.model or algorithm.needs.proxy or algorithm.needs.labels:
            continue
        assert gradients(name)[0] <= cost(algorithm).gradients_per_step * 6, name
