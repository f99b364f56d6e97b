"""A partial sum keeps the bound and agrees with what its node says about its clients."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch

from undrift import Local, Simulation
from undrift.algorithms import make
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.rejection import Reason
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.partial_check import Stated, check_stated
from undrift.engine.worker.partial_sum import Partial
from undrift.testing import Clinic

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
METHODS = ["fedavg", "uniform", "scaffold", "feddyn", "fednova", "fedscam", "feddisco", "q-fedavg", "median"]
CLIENTS = [3, 4, 5]


def served(method: str, bound: float | None) -> tuple[Gate, Partial]:
    """A gate of the server, and the honest reply of a node with three clients."""
    algorithm = make(method)
    simulation = Simulation(algorithm, Clinic(), LOCAL)
    broadcast = server.send(algorithm, simulation.start(), simulation.job.setting)
    part = simulation.worker.serve(broadcast, CLIENTS, {}, 8)
    return Gate(algorithm, LOCAL, broadcast, range(8), bound), part


def largest(method: str) -> float:
    """The largest norm of the node's displacements."""
    return max(visit.norm for visit in served(method, None)[1].visits)


@pytest.mark.parametrize("method", METHODS)
def test_honest_sums_pass_at_their_own_bound(method: str) -> None:
    gate, part = served(method, largest(method) * (1 + 1e-6))
    assert gate.merge(part.total, gate.total(), part.stated()) is None


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("method", [method for method in METHODS if method != "median"])
@pytest.mark.parametrize("name", ["delta", "paced", "sum"])
def test_sums_beyond_the_bound_are_rejected(method: str, name: str) -> None:
    gate, part = served(method, 1.01 * largest(method))
    if name not in part.total.sums:
        pytest.skip("the method has no such sum")
    total = part.total.sums[name]
    assert isinstance(total, ExactSum)
    total.add(torch.full((total.size,), 5318.0))
    whole = gate.total()
    rejection = gate.merge(part.total, whole, part.stated())
    assert rejection is not None and rejection.reason is Reason.SIZE and f"{name}: norm" in rejection.detail
    assert whole.clients == [] and whole.sums == {}


WRONG: dict[str, tuple[Reason, Callable[[Any], Any]]] = {
    "another client": (Reason.TREE, lambda s: {**s, 6: s[3]}),
    "a client less": (Reason.TREE, lambda s: {client: x for client, x in s.items() if client != 4}),
    "no examples": (Reason.COUNT, lambda s: {**s, 3: s[3]._replace(examples=0)}),
    "too many examples": (Reason.COUNT, lambda s: {**s, 3: s[3]._replace(examples=2**40)}),
    "negative weight": (Reason.WEIGHT, lambda s: {**s, 3: s[3]._replace(weight=-1.0)}),
    "nan": (Reason.WEIGHT, lambda s: {**s, 3: s[3]._replace(weight=float("nan"))}),
    "more weight than in the sum": (Reason.WEIGHT, lambda s: {**s, 3: s[3]._replace(weight=1e6)}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_summary_that_differs_from_the_sum_is_rejected(name: str) -> None:
    reason, change = WRONG[name]
    gate, part = served("fedavg", None)
    rejection = gate.merge(part.total, gate.total(), change(part.stated()))
    assert rejection is not None and rejection.reason is reason, rejection


def test_equal_weights_are_one_each() -> None:
    gate, part = served("uniform", None)
    stated = part.stated() | {3: Stated(5, 2.0), 4: Stated(5, 0.0)}
    rejection = gate.merge(part.total, gate.total(), stated)
    assert rejection is not None and rejection.reason is Reason.WEIGHT


def test_a_claimed_weight_does_not_raise_the_bound_of_the_mean() -> None:
    """Ten times the weight in sum and summary allows a sum ten times as long, but the mean stays within the bound."""
    gate, part = served("fedavg", bound := 1.01 * largest("fedavg"))
    stated = {client: x._replace(weight=10 * x.weight) for client, x in part.stated().items()}
    for name in ("weight", "delta"):
        total = part.total.sums[name]
        assert isinstance(total, ExactSum)
        total.coarse *= 10
        total.fine *= 10
        total.carry()
    whole = gate.total()
    assert gate.merge(part.total, whole, stated) is None and whole.norm() <= bound


@pytest.mark.sweep(every=0)
def test_ten_thousand_fuzzed_partial_sums() -> None:
    """Whatever passes moves the mean by the bound at most; what is honest passes."""
    chance, bound = Random(0), 1.01 * largest("fedavg")
    gate, part = served("fedavg", bound)
    stated, delta = part.stated(), part.total.sums["delta"]
    assert isinstance(delta, ExactSum)
    kept, passed = (delta.coarse.clone(), delta.fine.clone()), 0
    for number in range(10_000):
        delta.coarse.copy_(kept[0])
        delta.fine.copy_(kept[1])
        honest = number % 10 == 0
        if not honest:
            place = chance.randrange(delta.size)
            delta.coarse[place] = round(chance.choice([-1, 1]) * 10 ** chance.uniform(-3, 6) * 1024) / 1024
        whole = Gate(gate.algorithm, LOCAL, gate.broadcast, range(8), bound).total()
        refused = gate.merge(part.total, whole, stated)
        gate._seen.clear()
        gate.rejections.clear()
        assert not honest or refused is None
        if refused is None:
            passed += 1
            assert whole.norm() <= bound * (1 + 1e-5)
    assert 1000 <= passed < 10_000


def test_the_check_alone() -> None:
    _, part = served("fedavg", None)
    check_stated(part.total, part.stated(), lambda client, examples: 1, lambda _: 2**31, None)
