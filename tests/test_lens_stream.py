"""Streams: sums equal to the batch instruments, sketches within their error, any order, tensor by tensor, memory."""

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from support import close
from undrift.algorithms import fedavg
from undrift.blocks.spectral import high_pass, random_stop
from undrift.engine.local import Simulation
from undrift.experiment import live
from undrift.experiment.live import glance
from undrift.lens import (
    BandStream,
    GramStream,
    SpreadStream,
    client_drift,
    consensus,
    cosines,
    divergence_by_layer,
    pca,
    pca_of_gram,
    probe,
    sketch,
    spread,
    sweep,
)
from undrift.task import TensorTask
from undrift.types import Local
from undrift.vector import Layout, bind, layout_of

LAYOUT = Layout(("conv.weight", "conv.bias", "fc.weight"), ((16, 8, 3, 3), (5,), (30, 41)))


def vectors(clients: int = 12, common: float = 1.0, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.5, 2, clients, dtype=torch.float64).unsqueeze(1)
    own = torch.randn(clients, LAYOUT.size, generator=draw, dtype=torch.float64)
    return scale * own + common * torch.randn(LAYOUT.size, generator=draw, dtype=torch.float64)


def streamed(stream, matrix: Tensor, clients: range | None = None):
    for client in clients or range(len(matrix)):
        stream.add(client, matrix[client])
    return stream


def nearly(a: Tensor, b: Tensor) -> None:
    assert torch.allclose(a, b, rtol=1e-9, atol=0), f"{a} is not {b}"


@pytest.mark.parametrize("filter", [None, high_pass(0.23), random_stop(0.3)], ids=repr)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_band_sums_equal_the_batch(filter, kind: torch.dtype) -> None:
    matrix = vectors().to(kind)
    found = streamed(BandStream(LAYOUT, bands=7, filter=filter), matrix).consensus()
    batch = consensus(matrix, LAYOUT, bands=7, filter=filter)
    assert (found.layers, found.clients) == (batch.layers, batch.clients)
    alive = batch.energy > 1e-9  # a band that a filter emptied holds its rounding errors
    for name in ("energy", "shared", "variance", "ratio"):
        nearly(getattr(found, name)[alive], getattr(batch, name)[alive])


def test_long_tensors_equal_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.lens.spectrum.LONG", 1)
    monkeypatch.setattr("undrift.lens.spectrum.BLOCK", 4)
    monkeypatch.setattr("undrift.lens.stream.CHUNK", 100)
    matrix = vectors()
    found, batch = streamed(BandStream(LAYOUT), matrix).consensus(), consensus(matrix, LAYOUT)
    for name in ("energy", "shared", "variance"):
        nearly(getattr(found, name), getattr(batch, name))


@pytest.mark.parametrize("moved", [False, True])
def test_drift_equals_the_batch(moved: bool) -> None:
    updates = vectors()
    step = vectors(1, seed=5)[0] if moved else None
    stream = streamed(BandStream(LAYOUT), updates)
    found, batch = stream.drift(step), client_drift(updates, LAYOUT, step)
    for name in ("distance", "scatter", "moved"):
        nearly(getattr(found, name), getattr(batch, name))
    nearly(stream.mean, updates.mean(dim=0))


@pytest.mark.parametrize("make", [BandStream, SpreadStream, GramStream], ids=lambda make: make.__name__)
def test_streams_merge_in_any_order(make) -> None:
    """Partial streams of workers add up to the one that saw all, however clients are dealt out and partials merged."""
    matrix = vectors()

    def parts():
        return [streamed(make(LAYOUT), matrix, some) for some in (range(0, 3), range(3, 4), range(4, 12))]

    def values(stream) -> Tensor:
        if make is BandStream:
            told = stream.consensus().as_dict() | stream.drift().as_dict()
        else:
            told = (stream.spread() if make is SpreadStream else stream.divergence()).as_dict()
        return torch.tensor([value for value in told.values() if isinstance(value, float)])

    a, b, c = parts()
    left = values(a.merge(b).merge(c))
    a, b, c = parts()
    right = values(c.merge(b.merge(a)))
    nearly(left, right)
    nearly(left, values(streamed(make(LAYOUT), matrix)))
    assert c.clients == tuple(range(12))
    if make is not BandStream:
        assert torch.equal(left, right)


