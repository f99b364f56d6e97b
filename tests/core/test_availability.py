"""Who takes part: traces of availability, weighted draws, and rounds in which nobody is there."""

import json
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift import Local, Simulation, make
from undrift.core.model.random import _one_at_least, bernoulli_size, cohort, weighted_draw
from undrift.core.tasks.participation import Participation, pin_trace, read_trace
from undrift.testing import Clinic, Quadratics, fingerprint

EIGHT = Quadratics.scalar([1.0] * 8, [float(i) for i in range(8)], 0.5, (1, 2, 3, 4, 1, 2, 3, 4))
LOCAL = Local(lr=0.05, epochs=1, batch_size=4)


def odd(client: int, round: int) -> bool:
    """An own trace."""
    return (client + round) % 2 == 1


@pytest.mark.quick
def test_a_trace_by_hand() -> None:
    present = read_trace({"0": [1, 3, [6, 8]], "3": {"period": 4, "rounds": [2, [3, 5]]}, "4": []})
    assert [present(0, round) for round in range(8)] == [True, False, True, False, False, True, True, False]
    assert [present(3, round) for round in range(8)] == [False, True, True, True] * 2
    assert not present(4, 0) and present(1, 0)  # one that is not named is always available


def test_everyone_available_draws_as_without_a_trace() -> None:
    for round in range(20):
        expected = cohort(3, round, 8, 3)
        assert Participation(EIGHT, 3).sample(3, round) == expected
        assert Participation(EIGHT, 3, availability=lambda client, t: True).sample(3, round) == expected
        likely = Participation(EIGHT, probability=0.4, availability={}).sample(3, round)
        assert likely == Participation(EIGHT, probability=0.4).sample(3, round)
        assert likely == cohort(3, round, 8, bernoulli_size(3, round, 8, 0.4))


def test_only_available_clients_are_drawn_and_all_of_them_if_they_are_few() -> None:
    some = Participation(EIGHT, 3, availability=odd)
    few = Participation(EIGHT, 3, availability=[[1], [1, 2], *[[]] * 6])
    for round in range(20):
        drawn = some.sample(0, round)
        assert len(drawn) == 3 and all(odd(client, round) for client in drawn)
    assert (few.sample(0, 0), few.sample(0, 1), few.sample(0, 2)) == ([0, 1], [1], [])
    assert Participation(EIGHT, probability=0.9, availability=[[]] * 8).sample(0, 0) == []


def test_weights_draw_one_after_the_other() -> None:
    """The probability of an order is the product of w / (sum of the weights left)."""
    weights = np.array([1.0, 2.0, 4.0, 0.0])
    found = Counter(tuple(weighted_draw(0, round, weights, 3)) for round in range(20_000))
    assert set(found) == set(permutations(range(3)))
    for order, count in found.items():
        left, probability = 7.0, 1.0
        for client in order:
            probability *= weights[client] / left
            left -= weights[client]
        deviation = (20_000 * probability * (1 - probability)) ** 0.5
        assert abs(count - 20_000 * probability) < 5 * deviation


def test_sampling_by_examples_or_a_list() -> None:
    rounds = range(4000)
    by_examples, listed = (Participation(EIGHT, 1, sampling=s) for s in ("examples", [1, 2, 3, 4, 1, 2, 3, 4]))
    drawn = [by_examples.sample(0, round) for round in rounds]
    assert drawn == [listed.sample(0, round) for round in rounds]
    shares = Counter(client for (client,) in drawn)
    assert all(abs(shares[client] - 200 * EIGHT.examples(client)) < 130 for client in range(8))  # 5 deviations
    assert Participation(EIGHT, 5, sampling=[1, 0, 0, 0, 0, 0, 0, 2]).sample(0, 0) == [0, 7]
    absent = Participation(EIGHT, 8, sampling="examples", availability=odd)
    assert absent.sample(0, 0) == [1, 3, 5, 7]


def test_a_round_without_clients_changes_nothing_but_its_number() -> None:
    trace = [[1, 3]] * 8
    simulation = Simulation(make("scaffold"), Clinic(), LOCAL, cohort=4, availability=trace)
    states = [(state, record) for state, record in simulation.rounds(3)]
    assert [len(record.visits) > 0 for _, record in states] == [True, False, True]
    assert states[1][0].round == 2 and (states[1][0].params == states[0][0].params).all()
    assert not states[1][1].rejections and not states[1][1].absent


def test_a_run_with_traces_and_weights_resumes_to_the_bit() -> None:
    given: dict[str, Any] = {"cohort": 3, "availability": odd, "sampling": "examples", "seed": 5}
    whole = Simulation(make("fedavg"), Clinic(), LOCAL, **given).run(4)
    half = Simulation(make("fedavg"), Clinic(), LOCAL, **given).run(2)
    assert fingerprint(Simulation(make("fedavg"), Clinic(), LOCAL, **given).run(2, half)) == fingerprint(whole)


