"""Blocks for parts of a model: what they need together, and losses and gradients at points of a part."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from undrift import Algorithm, Local, Simulation
from undrift.blocks import AdaptiveAggregation, AutoStep, Folded, OneFactor, QFair
from undrift.core import LocalOptimizer, Step, by_part
from undrift.testing import blobs

LOCAL = Local(lr=0.05, batch_size=4)


def test_blocks_of_parts_need_a_model_of_their_kind() -> None:
    algorithm = Algorithm(personalization=by_part({"*.lora_*": OneFactor()}))
    assert algorithm.needs.model == OneFactor().needs.model == "adapted"
    with pytest.raises(TypeError, match=r"no model fits all blocks: 'a\.\*': .*'adapted' and 'b\.\*': .*'foldable'"):
        by_part({"a.*": OneFactor(), "b.*": Folded()})


def test_a_part_may_begin_elsewhere() -> None:
    """All parts together are the whole model; one part alone leaves the rest where it is."""
    whole, parts, alone = (
        Simulation(Algorithm(personalization=block), blobs(), LOCAL, seed=1)
        for block in (
            AdaptiveAggregation(layers=9, rate=0.5),
            by_part({"*": AdaptiveAggregation(layers=9, rate=0.5)}),
            by_part({"*bias": AdaptiveAggregation(rate=0.5)}),
        )
    )
    assert torch.equal(parts.run(4).params, whole.run(4).params)
    assert not torch.equal(alone.run(4).params, Simulation("fedavg", blobs(), LOCAL, seed=1).run(4).params)


def test_a_rule_of_a_part_reads_losses() -> None:
    methods = (Algorithm(aggregation=rule) for rule in (QFair(1.0), by_part({"*": QFair(1.0)})))
    whole, parts = (Simulation(method, blobs(), LOCAL, seed=1).run(2) for method in methods)
    assert torch.equal(parts.params, whole.params)


def test_an_optimizer_of_a_part_reads_gradients_at_its_points() -> None:
    whole, parts, alone = (
        Simulation(Algorithm(local_optimizer=block), blobs(), LOCAL, seed=1, failures="raise").run(2).params
        for block in (AutoStep(), by_part({"*": AutoStep()}), by_part({"*bias": AutoStep()}))
    )
    assert torch.equal(whole, parts) and bool(alone.isfinite().all())


@dataclass(frozen=True)
class Again(LocalOptimizer[None, None, None, None, None]):
    """The gradient once more, at the same point."""

    def adjust(self, grad: Tensor, state: None, step: Step) -> Tensor:
        again = step.gradient_at(step.w, step.batch)
        torch.testing.assert_close(again, grad)
        return again


def test_gradients_of_a_part_are_those_of_the_whole_model() -> None:
    methods = Algorithm(local_optimizer=by_part({"*bias": Again()})), Algorithm()
    got, expected = (Simulation(method, blobs(), LOCAL, seed=1).run(1) for method in methods)
    torch.testing.assert_close(got.params, expected.params)
