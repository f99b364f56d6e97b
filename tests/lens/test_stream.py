"""Streams: sums equal to the batch instruments, sketches within their error, any order, tensor by tensor."""

from typing import Any

import pytest
import torch
from torch import Tensor

from support.rounds import close
from undrift.blocks.spectral import high_pass, random_stop
from undrift.core.model.flat_model import Layout
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
    sketch,
    spread,
)

LAYOUT = Layout(("conv.weight", "conv.bias", "fc.weight"), ((16, 8, 3, 3), (5,), (30, 41)))


def vectors(clients: int = 12, common: float = 1.0, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    scale = torch.linspace(0.5, 2, clients, dtype=torch.float64).unsqueeze(1)
    own = torch.randn(clients, LAYOUT.size, generator=draw, dtype=torch.float64)
    return scale * own + common * torch.randn(LAYOUT.size, generator=draw, dtype=torch.float64)


def streamed(stream: Any, matrix: Tensor, clients: range | None = None) -> Any:
    for client in clients or range(len(matrix)):
        stream.add(client, matrix[client])
    return stream


def nearly(a: Tensor, b: Tensor) -> None:
    assert torch.allclose(a, b, rtol=1e-9, atol=0), f"{a} is not {b}"


@pytest.mark.parametrize("filter", [None, high_pass(0.23), random_stop(0.3)], ids=repr)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_band_sums_equal_the_batch(filter: Any, kind: torch.dtype) -> None:
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
def test_streams_merge_in_any_order(make: Any) -> None:
    """Partial streams of workers add up to the one that saw all, however clients are dealt out and partials merged."""
    matrix = vectors()

    def parts() -> Any:
        return [streamed(make(LAYOUT), matrix, some) for some in (range(0, 3), range(3, 4), range(4, 12))]

    def values(stream: Any) -> Tensor:
        if make is BandStream:
            result = stream.consensus().as_dict() | stream.drift().as_dict()
        else:
            result = (stream.spread() if make is SpreadStream else stream.divergence()).as_dict()
        return torch.tensor([value for value in result.values() if isinstance(value, float)])

    a, b, c = parts()
    left = values(a.merge(b).merge(c))
    a, b, c = parts()
    right = values(c.merge(b.merge(a)))
    nearly(left, right)
    nearly(left, values(streamed(make(LAYOUT), matrix)))
    assert c.clients == tuple(range(12))
    if make is not BandStream:
        assert torch.equal(left, right)


@pytest.mark.quick
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
    result, expected = gram.divergence(), divergence_by_layer(matrix, LAYOUT)
    for name in ("distance", "squared", "norm", "clients", "relative"):
        nearly(getattr(result, name), getattr(expected, name))
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
    for filter, result in ((None, False), (high_pass(0.1), True)):
        assert ("by construction" in streamed(SpreadStream(LAYOUT, filter=filter), matrix).spread().reading) is result
        found = streamed(GramStream(LAYOUT, filter=filter), matrix).divergence()
        assert ("by construction" in found.reading) is result


def test_errors_name_the_client_and_the_rule() -> None:
    matrix = vectors(3)
    stream = streamed(GramStream(LAYOUT), matrix)
    with pytest.raises(ValueError, match="GramStream: client 1 was added before; a client counts once"):
        stream.add(1, matrix[0])
    with pytest.raises(ValueError, match="GramStream: client 0 is in both streams"):
        stream.merge(streamed(GramStream(LAYOUT), matrix))
    with pytest.raises(ValueError, match="GramStream: only streams with the same arguments can be merged"):
        stream.merge(GramStream(LAYOUT, seed=1))
    with pytest.raises(ValueError, match="BandStream: no client has been added yet; call add first"):
        BandStream(LAYOUT).consensus()
    with pytest.raises(ValueError, match="SpreadStream: width must be 1 or more, got 0"):
        SpreadStream(LAYOUT, width=0)
    with pytest.raises(ValueError, match="SpreadStream: a pair needs two clients, got 1"):
        streamed(SpreadStream(LAYOUT), matrix[:1]).spread()
    with pytest.raises(ValueError, match="expected a vector of length 2387, got shape"):
        BandStream(LAYOUT).add(0, matrix[0, 1:])


@pytest.mark.parametrize("make", [BandStream, SpreadStream, GramStream], ids=lambda make: make.__name__)
def test_tensors_may_come_one_at_a_time(make: Any) -> None:
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
