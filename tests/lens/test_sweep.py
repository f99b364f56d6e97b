"""Gradients tensor by tensor: as client_vectors gives them, no trace, looks in halves, the memory of a look."""

import json
import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from undrift.algorithms import fedavg
from undrift.core.model.flat_model import Layout, bind, layout_of
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.lens import client_vectors, sweep
from undrift.observe import live
from undrift.observe.live import measure_state


class Odd(nn.Module):
    """Draws at random, keeps statistics, and has a layer that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.unused = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(4, 7)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(
            nn.functional.dropout(self.norm(self.first(x)).relu().mean(dim=(2, 3)), 0.3, self.training)
        )
        return out


def odd() -> Simulation:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 3, 6, 6, generator=draw).to(memory_format=torch.channels_last)
    task = TensorTask(Odd, inputs, torch.arange(40) % 3, torch.arange(40).split(10))
    return Simulation(fedavg(), task, Local(batch_size=8, epochs=1, lr=0.1))


@pytest.mark.parametrize("lent", [False, True])
def test_a_sweep_gives_the_gradients_of_a_probe_and_leaves_no_trace(lent: bool) -> None:
    simulation = odd()
    state = simulation.run(2)
    expected = client_vectors(simulation, state, [0, 2], samples=8)
    model = bind(simulation.task.model().eval()) if lent else None
    lasting = [state.params, state.buffers, torch.get_rng_state(), *((model.w, model.buffers) if model else ())]
    before = [x.clone() for x in lasting]
    found: dict[int, dict[int, Tensor]] = {0: {}, 2: {}}
    sweep(simulation, state, [0, 2], lambda client: found[client].__setitem__, model)
    layout = simulation.worker.model.layout
    for client, vector in zip(found, expected, strict=True):
        pieces = dict(enumerate(layout.split(vector)))
        unused = {i for i, name in enumerate(layout.names) if name.startswith("unused")}
        assert found[client].keys() == pieces.keys() - unused and not any(pieces[i].any() for i in unused)
        for i, piece in found[client].items():
            assert piece.is_contiguous() and torch.allclose(piece, pieces[i], rtol=1e-6, atol=1e-9)
    lasting[2] = torch.get_rng_state()
    assert all(torch.equal(a, b) for a, b in zip(before, lasting, strict=True))
    if model is not None:
        model.check()
        assert not any(part.training for part in model.module.modules())
        assert all(p.grad is None for p in model.parameters)


def test_a_model_may_live_in_a_vector_that_is_there() -> None:
    module, own = Odd(), bind(Odd())
    bound = bind(module, own.w)
    theirs: Any = own.module
    assert bound.w.data_ptr() == own.w.data_ptr() and bound.layout == own.layout == layout_of(module)
    bound.check()
    assert torch.equal(module.first.weight, theirs.first.weight)
    with pytest.raises(ValueError, match="expected a vector of length"):
        bind(Odd(), own.w[1:])


def test_a_sweep_that_fails_gives_the_model_back() -> None:
    simulation = odd()
    state, model = simulation.start(), bind(simulation.task.model().eval())

    def take(place: int, _: Tensor) -> None:
        raise ValueError(f"no more of {place}")

    with pytest.raises(ValueError, match="no more of"):
        sweep(simulation, state, [0], lambda _: take, model)
    model.check()
    assert not model.module.training and not any(p._backward_hooks for p in model.parameters)
    with pytest.raises(ValueError, match="client_vectors: clients must be some that have examples; got no client"):
        sweep(simulation, state, [], lambda _: take)


def test_a_large_model_is_looked_at_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the sums at a time, and the same numbers."""
    simulation = odd()
    state, layout = simulation.run(1), simulation.worker.model.layout
    look = partial(measure_state, simulation.job, state, [0, 2, 3], layout, ("spectrum", "divergence"))
    whole = look()
    monkeypatch.setattr(live, "LARGE", 1)
    assert live.halves(Layout(("a", "b", "c"), ((40, 30), (5,), (30, 41)))) == [slice(0, 2), slice(2, 3)]
    assert live.halves(Layout(("a", "b"), ((99, 99), (99,)))) == [slice(0, 2)]  # the second would be too small
    assert live.halves(Layout(("a",), ((99, 99),))) == [slice(0, 1)]
    monkeypatch.setattr(live, "halves", lambda _: [slice(0, 3), slice(3, len(layout.sizes))])
    found = look()
    assert found["divergence"] == whole["divergence"]
    assert found["consensus"] == pytest.approx(whole["consensus"], rel=1e-12)
    assert found["drift"] == pytest.approx(whole["drift"], rel=1e-12)


