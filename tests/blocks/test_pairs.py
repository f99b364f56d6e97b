"""All pairs of slot values: each runs five rounds and stays finite, or is refused with a combination that works."""

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from support.registry import BLOCKS, SPECTRAL
from undrift import Algorithm, Local
from undrift.blocks import SAM, AdaptiveMomentum, FedDyn, Filters, MomentumPath, ServerMomentum, high_pass
from undrift.core.method.block import AnyBlock, LocalOptimizer
from undrift.core.server import wire
from undrift.testing import clinic
from undrift.testing.rounds import simulate_plain

VALUES: dict[str, list[AnyBlock]] = {**BLOCKS, "spectral": SPECTRAL}
ROWS = [(one, value, other) for one, other in combinations(VALUES, 2) for value in VALUES[one]]
LOCAL = Local(lr=0.05, weight_decay=1e-3, epochs=1, batch_size=4)
COHORTS = ([0, 1, 2], [3, 5], [0, 2], [2, 3], [3, 5])
"""The clients of each round: among them one with one example, one without any and one without a gradient."""


THIRDS = [pytest.param(0), pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
"""Every value meets a third of the values of each other slot in `make sweeps`, and the rest in `make slow`."""


@pytest.mark.sweep(every=12)
@pytest.mark.parametrize("third", THIRDS)
@pytest.mark.parametrize(("row", "one", "value", "other"), [(i, *row) for i, row in enumerate(ROWS)], ids=str)
def test_pairs_stay_finite_or_are_refused(row: int, one: str, value: AnyBlock, other: str, third: int) -> None:
    """A value of one slot with every value of another."""
    for partner in VALUES[other][(row + third) % 3 :: 3]:
        pair: dict[str, Any] = {one: value, other: partner}
        refusal = expected_refusal(pair)
        if refusal:
            with pytest.raises(TypeError, match=refusal):
                Algorithm(**pair)
        else:
            stays_finite(Algorithm(**pair))


def expected_refusal(pair: dict[str, AnyBlock]) -> str:
    """What the message says if one of a pair lacks what it needs; "" if it lacks nothing."""
    optimizer: Any
    needs, optimizer = [block.needs for block in pair.values()], pair.get("local_optimizer", LocalOptimizer())
    reason = next((x.plain_sgd for x in needs if x.plain_sgd), "")
    if reason and not optimizer.plain:
        return re.escape(reason)
    slots = {**dict(Algorithm().slots()), **pair}
    for slot, block in slots.items():
        if reason := block.refuses({name: other for name, other in slots.items() if name != slot}):
            return re.escape(reason)
    return "no model fits all blocks" if len({x.model for x in needs if x.model}) > 1 else ""


def stays_finite(algorithm: Algorithm) -> None:
    local = replace(LOCAL, buffers="keep") if algorithm.release.private else LOCAL
    simulation = simulate_plain(algorithm, clinic(algorithm), local, cohort=3, seed=3)
    state = simulation.start()
    for clients in (*COHORTS, None) if algorithm.fills("selection") else COHORTS:
        state, record = simulation.round(state, clients)
        assert all(rejection.client == 1 for rejection in record.rejections), (algorithm, record.rejections)
    for name, x in wire.flatten(state).items():
        assert torch.isfinite(x.double()).all(), (algorithm, name)


def test_a_block_in_the_wrong_slot_is_told_where_it_goes() -> None:
    with pytest.raises(TypeError, match=r"drift takes a Correction, got SAM.*; SAM goes into perturbation"):
        Algorithm(drift=SAM())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"perturbation takes a Perturbation.*; FedDyn goes into drift or momentum"):
        Algorithm(perturbation=FedDyn())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float is not a block: derive it from"):
        Algorithm(perturbation=0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Filters goes into spectral"):
        Algorithm(perturbation=Filters())  # type: ignore[arg-type]


def test_a_missing_partner_is_named() -> None:
    message = r"perturbation=MomentumPath\(.*\) reads the state of the momentum slot and needs momentum=AdaptiveMom"
    with pytest.raises(TypeError, match=rf"{message}entum\(...\); found none"):
        Algorithm(perturbation=MomentumPath())
    with pytest.raises(TypeError, match="found ServerMomentum"):
        Algorithm(perturbation=MomentumPath(), momentum=ServerMomentum())
    assert Algorithm(perturbation=MomentumPath(), momentum=AdaptiveMomentum())


def test_a_perturbation_filter_needs_a_perturbation() -> None:
    with pytest.raises(TypeError, match=r"to filter the gradient write Filters\(gradient=high_pass\(r=0.1\)\)"):
        Algorithm(spectral=Filters(perturbation=high_pass(0.1)))