def test_a_file_is_read_and_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"0": [[1, 6]]}))
    text = pin_trace("file:trace.json")
    assert text.startswith("file:trace.json#") and pin_trace(text) == text and pin_trace("mine:f") == "mine:f"
    assert read_trace(text)(0, 4) and not read_trace("file:trace.json")(0, 5)
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"trace.json has changed since the run began; restore it, or begin a new run"):
        read_trace(text)
    file.write_text("rounds")
    with pytest.raises(ValueError, match=r"trace.json is not JSON"):
        read_trace("file:trace.json")
    with pytest.raises(ValueError, match=r"file:none.json cannot be read: No such file"):
        pin_trace("file:none.json")


def test_a_file_with_a_hash_sign_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace#1.json").write_text("[[1]]")
    text = pin_trace("file:trace#1.json")
    assert text.startswith("file:trace#1.json#") and pin_trace(text) == text
    assert read_trace(text)(0, 0) and read_trace("file:trace#1.json")(0, 0)


@pytest.mark.parametrize("given", [{"cohort": 2}, {"probability": 0.5}, {"cohort": 2, "sampling": "examples"}])
def test_a_trace_is_asked_once_for_each_client_and_round(given: dict[str, Any]) -> None:
    asked: Counter[tuple[int, int]] = Counter()

    def present(client: int, round: int) -> bool:
        asked[client, round] += 1
        return True

    drawn = Participation(EIGHT, availability=present, **given)
    asked.clear()
    drawn.size(0, 3), drawn.sample(0, 3), drawn.sample(0, 4)
    assert set(asked) == {(client, round) for client in range(8) for round in (3, 4)} and set(asked.values()) == {1}


def test_a_small_probability_is_drawn_at_once() -> None:
    assert bernoulli_size(0, 0, 1, 1e-300) == 1 and bernoulli_size(3, 0, 1000, 1e-12) == 1
    places = np.linspace(0, 1, 4000, endpoint=False)
    found = Counter(_one_at_least(float(place), 4, 0.5) for place in places)
    assert all(abs(found[k] - 4000 * share / 15) <= 1 for k, share in enumerate((4, 6, 4, 1), 1))


def test_numbers_of_numpy_are_numbers() -> None:
    drawn = Participation(EIGHT, np.int64(3), sampling=np.arange(8))  # type: ignore[arg-type]
    assert len(drawn.sample(0, 0)) == 3
    assert Participation(EIGHT, probability=np.float32(0.5)).sample(0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"availability": "daily"}, r'write "file:trace.json" or a reference'),
        ({"availability": 5}, "write for every client a list of rounds"),
        ({"availability": {"a": [1]}}, "a client is a number from 0 on, got 'a'"),
        (
            {"availability": {"0": [0]}},
            "availability of client 0: write for every client a list of rounds, counted from 1",
        ),
        ({"availability": {"0": 3}}, "availability of client 0: write for every client"),
        ({"availability": {"0": [[1, 2, 3]]}}, "availability of client 0"),
        ({"availability": {"0": ["noon"]}}, "availability of client 0"),
        ({"availability": {"0": {"period": 5}}}, "availability of client 0"),
        ({"availability": [[1]] * 7}, "the trace has 7 clients, none for client 7"),
        ({"availability": [[1]] * 9}, "the trace names client 8, but there are 8 clients, from 0 to 7; leave it out"),
        ({"availability": {"9": [1]}}, "the trace names client 9, but there are 8 clients"),
        ({"availability": {"0": {"period": 24, "rounds": [[22, 6]]}}}, r"as two: \[22, 25\] and \[1, "),
        ({"availability": {"0": {"period": 24, "rounds": [[22, 30]]}}}, r"and to at most 25, after the period's last"),
        (
            {"availability": {"0": {"period": 24, "rounds": [25]}}},
            r"\[25, 26\] must go from a round to a later one and",
        ),
        ({"availability": {"0": [[10, 5]]}}, r"\[10, 5\] must go from a round to a later one; write \[from, to\)"),
        ({"availability": {"0": [True]}}, "availability of client 0: write for every client"),
        ({"availability": {"01": [1], "1": [2]}}, "client 1 is named twice; name it once"),
        ({"availability": {"²": [1]}}, "a client is a number from 0 on, got '²'"),
        ({"cohort": 2.5}, "cohort must be a whole number of clients, got 2.5"),
        ({"cohort": True}, "cohort must be a whole number of clients, got True"),
        ({"cohort": None, "probability": "0.5"}, "probability must be a number above 0 and at most 1, got '0.5'"),
        ({"cohort": None, "probability": True}, "probability must be a number above 0 and at most 1, got True"),
        ({"sampling": 3.0}, r'use "uniform", "examples" or a list with one number per client, got 3.0'),
        ({"sampling": ["1"] * 8}, "a list with one number per client"),
        ({"sampling": "size"}, r'use "uniform", "examples" or a list'),
        ({"sampling": [1.0, 2.0]}, "2 weights, but there are 8 clients; give one per client"),
        ({"sampling": [0.0] * 8}, "weights must be finite numbers of 0 or more, not all of them 0"),
        ({"sampling": "examples", "probability": 0.5, "cohort": None}, "weights need a cohort of fixed size"),
        ({"probability": 0.5}, "not both"),
        ({"cohort": 0}, "cohort: size must be between 1 and the population of 8, got 0; None takes all clients"),
        ({"cohort": -1}, "cohort: size must be between 1 and the population of 8, got -1"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Simulation(make("fedavg"), EIGHT, LOCAL, **{"cohort": 3, **given})
