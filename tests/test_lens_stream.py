"""Streams: sums equal to the batch instruments, sketches within their error, merging in any order, memory."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from support import close
from undrift.blocks.spectral import high_pass, random_stop
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
    spread,
)
from undrift.vector import Layout

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


MEASURE = """
import resource, torch
from undrift.lens import BandStream
from undrift.vector import Layout
torch.set_num_threads(1)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
def growth(layout):
    v, before = torch.ones(layout.size), peak()
    stream = BandStream(layout)
    for client in range(2):
        stream.add(client, v)
    stream.consensus(), stream.drift()
    return (peak() - before) / (4 * layout.size)
growth(Layout(("a", "b"), ((512, 512), (64,))))  # so that the libraries' code is loaded
print(growth(Layout(tuple("abcde"), ((512, 1024),) * 5)))
"""


def test_a_stream_stays_within_three_models() -> None:
    pytest.importorskip("resource")
    given_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed does not count
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, env=given_back)
    assert float(done.stdout) < 3.0  # the sum in double precision alone is two