# Memory: five tensors of 512 x 1024, so that one is a fifth of the model


MEASURE = """
import json, torch
from torch import nn
from undrift.algorithms import fedavg
from undrift.engine.round.simulation import Simulation
from undrift.observe.live import measure_state
from undrift.lens import BandStream, GramStream, SpreadStream
from undrift.core.tasks.tensor_task import TensorTask
from undrift.core.records.types import Local
from undrift.core.model.flat_model import Layout, bind
torch.set_num_threads(1)

def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(name))

def growth(act, size):
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = resident("VmRSS")
    act()
    return (resident("VmHWM") - before) / (4 * size)

def feed(makes, layout):
    v = torch.ones(layout.size)
    def act():
        streams = [make(layout) for make in makes]
        for client in range(2):
            for stream in streams:
                stream.add(client, v)
        for stream in streams:
            for reading in ("consensus", "drift", "spread", "divergence"):
                getattr(stream, reading, list)()
    return growth(act, layout.size)

def look(width):
    module = nn.Sequential(*[nn.Linear(width * (1 + n % 2), width * (2 - n % 2)) for n in range(5)])
    task = TensorTask(lambda: module, torch.ones(8, width), torch.arange(8) % 2, torch.arange(8).split(4))
    simulation = Simulation(fedavg(), task, Local(batch_size=4))
    state, model = simulation.start(), bind(module)
    parts = ("spectrum", "divergence")
    return growth(lambda: measure_state(simulation.job, state, [0, 1], model.layout, parts, model), model.layout.size)

makes = {"bands": [BandStream], "spread": [SpreadStream], "gram": [GramStream]}
makes["all"] = [BandStream, SpreadStream, GramStream]
for tensors in (1, 5):  # the first loads the libraries' code
    layout = Layout(tuple("abcde"[:tensors]), ((512, 1024),) * tensors)
    found = {name: feed(some, layout) for name, some in makes.items()}
    found["look"] = look(512 if tensors == 5 else 256)
print(json.dumps(found))
"""


@pytest.mark.sweep(every=0)
def test_streams_and_a_whole_look_stay_within_three_models() -> None:
    """The sum of a BandStream is two; a look holds half of it, a tensor's gradient and its spectrum, and no model."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of a process begins anew on Linux only")
    given_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed does not count
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, env=given_back)
    found = json.loads(done.stdout)
    assert found["look"] < 2.2 and found["bands"] < 2.8 and found["all"] < 3.0, found
    assert found["spread"] < 1.0 and found["gram"] < 0.7, found


def test_gradients_of_a_lent_model_are_neither_added_to_nor_left() -> None:
    """A model that its owner trains has gradients of its own; a failure leaves none of the sweep's."""
    simulation = odd()
    state, model = simulation.start(), bind(simulation.task.model().eval())
    clean: dict[int, Tensor] = {}
    sweep(simulation, state, [0], lambda _: clean.__setitem__, model)
    for p in model.parameters:
        p.grad = torch.ones_like(p)
    own, found = [p.grad for p in model.parameters], dict[int, Tensor]()
    sweep(simulation, state, [0], lambda _: found.__setitem__, model)
    assert all(torch.equal(found[i], x) for i, x in clean.items()) and found.keys() == clean.keys()
    assert all(p.grad is x and bool((x == 1).all()) for p, x in zip(model.parameters, own, strict=True))  # type: ignore[union-attr]

    def refuse(place: int, _: Tensor) -> None:
        raise ValueError(f"no more of {place}")

    for p in model.parameters:
        p.grad = None
    with pytest.raises(ValueError, match="no more of"):
        sweep(simulation, state, [0], lambda _: refuse, model)
    assert all(p.grad is None for p in model.parameters)
