"""What blocks compute beside blocks of other slots."""

import pytest
import torch

from undrift import Local, Simulation
from undrift.blocks import high_pass
from undrift.compose.grammar import parse
from undrift.testing import Quadratics, check_algorithm

TASK = Quadratics.random(6, sizes=[5] * 6)
PRIVATE = "private(names=('fc_weight', 'bias'))"


@pytest.mark.parametrize("method", ["scaffold", "scaffold-i", "fedcm", "fedwmsam"])
@pytest.mark.parametrize("step_schedule", [None, "cosine"])
def test_slopes_are_zero_on_the_private_part(method: str, step_schedule: str | None) -> None:
    """With weight decay, too: the decay of a private value is no slope of what is shared."""
    local = Local(lr=0.1, batch_size=1, weight_decay=1e-2, step_schedule=step_schedule)
    simulation = Simulation(parse(f"{method} + {PRIVATE}"), TASK, local, cohort=3, seed=1)
    state = simulation.run(4)
    layout = simulation.worker.model.layout
    private = layout.mask(lambda name, _: name in ("fc_weight", "bias"))
    kept = [client.parts for held in simulation.worker.store.states.values() for client in held.values()]
    vectors = [x for parts in (state.parts, *kept) for tree in parts.values() for x in tree]
    whole = [x for x in vectors if isinstance(x, torch.Tensor) and len(x) == layout.size]
    assert whole and all(bool(x[~private].any()) and not bool(x[private].any()) for x in whole)


@pytest.mark.parametrize("method", ["uniform", "scaffold", "scaffold-i", "feddyn"])
def test_what_a_gradient_filter_removes_is_never_moved(method: str) -> None:
    """The variates of scaffold-i are filtered, too: else the steps follow what the filter removes from gradients."""
    simulation = Simulation(parse(f"{method} + gradient:high-pass(0.3)"), TASK, Local(lr=0.1), cohort=2, seed=1)
    start = simulation.start()
    moved = simulation.run(10, start).params - start.params
    kept = moved.clone()
    high_pass(0.3).apply_(kept, simulation.worker.model.layout, torch.Generator())
    assert torch.linalg.vector_norm(kept) > 0.1 and torch.linalg.vector_norm(moved - kept) < 1e-9


def test_filtered_then_clipped_variates_leave_the_private_part_to_the_norm() -> None:
    """As in a step: the filter acts on the shared part, the clip on all, and the variate is that of the shared part."""
    local = Local(lr=0.1, batch_size=1, clip=0.5)
    simulation = Simulation(parse(f"scaffold-i + gradient:high-pass(0.3) + {PRIVATE}"), TASK, local)
    layout = simulation.worker.model.layout
    state = simulation.start()
    private = layout.mask(lambda name, _: name in ("fc_weight", "bias"))
    gradient = TASK.curvatures[0] @ (state.params - TASK.optima[0])
    filtered = gradient.clone()
    high_pass(0.3).apply_(filtered, layout, torch.Generator())
    whole = torch.where(private, gradient, filtered)
    expected = torch.where(private, 0.0, whole * min(1.0, 0.5 / float(torch.linalg.vector_norm(whole))))
    simulation.round(state)
    torch.testing.assert_close(simulation.worker.store.states[0][0].parts["drift"].c, expected)


def test_filters_that_draw_keep_the_contract_beside_scaffold_i() -> None:
    check_algorithm(parse("scaffold-i + gradient:random-stop(0.2)"))