def test_sketches_of_small_cells_are_exact() -> None:
    """With room for every number of a band the stream is the batch instrument."""
    matrix = vectors(5)
    found, batch = streamed(SpreadStream(LAYOUT, width=130), matrix).spread(), spread(matrix, LAYOUT)
    for name in ("distance", "variance"):
        nearly(getattr(found, name), getattr(batch, name))
    close(found.deviation, batch.deviation, 1e-6)
    gram = streamed(GramStream(LAYOUT, width=1300), matrix)
    nearly(gram.gram(), matrix @ matrix.T)
    nearly(gram.cosines(), cosines(matrix))
    told, expected = gram.divergence(), divergence_by_layer(matrix, LAYOUT)
    for name in ("distance", "squared", "norm", "clients", "relative"):
        nearly(getattr(told, name), getattr(expected, name))
    close(pca_of_gram(gram.gram())[0], pca({"": matrix}).points[""], 1e-6)


def test_sketched_spread_is_within_its_error_and_without_bias() -> None:
    matrix = vectors(20)
    batch = spread(matrix, LAYOUT)
    tries = [streamed(SpreadStream(LAYOUT, width=8, seed=seed), matrix).spread() for seed in range(15)]
    one = torch.stack([(found.distance / batch.distance - 1).abs() for found in tries])
    assert float(one.max()) < 0.25  # 1 / sqrt(16), the error of a single pair
    mean = torch.stack([found.distance for found in tries]).mean(dim=0)
    assert float((mean / batch.distance - 1).mean().abs()) < 0.01
    overall = torch.stack([found.overall["deviation"] for found in tries]).mean(dim=0)
    assert float((overall / batch.overall["deviation"] - 1).abs().max()) < 0.15


def test_sketched_inner_products_are_within_their_error_and_without_bias() -> None:
    matrix = vectors(10)
    exact = matrix @ matrix.T
    scale = matrix.norm(dim=1).outer(matrix.norm(dim=1))
    errors = torch.stack([(streamed(GramStream(LAYOUT, seed=s), matrix).gram() - exact) / scale for s in range(20)])
    assert float(errors.square().mean().sqrt()) < 1 / 64**0.5
    assert float(errors.mean().abs()) < 0.03
    found = streamed(GramStream(LAYOUT), matrix).cosines()
    assert float((found - cosines(matrix)).abs().max()) < 3 / 64**0.5


def test_a_filter_is_told_in_the_reading() -> None:
    matrix = vectors(3)
    for filter, told in ((None, False), (high_pass(0.1), True)):
        assert ("by construction" in streamed(SpreadStream(LAYOUT, filter=filter), matrix).spread().reading) is told
        found = streamed(GramStream(LAYOUT, filter=filter), matrix).divergence()
        assert ("by construction" in found.reading) is told


def test_errors_name_the_client_and_the_rule() -> None:
    matrix = vectors(3)
    stream = streamed(GramStream(LAYOUT), matrix)
    with pytest.raises(ValueError, match="GramStream: client 1 was added before; a client counts once"):
        stream.add(1, matrix[0])
    with pytest.raises(ValueError, match="GramStream: client 0 is in both streams"):
        stream.merge(streamed(GramStream(LAYOUT), matrix))
    with pytest.raises(ValueError, match="GramStream: only streams with the same arguments can be merged"):
        stream.merge(GramStream(LAYOUT, seed=1))
    with pytest.raises(ValueError, match="BandStream: no client was added yet"):
        BandStream(LAYOUT).consensus()
    with pytest.raises(ValueError, match="SpreadStream: width must be 1 or more, got 0"):
        SpreadStream(LAYOUT, width=0)
    with pytest.raises(ValueError, match="SpreadStream: a pair needs two clients, got 1"):
        streamed(SpreadStream(LAYOUT), matrix[:1]).spread()
    with pytest.raises(ValueError, match="expected a vector of length 2387, got shape"):
        BandStream(LAYOUT).add(0, matrix[0, 1:])


@pytest.mark.parametrize("make", [BandStream, SpreadStream, GramStream], ids=lambda make: make.__name__)
def test_tensors_may_come_one_at_a_time(make) -> None:
    """In any order, and with nothing for a tensor that is zero."""
    matrix = vectors(4)
    matrix[:, LAYOUT.sizes[0] : LAYOUT.sizes[0] + 5] = 0
    whole, parts = streamed(make(LAYOUT), matrix), make(LAYOUT)
    for client, vector in enumerate(matrix):
        take, pieces = parts.begin(client, torch.float64), LAYOUT.split(vector)
        take(2, pieces[2])
        take(0, pieces[0])
    assert all(torch.equal(whole.rows[client], parts.rows[client]) for client in range(4))
    if make is BandStream:
        assert torch.equal(whole.total, parts.total) and torch.equal(whole.sums, parts.sums)


