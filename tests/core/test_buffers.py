"""Buffers keep their dtype and their meaning, whoever trained before."""

from typing import Any

import pytest
import torch
from torch import nn

from support.own_dtypes import Everything, Language, Texts
from undrift import Local, Simulation, TensorTask, make
from undrift.core.model.flat_model import bind
from undrift.core.records.types import ServerState
from undrift.core.server.wire import fingerprint, from_bytes, to_bytes

LOCAL = Local(lr=1e-3, batch_size=4)


def test_a_state_dict_that_nothing_trained_comes_back() -> None:
    task = Texts()
    simulation = Simulation("fedavg", task, LOCAL)
    before, after = task.model().state_dict(), simulation.module(simulation.start()).state_dict()
    assert list(before) == list(after)
    for name, x in before.items():
        assert x.dtype == after[name].dtype and torch.equal(x, after[name]), name


@pytest.mark.quick
def test_two_rounds_of_every_dtype() -> None:
    simulation = Simulation(make("scaffold"), Texts(), LOCAL, cohort=4)
    state = simulation.run(2)
    module: Any = simulation.module(state)
    assert state.params.dtype == torch.float32 and state.buffers.dtype == torch.float64
    dtypes = {name: x.dtype for name, x in module.state_dict().items()}
    assert dtypes == {name: x.dtype for name, x in Texts().model().state_dict().items()}
    assert module.moment.abs().sum() > 0 and int(module.seen) == 6  # three steps a round of the largest client
    assert module.flags.tolist() == [True, False] and bool(module.language.block.mask[1, 0])
    assert module.language.head.weight is module.language.tokens.weight
    assert fingerprint(from_bytes(ServerState, make("scaffold"), to_bytes(state), len(state.params))) == fingerprint(
        state
    )
    alone = Simulation(make("scaffold"), Texts(), LOCAL)
    one = alone.round(alone.start(), [2])[0]
    alone.round(alone.start(), [1, 3])
    assert fingerprint(alone.round(alone.start(), [2])[0]) == fingerprint(one)


def test_statistics_stay_float32_under_bfloat16_weights() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[0].bfloat16()
    bound = bind(model)
    assert bound.buffers.dtype == torch.float32 and model[1].running_mean.data_ptr() == bound.buffers.data_ptr()
    low = bind(nn.BatchNorm1d(3).bfloat16())
    low.restore(torch.full_like(low.buffers, 0.25), torch.tensor([4]))
    assert low.module.running_var.dtype == torch.bfloat16 and low.module.running_var.tolist() == [0.25] * 3  # type: ignore[operator]
    assert low.statistics()[1].tolist() == [4] and int(low.module.num_batches_tracked) == 4  # type: ignore[arg-type]


def test_a_client_that_keeps_its_statistics_keeps_their_counters() -> None:
    """BatchNorm with momentum=None divides by its counter: the kept mean is that of all batches so far."""
    seen: list[float] = []

    class Norm(nn.BatchNorm1d):
        """Writes down the mean of every batch that it is trained with."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.extend([float(x.mean())] if self.training else [])
            return super().forward(x)

    inputs = torch.arange(12.0).reshape(12, 1)
    task = TensorTask(
        lambda: nn.Sequential(Norm(1, momentum=None), nn.Linear(1, 2)), inputs, inputs[:, 0].long() % 2, [[*range(12)]]
    )
    simulation = Simulation("fedbn", task, Local(lr=1e-6, batch_size=4, steps=1))
    state = simulation.run(3)
    own: Any = simulation.personal(state, 0)
    norm = own[0]
    assert int(norm.num_batches_tracked) == len(seen) == 3 and len(set(seen)) > 1
    assert float(norm.running_mean) == pytest.approx(sum(seen) / 3)


def test_what_does_not_travel_is_reset_and_may_be_absent() -> None:
    class Lazy(nn.Module):
        """Makes a buffer in its first pass; two names share another."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, shared = nn.Parameter(torch.ones(1)), torch.ones(2)
            self.register_buffer("cache", None)
            self.register_buffer("one", shared)
            self.register_buffer("two", shared)

    bound = bind(Lazy())
    module, saved = bound.module, bound.statistics()
    assert len(bound.buffers) == 2 and module.one is module.two and len(bound.others) == 2
    module.cache = torch.ones(3)
    bound.load(bound.w, *saved)
    assert module.cache is None


def test_a_loaded_state_dict_is_what_visits_start_from() -> None:
    bound, state = bind(Everything()), Everything().state_dict()
    state["flags"] = torch.tensor([True, True])
    state["moment"] = torch.full((7,), 3.0, dtype=torch.float64)
    bound.load_state({f"_orig_mod.{name}": x for name, x in state.items()})
    module: Any = bound.module
    module.flags.logical_not_()
    bound.load(bound.w, *bound.statistics())
    assert module.flags.tolist() == [True, True] and module.moment.tolist() == [3.0] * 7
    assert torch.equal(bound.layout.named(bound.w)["scale"], state["scale"])
    assert torch.equal(bound.layout.named(bound.w)["language.tokens.weight"], state["language.tokens.weight"].float())


def test_a_causal_model_learns() -> None:
    bound = bind(Language())
    batch = next(Texts().batches(5, 8, torch.Generator().manual_seed(0)))
    losses = []
    for _ in range(20):
        loss = nn.functional.cross_entropy(bound.module(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        bound.w.sub_(bound.gradient(loss), alpha=0.5)
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


def test_several_devices_are_refused() -> None:
    model = nn.BatchNorm1d(2)
    model.running_mean = torch.zeros(2, device="meta")
    with pytest.raises(ValueError, match="parameters lie on cpu, some buffers on meta; move the whole model"):
        bind(model)
