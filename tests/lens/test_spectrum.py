"""Bands, divergence, drift and probes: against explicit transforms and explicit pairs, and the sheet's identities."""

from dataclasses import replace
from itertools import combinations, pairwise
from math import sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from support.rounds import close
from undrift import make
from undrift.blocks import SAM, Private
from undrift.blocks.spectral import high_pass, low_pass, random_stop
from undrift.core.method.algorithm import Algorithm
from undrift.core.model.flat_model import Layout, unit
from undrift.core.records.types import Local
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.engine.round.simulation import Simulation
from undrift.lens import (
    agreement,
    client_drift,
    client_vectors,
    consensus,
    divergence_by_layer,
    filtering,
    gradient_drift,
    spread,
)
from undrift.lens.spectrum import band_energy, banded_tensors, edges, long_band_energy
from undrift.observe.live import _divergence
from undrift.testing import Clinic, Quadratics
from undrift.testing.rounds import states_of

LAYOUT = Layout(("conv.weight", "conv.bias", "fc.weight"), ((4, 2, 3, 3), (4,), (5, 7)))
SIZES = (72, 4, 35)


def vectors(clients: int = 5, seed: int = 0, common: float = 0.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    own = torch.randn(clients, LAYOUT.size, generator=draw, dtype=torch.float64)
    return own + common * torch.randn(LAYOUT.size, generator=draw, dtype=torch.float64)


def transform(x: Tensor) -> np.ndarray:
    """The bins 0 .. floor(d/2) by the definition of the transform."""
    d = len(x)
    return np.array([sum(float(x[j]) * np.exp(-2j * np.pi * j * k / d) for j in range(d)) for k in range(d // 2 + 1)])


def cells(matrix: Tensor, bands: int) -> list[list[list[np.ndarray]]]:
    """Layer by layer and band by band every client's bins, by the definition; layers with too few bins are left out."""
    out = []
    for piece in torch.split(matrix, SIZES, dim=1):  # type: ignore[arg-type]
        bins = [transform(row) for row in piece]
        count = piece.shape[1] // 2 + 1
        if count >= bands:
            cuts = [int(np.floor(b * count / bands)) for b in range(bands + 1)]
            out.append([[v[a:b] for v in bins] for a, b in pairwise(cuts)])
    return out


def test_spread_is_that_of_explicit_pairs() -> None:
    matrix, bands = vectors(), 10
    found = spread(matrix, LAYOUT)
    assert found.layers == ("conv.weight", "fc.weight")
    every: dict[int, list[Any]] = {b: [] for b in range(bands)}
    for n, layer in enumerate(cells(matrix, bands)):
        for b, clients in enumerate(layer):
            pairs = [np.linalg.norm(x - y) for x, y in combinations(clients, 2)]
            every[b] += pairs
            mean = np.mean(clients, axis=0)
            close(found.distance[n, b], np.mean(pairs))
            close(found.deviation[n, b], np.std(pairs))
            close(found.variance[n, b], np.mean([np.abs(x - mean) ** 2 for x in clients]))
    overall = found.overall
    close(overall["distance"], [np.mean(every[b]) for b in range(bands)])
    close(overall["deviation"], [np.std(every[b]) for b in range(bands)])
    close(overall["variance"], found.variance.mean(dim=0))
    close(overall["normalised"], overall["distance"] / sqrt(float(overall["distance"].square().sum())))
    close(found.normalised.square().sum(dim=1), [1.0, 1.0])


def test_squared_pair_distances_follow_from_the_variance() -> None:
    """sum_{j<k} ||a_j - a_k||^2 = C sum_k ||a_k - mean||^2, in every band."""
    matrix = vectors(6)
    found = spread(matrix, LAYOUT, bands=7)
    widths = torch.tensor([edges(size, 7) for size in (72, 35)]).diff(dim=1)
    pairs = 15 * (found.distance.square() + found.deviation.square())
    close(pairs, 6 * 6 * found.variance * widths)


def test_consensus_is_the_energy_of_the_mean_over_the_mean_energy() -> None:
    matrix = vectors(4, common=0.7)
    found = consensus(matrix, LAYOUT, bands=5)
    for n, (layer, size) in enumerate(zip(cells(matrix, 5), (72, 35), strict=True)):
        for b, clients in enumerate(layer):
            start = edges(size, 5)[b]
            twice = [1 if k == 0 or 2 * k == size else 2 for k in range(start, start + len(clients[0]))]
            energy = [float(np.sum(twice * np.abs(x) ** 2)) / size for x in (*clients, np.mean(clients, axis=0))]
            close(found.energy[n, b], np.mean(energy[:4]))
            close(found.ratio[n, b], energy[4] / np.mean(energy[:4]))
    close(found.variance, spread(matrix, LAYOUT, bands=5).variance)


def test_bands_add_up_to_the_vectors() -> None:
    matrix = vectors(3)
    found = consensus(matrix, LAYOUT)
    layers = [piece for piece, size in zip(torch.split(matrix, SIZES, dim=1), SIZES, strict=True) if size > 18]  # type: ignore[arg-type]
    close(found.energy.sum(dim=1), [float(x.square().sum(dim=1).mean()) for x in layers])
    close(found.shared.sum(dim=1), [float(x.mean(dim=0).square().sum()) for x in layers])


def test_equal_clients_agree_and_opposite_ones_cancel() -> None:
    one = vectors(1)
    same = consensus(one.expand(4, -1), LAYOUT)
    close(same.overall["ratio"], torch.ones(10))
    close(same.overall["agreement"], torch.ones(10))
    close(same.variance, torch.zeros(2, 10))
    opposite = consensus(torch.cat([one, -one]), LAYOUT)
    close(opposite.overall["ratio"], torch.zeros(10))
    close(opposite.overall["agreement"], -torch.ones(10))
    assert float(spread(one.expand(4, -1), LAYOUT).overall["normalised"].abs().max()) == 0


def test_independent_clients_have_no_agreement_however_many() -> None:
    for clients in (5, 40):
        found = consensus(vectors(clients, seed=3), LAYOUT)
        ratio = found.shared.sum() / found.energy.sum()
        assert float(ratio) == pytest.approx(1 / clients, rel=0.35)
        assert abs(float(agreement(ratio, clients))) < 0.08


def test_a_filter_removes_its_bands_and_lowers_every_distance_by_construction() -> None:
    matrix = vectors(common=1.0)
    before, after = spread(matrix, LAYOUT), spread(matrix, LAYOUT, filter=high_pass(0.35))
    close(after.distance[:, :3], torch.zeros(2, 3), 1e-12)
    close(after.distance[:, 4:], before.distance[:, 4:])
    assert bool((after.distance <= before.distance + 1e-12).all())
    assert "by construction" in after.reading and "by construction" not in before.reading
    whole, less = divergence_by_layer(matrix, LAYOUT), divergence_by_layer(matrix, LAYOUT, filter=high_pass(0.35))
    assert bool((less.distance <= whole.distance + 1e-12).all())
    assert "by construction" in less.reading
    assert consensus(matrix, LAYOUT, filter=high_pass(0.35)).overall["energy_share"][:3].sum() < 1e-20


def test_filtering_tells_a_band_that_is_shared_from_one_that_is_not() -> None:
    """Clients share their low half and not the rest: removing the low half loses what they share."""
    common, own = vectors(1)[0], vectors(8, seed=1)
    low, high = low_pass(0.5), high_pass(0.5)
    matrix = torch.stack([low(common, LAYOUT) + high(v, LAYOUT) for v in own])
    bad, good = filtering(matrix, LAYOUT, high), filtering(matrix, LAYOUT, low)
    assert bad["agreement/removed"] > 0.85 > 0.2 > bad["agreement/kept"]
    assert bad["gain"] < -0.2 < 0.2 < good["gain"]
    kept_mean = torch.stack([high(v, LAYOUT) for v in matrix]).mean(dim=0).square().sum()
    kept_energy = torch.stack([high(v, LAYOUT) for v in matrix]).square().sum(dim=1).mean()
    close(bad["ratio/kept"], kept_mean / kept_energy)
    close(bad["energy_removed"], 1 - kept_energy / matrix.square().sum(dim=1).mean())
    nothing = filtering(matrix, LAYOUT, high_pass(0.0))
    assert (nothing["gain"], nothing["agreement/removed"], nothing["energy_removed"]) == (0.0, 0.0, 0.0)


def test_a_random_filter_has_a_generator_for_every_client() -> None:
    matrix = vectors(3)
    first, again = (spread(matrix, LAYOUT, filter=random_stop(0.5), seed=4) for _ in range(2))
    assert torch.equal(first.distance, again.distance)
    assert not torch.equal(first.distance, spread(matrix, LAYOUT, filter=random_stop(0.5), seed=5).distance)


def test_records_are_flat() -> None:
    result = spread(vectors(), LAYOUT, bands=3).as_dict()
    assert result["conv.weight/distance/2"] == float(spread(vectors(), LAYOUT, bands=3).distance[0, 2])
    assert {"distance/0", "normalised/2", "fc.weight/normalised/1", "reading"} <= result.keys()
    assert all(isinstance(x, float | str) for x in result.values())
    assert {"ratio/0", "agreement/1", "conv.weight/shared/2"} <= consensus(vectors(), LAYOUT, bands=3).as_dict().keys()
    result = divergence_by_layer(vectors(), LAYOUT).as_dict()
    assert {"distance", "relative", "conv.bias/relative", "reading"} <= result.keys()


@pytest.mark.parametrize("size", [64 * 65, 64 * 67, 65 * 67, 80 * 80, 4099])
def test_long_sequences_are_transformed_in_blocks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undrift.lens.spectrum.LONG", 1)
    x = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=torch.float64) + 1
    expected = band_energy(torch.fft.rfft(x).abs().square(), size, 10)
    for a, b in zip(long_band_energy(x, 10), expected, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=0)


def test_single_precision_is_computed_in_double() -> None:
    matrix = vectors(common=1e3).float()
    close(spread(matrix, LAYOUT).distance, spread(matrix.double(), LAYOUT).distance, 1e-14)


def test_divergence_by_the_definition() -> None:
    matrix, filter = vectors(), high_pass(0.2)
    found = divergence_by_layer(matrix, LAYOUT, filter=filter)
    mean = LAYOUT.split(filter(matrix.mean(dim=0), LAYOUT))
    for n, center in enumerate(mean):
        gaps = [float((LAYOUT.split(filter(v, LAYOUT))[n] - center).norm()) for v in matrix]
        close(found.distance[n], np.mean(gaps))
        close(found.relative[n], np.mean(gaps) / float(center.norm()))
        close(found.squared[n], np.mean(np.square(gaps)))
    close(divergence_by_layer(matrix, LAYOUT).clients, gradient_drift(matrix))
    pairs = sum(float((a - b).square().sum()) for a, b in combinations(matrix, 2))
    close(len(matrix) * gradient_drift(matrix).square().sum(), pairs)


def test_divergence_of_clients_that_cancel_is_infinite_and_of_equal_ones_zero() -> None:
    one = vectors(1)
    assert torch.isinf(divergence_by_layer(torch.cat([one, -one]), LAYOUT).relative).all()
    assert float(divergence_by_layer(torch.zeros(2, LAYOUT.size), LAYOUT).relative.abs().max()) == 0


def test_drift_has_two_measures_with_two_names() -> None:
    updates, moved = vectors(), vectors(1, seed=9)[0]
    found = client_drift(updates, LAYOUT, moved)
    close(found.distance[-1], np.mean([float(v.norm()) for v in updates]))
    close(found.scatter[-1], np.mean([float((v - moved).square().sum()) for v in updates]))
    close(found.distance[1], np.mean([float(v[72:76].norm()) for v in updates]))
    close(found.scatter[:-1].sum(), found.scatter[-1])
    close(client_drift(updates, LAYOUT).scatter[-1], divergence_by_layer(updates, LAYOUT).squared.sum())
    result = found.as_dict()
    assert list(result)[:3] == ["distance", "scatter", "moved"] and result["fc.weight/moved"] == float(found.moved[2])


def test_errors_name_the_rule_and_the_value() -> None:
    with pytest.raises(ValueError, match=r"spread: vectors must be at least 2 rows.*got shape \(1, 111\)"):
        spread(vectors(1), LAYOUT)
    with pytest.raises(ValueError, match="consensus: a vector must have the 111 elements of the layout, got 110"):
        consensus(vectors()[:, 1:], LAYOUT)
    with pytest.raises(ValueError, match="gradient_drift: vectors must be"):
        gradient_drift([])
    with pytest.raises(ValueError, match="bands must be 1 or more, got 0"):
        banded_tensors(LAYOUT, 0)
    with pytest.raises(ValueError, match="no tensor has the 78 elements that 40 bands need; the largest has 72: take"):
        banded_tensors(LAYOUT, 40)
    with pytest.raises(ValueError, match="take a larger model, or in Python bands=37 or fewer"):
        banded_tensors(LAYOUT, 40)


def test_probe_gives_the_gradients_at_the_model() -> None:
    task = Quadratics.random(sizes=[3, 1, 2, 5, 1, 1])
    simulation = Simulation(Algorithm(), task, Local(lr=0.1, batch_size=2))
    state = simulation.run(2)
    found = client_vectors(simulation, state, [0, 3, 5])
    for row, k in zip(found, [0, 3, 5], strict=True):
        close(row, task.curvatures[k] @ (state.params - task.optima[k]))
    close(client_vectors(simulation.job, state, [0, 3, 5]), found)


def test_probe_averages_over_examples_and_caps_them() -> None:
    task = Clinic(dtype=torch.float64)
    simulation = Simulation(Algorithm(), task, Local(lr=0.1, batch_size=4))
    state = simulation.start()
    job = replace(simulation.job, local=Local(batch_size=12))
    whole, capped = (
        client_vectors(job, state, [4], samples=None)[0],
        client_vectors(simulation, state, [4], samples=4)[0],
    )
    model = simulation.module(state).train()
    x, y = task._data(4)
    expected = torch.autograd.grad(task.loss(model, (x, y, 1.0)), list(model.parameters()))
    close(whole, torch.cat([g.flatten() for g in expected]))
    assert not torch.allclose(whole, capped)
    assert torch.equal(capped, client_vectors(simulation, state, [4], samples=4)[0])


@pytest.mark.sweep(every=2)
@pytest.mark.parametrize("name", ["fedsam", "fedfft-d", "fedlesam-d", "fedgamma"])
def test_probed_updates_are_those_of_the_next_round_and_change_nothing(name: str) -> None:
    """Also for methods with client state, which is read and not written."""
    task, local = Clinic(), Local(lr=0.1, batch_size=4, epochs=2)
    plain, probed = (Simulation(make(name), task, local, seed=3) for _ in range(2))
    clients, state, other = [0, 3, 4], plain.start(), probed.start()
    for _ in range(3):
        before, random = other.params.clone(), torch.get_rng_state()
        found = client_vectors(probed, other, clients, "update")
        for what in ("gradient", "perturbation"):
            assert client_vectors(probed, other, clients, what).shape == found.shape
        assert torch.equal(before, other.params) and torch.equal(random, torch.get_rng_state())
        sent = server.send(plain.job.algorithm, state, plain.job.setting)
        for row, client in zip(found, clients, strict=True):
            gate = Gate(plain.job.algorithm, local, sent, [client])
            assert torch.equal(row, plain.worker.visit(client, sent, state.accepted.get(client), gate).delta)  # type: ignore[union-attr]
        assert states_of(probed).keys() == (set(clients) if other.accepted else set())
        state, _ = plain.round(state, clients)
        other, _ = probed.round(other, clients)
        assert torch.equal(state.params, other.params)


def test_probed_perturbations_are_the_first_offsets_after_the_filter() -> None:
    task = Quadratics.random()
    local, filter = Local(lr=0.1), high_pass(0.2)
    for algorithm in (Algorithm(perturbation=SAM(0.3)), make("fedfft", rho=0.3, r=0.2)):
        simulation = Simulation(algorithm, task, local)
        state = simulation.start()
        layout = simulation.worker.model.layout
        gradients, found = (client_vectors(simulation, state, [1, 2], what) for what in ("gradient", "perturbation"))
        for g, offset in zip(gradients, found, strict=True):
            expected = 0.3 * unit(g)
            close(offset, filter(expected, layout) if algorithm.fills("spectral") else expected)


def test_a_private_part_is_not_filtered() -> None:
    task, filter = Quadratics.random(), high_pass(0.3)
    plain = make("fedfft", rho=0.3, r=0.3)
    private = replace(plain, personalization=Private(("fc_weight",)))
    state = Simulation(plain, task).start()
    raw = client_vectors(Simulation(Algorithm(perturbation=SAM(0.3)), task), state, [1], "perturbation")[0]
    found = client_vectors(Simulation(private, task), state, [1], "perturbation")[0]
    layout = Simulation(plain, task).worker.model.layout
    close(layout.named(found)["fc_weight"], layout.named(raw)["fc_weight"])
    close(layout.named(found)["conv_weight"], layout.named(filter(raw, layout))["conv_weight"])


def test_probe_refuses_what_it_cannot_take() -> None:
    simulation = Simulation(Algorithm(), Clinic())
    state = simulation.start()
    with pytest.raises(ValueError, match='what must be "gradient", "perturbation" or "update", got \'weights\''):
        client_vectors(simulation, state, [0], "weights")
    with pytest.raises(ValueError, match=r"Algorithm\(\) has no perturbation; fill the slot"):
        client_vectors(simulation, state, [0], "perturbation")
    with pytest.raises(ValueError, match="client 1 has none: leave it out"):
        client_vectors(simulation, state, [0, 1])
    with pytest.raises(ValueError, match="got no client"):
        client_vectors(simulation, state, [])
    with pytest.raises(ValueError, match="samples must be 1 or more, or None for all, got 0"):
        client_vectors(simulation, state, [0], samples=0)


def test_clients_that_did_not_move_do_not_differ() -> None:
    found = divergence_by_layer(torch.zeros_like(vectors()), LAYOUT).as_dict()
    assert found["relative"] == found["distance"] == 0.0
    still: Any = SimpleNamespace(layers=("a", "b"), scatter=torch.zeros(3), moved=torch.zeros(3))
    assert _divergence([still])["divergence"]["relative"] == [0.0, 0.0]
