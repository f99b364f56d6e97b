"""What blocks compute beside blocks of other slots."""

import pytest
import torch

from undrift import Local, Simulation
from undrift.compose.grammar import parse
from undrift.testing import Quadratics

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
