"""Fuzzed updates and partial sums, for every aggregation rule: none ends a round or moves the model too far."""

import logging
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")


from support.hostile import LOCAL, NODE, ONE, REST, Round, copied, replies
from support.processes import run_module
from support.registry import BLOCKS
from undrift import Algorithm, Simulation, blocks
from undrift.blocks import Uniform, aggregation
from undrift.core.records.exact_sum import ExactSum
from undrift.core.records.rejection import Reason
from undrift.engine.flower.records import encode
from undrift.testing import Clinic

RULES = {repr(rule): rule for rule in BLOCKS["aggregation"]}
SLACK = 1 + 1e-5


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Ten thousand refusals are ten thousand lines of log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@lru_cache(maxsize=2)
def round_of(rule: str) -> Round:
    return Round(RULES[rule])  # type: ignore[arg-type]


def test_every_rule_is_here() -> None:
    assert {type(rule) for rule in RULES.values()} == {getattr(blocks, name) for name in aggregation.__all__}


def attack(rule: str, clients: list[int], count: int) -> dict[str, float]:
    """Fuzz one round with one rule; every reply is refused with a reason, or moves the model by the bound at most."""
    round, passed, closed, began = round_of(rule), 0, 0, time.process_time()
    for number, (name, bad, content) in enumerate(replies(round, clients, count)):
        tally, accepted = round.take(content, clients)
        if not accepted:
            found = {r.client: r.reason for r in tally.rejections}
            assert set(found) <= set(clients) and all(isinstance(reason, Reason) for reason in found.values()), name
            assert set(found) | set(tally.absent) == set(clients), f"{name}: no reason for {tally}"
            assert tally.total.clients == [] and tally.total.sums == {} and not tally.total.rule.uploads, name
            continue
        assert not bad, f"{name} was accepted"
        passed += 1
        if number % 3 == 0:
            closed += 1
            assert round.moved(tally) <= round.bound * SLACK, name
    return {"passed": passed, "closed": closed, "seconds": time.process_time() - began}


def honest(rule: str, clients: list[int], count: int) -> None:
    round, chance = round_of(rule), Random(1)
    for _ in range(count):
        content, _ = round.honest(chance, clients)
        tally, accepted = round.take(content, clients)
        assert accepted and not tally.rejections, tally.rejections


@pytest.mark.sweep(every=22)
@pytest.mark.parametrize("rule", {type(rule): name for name, rule in reversed(RULES.items())}.values())
@pytest.mark.parametrize("clients", [ONE, NODE], ids=["updates", "sums"])
def test_a_thousand_fuzzed_replies(rule: str, clients: list[int]) -> None:
    attack(rule, clients, 1000)
    honest(rule, clients, 100)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # seconds of a busy machine; those of the processor are asserted
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("clients", [ONE, NODE], ids=["updates", "sums"])
def test_ten_thousand_fuzzed_replies(rule: str, clients: list[int], record_property: Any) -> None:
    found = attack(rule, clients, 10_000)
    honest(rule, clients, 1000)
    for name, value in found.items():
        record_property(name, value)
    print(rule, clients, found)
    assert found["seconds"] <= 60


class Long(Uniform):
    """Makes the mean longer than any upload, or not a number."""

    factor = 100.0

    def mean(self, up: Any, view: Any) -> Any:
        return super().mean(up, view) * self.factor


@pytest.mark.parametrize("factor", [100.0, 1e-3, float("inf"), float("nan")])
def test_a_round_moves_the_model_by_the_bound_at_most(factor: float, caplog: pytest.LogCaptureFixture) -> None:
    logging.disable(logging.NOTSET)
    rule = Long()
    object.__setattr__(rule, "factor", factor)
    simulations = [Simulation(Algorithm(aggregation=rule), Clinic(), LOCAL, bound=bound) for bound in (None, 5.0)]
    start = simulations[0].start()
    free, held = (s.round(start, [3, 4])[0].params - start.params for s in simulations)
    if factor == 1e-3:
        assert torch.equal(free, held) and not caplog.records
        return
    assert "is shortened to the bound, 5" in caplog.text
    expected = free * (5 / free.norm()) if factor == 100 else torch.zeros_like(free)
    torch.testing.assert_close(held, expected)


CLAIMS = {
    "fednova: negative work": ("Normalized(rho=0.0, mu=0.0)", "work", -1e9),
    "fednova: no reach": ("Normalized(rho=0.0, mu=0.0)", "a", 0.0),
    "q-fedavg: no denominator": ("QFair(q=1.0)", "h", 0.0),
    "q-fedavg: negative denominator": ("QFair(q=1.0)", "h", -3.0),
    "fednolowe: negative loss": ("LossComplement()", "loss", -3.0),
}


@pytest.mark.parametrize("clients", [ONE, NODE], ids=["update", "sum"])
@pytest.mark.parametrize("name", CLAIMS)
def test_a_false_claim_of_a_rules_own_numbers_is_refused(name: str, clients: list[int]) -> None:
    """Such claims made FedNova divide by zero, which ended the run, and q-FedAvg step without limit."""
    rule, field, value = CLAIMS[name]
    round = round_of(rule)
    content, _ = round.honest(Random(0), clients)
    place = f"parts.aggregation.{field}" if clients == ONE else f"aggregation.{field}/sum"
    number = torch.tensor([value], dtype=torch.float64)
    if clients == NODE:
        total = ExactSum(1)
        total.add(number)
        number = total.pack().data
    content.array_records["arrays"][place] = encode({place: number})[place]
    tally, accepted = round.take(content, clients)
    assert not accepted and {r.reason for r in tally.rejections} == {Reason.WEIGHT}, tally.rejections


@pytest.mark.sweep(every=4)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")
def test_memory_while_replies_are_refused() -> None:
    """The server holds a hostile reply at most three times: as it came, as tensors, and while it is checked."""
    peak = run_module("support.hostile_memory", MALLOC_MMAP_THRESHOLD_="65536")  # what is freed does not count
    assert float(peak) <= 3.07, "of the model; the interpreter's own pages count too"


def test_the_honest_round_alone() -> None:
    round = round_of(next(iter(RULES)))
    tally, accepted = round.take(copied(round.rest), REST)
    assert accepted and tally.total.norm() <= round.bound
