"""Amounts, the steps that follow from them, and the gate, which computes them itself."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch

from undrift import Local, Simulation, make
from undrift.core import Gate, Reason
from undrift.core.local.amounts import amount, normalize_amount, portable
from undrift.core.server import step as server
from undrift.testing import Clinic, Quadratics, fingerprint

TASK = Quadratics.scalar((1.0, 2.0, 0.5, 1.5), (0.0, 1.0, 2.0, 3.0), 0.5, (35, 10, 4, 80))


def twice(client: int, round: int) -> int:
    """An own function."""
    return 2 * client + round


def counts(local: Local, round: int = 0, seed: int = 0) -> list[int]:
    return [local.step_count(TASK.examples(client), client, round, seed) for client in range(TASK.population)]


@pytest.mark.quick
def test_steps_by_hand() -> None:
    size: dict[str, Any] = {"batch_size": 10}
    assert counts(Local(epochs=2, **size)) == [8, 2, 2, 16]
    assert counts(Local(epochs=1.5, **size)) == [6, 2, 2, 12]
    assert counts(Local(epochs=0.1, **size)) == [1, 1, 1, 1]  # 0.4, 0.1, 0.1 and 0.8 of a step, one at least
    assert counts(Local(epochs=[1, 3, 0, 0.5], **size)) == [4, 3, 0, 4]
    assert counts(Local(epochs=2, drop_last=True, **size)) == [6, 2, 2, 16]  # 4 examples: the only batch stays
    assert counts(Local(steps=7, **size)) == [7, 7, 7, 7]
    assert counts(Local(steps=twice, **size), round=1) == [1, 3, 5, 7]
    assert counts(Local(epochs=2, deadline=2.0, speed=[1.5, 9, 0.4, 7.25], **size)) == [3, 2, 0, 14]
    assert Local(steps=100, deadline=100.0, speed=0.29).step_count(1, 0, 0, 0) == 29  # 28.999999999999996 in floats
    assert Local(steps=3).step_count(0, 0, 0, 0) == 0


def test_batch_sizes() -> None:
    assert Local(batch_size=10).batch_sizes(35, 6) == [10, 10, 10, 5, 10, 10]
    assert Local(batch_size=10, drop_last=True).batch_sizes(35, 6) == [10] * 6
    assert Local(batch_size=10, drop_last=True).batch_sizes(4, 2) == [4, 4]


def test_a_law_is_drawn_anew_for_every_client_and_round_or_once() -> None:
    drawn = [[amount("epochs", "uniform:1-5", 3, c, r) for c in range(40)] for r in range(50)]
    assert drawn == [[amount("epochs", "uniform:1-5", 3, c, r) for c in range(40)] for r in range(50)]
    found = Counter(x for row in drawn for x in row)
    assert sorted(found) == [1, 2, 3, 4, 5] and all(300 < n < 500 for n in found.values())  # 400, deviation 18
    assert drawn[0] != drawn[1] and len(set(drawn[0])) == 5
    assert drawn[0] != [amount("epochs", "uniform:1-5", 4, c, 0) for c in range(40)]
    assert drawn[0] != [amount("steps", "uniform:1-5", 3, c, 0) for c in range(40)]
    once = [[amount("speed", "uniform:0.5-2,once", 3, c, r) for c in range(40)] for r in range(2)]
    assert once[0] == once[1] and len(set(once[0])) == 40 and all(0.5 <= x <= 2 for x in once[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs must be positive and finite, got 0"),
        ({"epochs": -1.5}, "epochs must be positive"),
        ({"epochs": float("inf")}, "epochs must be positive"),
        ({"epochs": True}, "epochs: write a number, a list with one number per client"),
        ({"epochs": None}, "epochs: write a number"),
        ({"epochs": [1, -2]}, r"epochs\[1\] must be 0 or more and finite, got -2"),
        ({"epochs": [0, 0]}, "epochs must have one number per client, not all of them 0"),
        ({"epochs": []}, "epochs must have one number per client"),
        ({"epochs": "uniform:5-1"}, "from a smaller to a larger number"),
        ({"epochs": "uniform:1..5"}, "epochs: 'uniform:1..5': cannot be read from ':1..5' on"),
        ({"epochs": "many"}, "'many' is neither a distribution nor a reference"),
        ({"epochs": "no_such_module:f"}, "no module is named 'no_such_module'"),
        ({"epochs": "math:pi"}, "math:pi must be a function of a client and a round, got float"),
        ({"steps": 1.5}, "steps must be a whole number, got 1.5"),
        ({"steps": "uniform:0.5-2"}, "steps must be whole numbers"),
        ({"deadline": 1.0}, "give both or neither, got deadline=1.0 and speed=None"),
        ({"speed": 1.0}, "give both or neither"),
        ({"deadline": 0.0, "speed": 1.0}, "deadline: input should be greater than 0, got 0.0"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Local(**given)


def test_a_function_that_gives_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"steps of client 2 in round 2 must be a whole number, got 0.5"):
        Local(steps=lambda client, t: 0.5).step_count(10, 2, 1, 0)


def test_lists_must_name_every_client() -> None:
    with pytest.raises(ValueError, match="Local: epochs has 3 numbers, but there are 4 clients; give one per client"):
        Simulation(make("fedavg"), TASK, Local(epochs=[1, 2, 3]))


def test_arrays_and_lists_become_tuples_and_whole_numbers_integers() -> None:
    local = Local(epochs=torch.tensor([1.0, 2.5]), steps=[2.0, 3])  # type: ignore[arg-type]
    assert local == Local(epochs=(1, 2.5), steps=(2, 3)) and hash(local) == hash(Local(epochs=[1, 2.5], steps=[2, 3]))
    assert normalize_amount("epochs", " uniform: 1 - 5 ") == "uniform(1, 5)" and isinstance(
        Local(epochs=2.0).epochs, int
    )


def test_a_function_travels_as_its_reference() -> None:
    import math

    assert portable("epochs", math.gcd) == "math:gcd" and portable("epochs", 2) == 2
    with pytest.raises(ValueError, match="a function is stored and sent by its name only"):
        portable("epochs", lambda client, t: 1)


def test_whole_numbers_change_no_bit() -> None:
    """The same work, however it is written, gives the same bits."""
    local = Local(lr=0.05, epochs=2, batch_size=4)
    expected = fingerprint(Simulation(make("scaffold"), Clinic(), local, cohort=5).run(3))
    for given in (
        {"epochs": 2.0},
        {"epochs": [2] * 8},
        {"epochs": "uniform:2-2"},
        {"epochs": lambda client, t: 2},
        {"steps": lambda client, t: 2 * -(-Clinic().examples(client) // 4)},
        {"epochs": 5, "deadline": 1.0, "speed": lambda client, t: 2 * -(-Clinic().examples(client) // 4)},
    ):
        other = Simulation(make("scaffold"), Clinic(), replace(local, **given), cohort=5)
        assert fingerprint(other.run(3)) == expected, given


def test_a_client_without_a_step_is_dropped_with_the_reason() -> None:
    local = Local(batch_size=10, deadline=2.0, speed=[5, 5, 0.4, 5])
    _, record = next(Simulation(make("fedavg"), TASK, local).rounds(1))
    assert record.clients == (0, 1, 3)
    assert [(r.client, r.reason, r.detail) for r in record.rejections] == [(2, Reason.IDLE, "the deadline is 2 s")]
    assert str(record.rejections[0]).startswith("client 2: the client has no local step in this round")
    idle = Simulation(make("fedavg"), TASK, Local(epochs=[1, 0, 0, 0]))
    _, record = idle.round(idle.start(), [1, 2])
    assert not record.visits and len(record.rejections) == 2 and record.rejections[0].detail == ""


def test_the_gate_computes_the_steps_itself() -> None:
    local = Local(batch_size=10, steps="uniform:1-9")
    simulation = Simulation(make("fedavg"), TASK, local, seed=4)
    broadcast = server.send(simulation.job.algorithm, simulation.start(), simulation.job.setting)
    gate = Gate(simulation.job.algorithm, local, broadcast, range(4), seed=4)
    upload = simulation.worker.visit(1, broadcast, None, gate)
    assert upload is not None and upload.steps == local.step_count(10, 1, 0, 4)
    refused = gate.admit(replace(upload, steps=upload.steps + 1), gate.total())
    assert refused is not None and refused.reason is Reason.COUNT
    assert refused.detail == f"steps {upload.steps + 1}, expected {upload.steps}"
    none = Gate(simulation.job.algorithm, Local(steps=[1, 0, 1, 1]), broadcast, range(4))
    refused = none.admit(upload, none.total())
    assert refused is not None and refused.reason is Reason.IDLE
    assert gate.admit(upload, gate.total()) is None
