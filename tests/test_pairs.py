"""All pairs of slot values: each runs five rounds and stays finite, or is refused with a combination that works."""

from itertools import combinations

import pytest
import torch

from registry import BLOCKS, SPECTRAL
from undrift import Algorithm, Local, Simulation
from undrift.blocks import SAM, FedDyn, Filters, Scaffold, high_pass
from undrift.core import wire
from undrift.testing import clinic

VALUES = {**BLOCKS, "spectral": SPECTRAL}
PAIRS = [{one: a, other: b} for one, other in combinations(VALUES, 2) for a in VALUES[one] for b in VALUES[other]]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: " ".join(map(repr, pair.values())))
def test_pair_stays_finite_or_is_refused(pair) -> None:
    if "spectral" in pair and pair["spectral"].perturbation is not None and "perturbation" not in pair:
        with pytest.raises(TypeError, match=r"needs one, for example perturbation=SAM\(0.1\)"):
            Algorithm(**pair)
        return
    needed = [(slot, name) for block in pair.values() for slot, name in block.requires.items()]
    if any(type(pair.get(slot)).__name__ != name for slot, name in needed):
        with pytest.raises(TypeError, match=r"reads the state of the \w+ slot and needs"):
            Algorithm(**pair)
        return
    algorithm = Algorithm(**pair)
    local = Local(lr=0.05, weight_decay=1e-3, epochs=1, batch_size=4)
    simulation = Simulation(algorithm, clinic(algorithm), local, cohort=4, seed=3)
    state = simulation.start()
    for state, record in simulation.rounds(5, state):  # noqa: B007, B020
        assert all(rejection.client == 1 for rejection in record.rejections), record.rejections
    for name, x in wire.flatten(state).items():
        assert torch.isfinite(x.double()).all(), name


def test_a_block_in_the_wrong_slot_is_told_where_it_goes() -> None:
    with pytest.raises(TypeError, match=r"drift takes a Correction, got SAM.*; SAM goes into perturbation"):
        Algorithm(drift=SAM())
    with pytest.raises(TypeError, match=r"perturbation takes a Perturbation.*; FedDyn goes into drift or momentum"):
        Algorithm(perturbation=FedDyn())
    with pytest.raises(TypeError, match="float is no block: derive it from"):
        Algorithm(perturbation=0.1)
    with pytest.raises(TypeError, match="Filters goes into spectral"):
        Algorithm(perturbation=Filters())


def test_a_missing_partner_is_named() -> None:
    class Reader(SAM):
        """A perturbation that reads SCAFFOLD's variates."""

        requires = {"drift": "Scaffold"}  # noqa: RUF012

    with pytest.raises(
        TypeError,
        match=r"perturbation=Reader reads the state of the drift slot and needs drift=Scaffold\(...\); found none",
    ):
        Algorithm(perturbation=Reader())
    with pytest.raises(TypeError, match="found FedDyn"):
        Algorithm(perturbation=Reader(), drift=FedDyn())
    assert Algorithm(perturbation=Reader(), drift=Scaffold())


def test_a_perturbation_filter_needs_a_perturbation() -> None:
    with pytest.raises(TypeError, match=r"To filter the gradient write Filters\(gradient=high_pass\(r=0.1\)\)"):
        Algorithm(spectral=Filters(perturbation=high_pass(0.1)))