def test_tensors_that_do_not_fit_are_refused() -> None:
    stream = GramStream(LAYOUT)
    take = stream.begin(3)
    with pytest.raises(ValueError, match=r"conv\.bias: expected 5 elements, got shape \(4,\)"):
        take(1, torch.zeros(4))
    with pytest.raises(ValueError, match="GramStream: client 3 was added before; a client counts once"):
        stream.begin(3)
    with pytest.raises(ValueError, match=r"BandStream: .*0\.1.* needs whole vectors: use add"):
        BandStream(LAYOUT, filter=high_pass(0.1)).begin(0)


def test_sketches_have_the_precision_of_the_vectors() -> None:
    matrix = vectors(6)
    for make, read in ((SpreadStream, "spread"), (GramStream, "divergence")):
        double, single = streamed(make(LAYOUT), matrix), streamed(make(LAYOUT), matrix.float())
        assert double.rows[0].dtype == torch.float64 and single.rows[0].dtype == torch.float32
        found, expected = getattr(single, read)().distance, getattr(double, read)().distance
        assert found.dtype == torch.float64 and torch.allclose(found, expected, rtol=1e-5)


def test_signs_are_packed_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = sketch._bits(10_001, seed=3)
    signs = sketch._signs(bits, 0, 10_001)
    assert len(bits) == 1251 and bits.dtype == torch.uint8
    assert signs.abs().eq(1).all() and abs(int(signs.sum())) < 400  # four standard deviations
    assert torch.equal(sketch._signs(bits, 13, 100), signs[13:113])
    monkeypatch.setattr(sketch, "CHUNK", 64)
    assert torch.equal(sketch._bits(10_001, seed=3), bits)


# Gradients, tensor by tensor


class Odd(nn.Module):
    """Draws at random, keeps statistics, and has a layer that the loss does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.unused = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(4, 7)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(nn.functional.dropout(self.norm(self.first(x)).relu().mean(dim=(2, 3)), 0.3, self.training))


def odd() -> Simulation:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 3, 6, 6, generator=draw).to(memory_format=torch.channels_last)
    task = TensorTask(Odd, inputs, torch.arange(40) % 3, torch.arange(40).split(10))
    return Simulation(fedavg(), task, Local(batch_size=8, epochs=1, lr=0.1))


@pytest.mark.parametrize("lent", [False, True])
def test_a_sweep_gives_the_gradients_of_a_probe_and_leaves_no_trace(lent: bool) -> None:
    simulation = odd()
    state = simulation.run(2)
    expected = probe(simulation, state, [0, 2], samples=8)
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
    assert bound.w.data_ptr() == own.w.data_ptr() and bound.layout == own.layout == layout_of(module)
    bound.check()
    assert torch.equal(module.first.weight, own.module.first.weight)
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
    with pytest.raises(ValueError, match="probe: clients must be some that have examples; got no client"):
        sweep(simulation, state, [], lambda _: take)


def test_a_large_model_is_looked_at_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the sums at a time, and the same numbers."""
    simulation = odd()
    state, layout = simulation.run(1), simulation.worker.model.layout
    look = partial(glance, simulation.job, state, [0, 2, 3], layout, ("spectrum", "divergence"))
    whole = look()
    monkeypatch.setattr(live, "LARGE", 1)
    assert live.halves(LAYOUT) == [slice(0, 2), slice(2, 3)]
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
from undrift.engine.local import Simulation
from undrift.experiment.live import glance
from undrift.lens import BandStream, GramStream, SpreadStream
from undrift.task import TensorTask
from undrift.types import Local
from undrift.vector import Layout, bind
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
    return growth(lambda: glance(simulation.job, state, [0, 1], model.layout, parts, model), model.layout.size)

makes = {"bands": [BandStream], "spread": [SpreadStream], "gram": [GramStream]}
makes["all"] = [BandStream, SpreadStream, GramStream]
for tensors in (1, 5):  # the first loads the libraries' code
    layout = Layout(tuple("abcde"[:tensors]), ((512, 1024),) * tensors)
    found = {name: feed(some, layout) for name, some in makes.items()}
    found["look"] = look(512 if tensors == 5 else 256)
print(json.dumps(found))
"""


def test_streams_and_a_whole_look_stay_within_three_models() -> None:
    """The sum of a BandStream is two; a look holds half of it, a tensor's gradient and its spectrum, and no model."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of a process begins anew on Linux only")
    given_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed does not count
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, env=given_back)
    found = json.loads(done.stdout)
    assert found["look"] < 2.2 and found["bands"] < 2.8 and found["all"] < 3.0, found
    assert found["spread"] < 1.0 and found["gram"] < 0.7, found
