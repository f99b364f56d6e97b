"""Numbers of clients, rounds and seeds, and states of other runs: refused by name before anything is trained."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from undrift import Local, Simulation, TensorTask
from undrift.engine.round.arguments import check_client, check_clients, whole_number
from undrift.testing import Clinic, blobs, fingerprint

LOCAL = Local(lr=0.05, batch_size=4)


def score(task: object, model: nn.Module, client: int) -> float:
    assert type(client) is int
    return float(client)


@pytest.mark.parametrize("given", [np.array([0, 3]), torch.tensor([0, 3]), (np.int64(0), np.int32(3)), range(0, 4, 3)])
def test_numbers_of_every_kind_are_taken(given: Any) -> None:
    simulation = Simulation("scaffold", blobs(), LOCAL)
    reference = Simulation("scaffold", blobs(), LOCAL)
    (state, record), (expected, _) = (
        simulation.round(simulation.start(), given),
        reference.round(reference.start(), [0, 3]),
    )
    assert record.clients == (0, 3) and fingerprint(state) == fingerprint(expected)
    assert simulation.scores(state, given, score) == {0: 0.0, 3: 3.0}
    assert {type(client) for client in simulation.scores(state, given, score)} == {int}
    assert simulation.scores(state, [3, 3], score) == {3: 3.0}
    simulation.personal(state, np.int64(3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clients", "error", "message"),
    [
        ([0, 9], ValueError, "there is no client 9: the clients are numbered from 0 to 3"),
        ([-1], ValueError, "there is no client -1"),
        (np.array([-2]), ValueError, "there is no client -2"),
        ([1, 1.0], TypeError, "a client is a whole number from 0 to 3, got 1.0 of type float"),
        ([True], TypeError, "a client is a whole number from 0 to 3, got True of type bool"),
        (["1"], TypeError, "got '1' of type str"),
        ("01", TypeError, r"clients must be a list of clients' numbers, \[0, 3, 5\], got '01'"),
        (3, TypeError, "clients must be a list of clients' numbers"),
    ],
)
def test_numbers_that_there_are_not_are_refused(clients: Any, error: type[Exception], message: str) -> None:
    simulation = Simulation("scaffold", blobs(), LOCAL)
    state = simulation.start()
    with pytest.raises(error, match=message):
        simulation.round(state, clients)
    with pytest.raises(error, match=message):
        simulation.scores(state, clients, score)
    with pytest.raises(error, match=message):
        check_clients(blobs(), clients)
    assert len(simulation.history) == 0


def test_a_client_takes_part_once() -> None:
    simulation = Simulation("fedavg", blobs(), LOCAL)
    with pytest.raises(ValueError, match="client 2 is named twice; name each client once"):
        simulation.round(simulation.start(), [2, 1, 2])
    assert check_client(blobs(), np.int64(2)) == 2


@pytest.mark.parametrize("wrong", [1.5, True, "3", None])
def test_whole_numbers(wrong: Any) -> None:
    for given in ({"seed": wrong}, {"depth": wrong}):
        with pytest.raises(TypeError, match=f"{next(iter(given))} must be a whole number of 0 or more, got {wrong!r}"):
            Simulation("fedavg", blobs(), **given)
    with pytest.raises(TypeError, match="rounds must be a whole number of 0 or more, the rounds to add, got"):
        Simulation("fedavg", blobs()).run(wrong)
    with pytest.raises(ValueError, match="x must be 1 or more, got 0"):
        whole_number("x", 0, 1)
    seeded = Simulation("fedavg", blobs(), seed=np.int64(3))  # type: ignore[arg-type]
    assert type(seeded.job.seed) is int and type(whole_number("x", torch.tensor(3))) is int


def test_a_state_of_another_model_or_method_is_refused() -> None:
    simulation = Simulation("scaffold", blobs(), LOCAL)
    state, record = next(simulation.rounds(1))
    with pytest.raises(TypeError, match=r"state must be a ServerState, .*, got tuple; rounds\(\) yields pairs"):
        simulation.run(1, (state, record))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"state must be a ServerState, .* got str"):
        simulation.personal("state", 0)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"state: its params have 79 elements and those of the task's model [\d,]+; give"
    ):
        Simulation("scaffold", Clinic(), LOCAL).run(1, state)
    normed = TensorTask(
        lambda: nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)), torch.ones(4, 2), [0.0] * 4, [[0, 1]]
    )
    first = Simulation("fedavg", normed, LOCAL).start()
    with pytest.raises(ValueError, match="state: its buffers have 0 elements and those of the task's model 4"):
        Simulation("fedavg", normed, LOCAL).round(replace(first, buffers=torch.zeros(0)))
    for method, message in (
        ("fedavg", "it keeps Variate of drift, this method nothing; give the state of a run of the same method"),
        ("feddyn", "it keeps Variate of drift, this method [A-Z][a-z]+ of drift"),
    ):
        with pytest.raises(ValueError, match=message):
            Simulation(method, blobs(), LOCAL).run(1, state)
    with pytest.raises(ValueError, match="it keeps nothing, this method Variate of drift"):
        simulation.scores(Simulation("fedavg", blobs(), LOCAL).run(1), [0], score)
