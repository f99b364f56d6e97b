"""Noise in shares: its distribution, its variance for every set of survivors, and that secure sums hide the rest."""

from dataclasses import replace
from functools import partial
from math import exp, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from undrift import Local, Secure, Simulation, parse
from undrift.blocks import PrivateShares
from undrift.blocks.release.shares import draw_discrete
from undrift.core.model.random import generator
from undrift.core.records.types import Broadcast
from undrift.core.server import step as server
from undrift.core.server.wire import fingerprint
from undrift.engine.round import secure_round
from undrift.engine.worker.partial_sum import Partial
from undrift.privacy import gaussian_epsilon
from undrift.runs import Config, load_run, start
from undrift.secure.exchange import STEPS, add_uploads
from undrift.testing.tasks import Quadratics

TASK = Quadratics.random(12)
LOCAL = Local(lr=0.05, batch_size=4, steps=3)


def simulate(method: str, **settings: Any) -> Simulation:
    return Simulation(method, TASK, LOCAL, **{"cohort": 8, "seed": 3, **settings})


def drawn(deviation: int, count: int = 100_000) -> Tensor:
    return draw_discrete(count, deviation, generator(5, 0, 0, f"test {deviation}")).double()


@pytest.mark.quick
@pytest.mark.parametrize("deviation", [1, 3, 64, 1000, 1 << 20])
def test_discrete_noise_has_its_distribution(deviation: int) -> None:
    """Frequencies against P(y) ~ exp(-y^2 / (2 s^2)) by a chi-square test, one in a thousand; then its moments."""
    found, variance = drawn(deviation), float(deviation) ** 2
    if deviation < 1 << 12:
        y = torch.arange(-12 * deviation, 12 * deviation + 1, dtype=torch.float64)
        mass = torch.exp(-(y**2) / (2 * deviation**2))
        variance = float((mass * y**2).sum() / mass.sum())
        edges = torch.arange(-2 * deviation, 2 * deviation + 1, max(1, deviation // 8)) - 0.5
        bins = torch.cat([torch.tensor([-1e9]), edges, torch.tensor([1e9])]).double()
        expected = torch.histogram(y, bins, weight=mass / mass.sum()).hist * len(found)
        counts = torch.histogram(found, bins).hist
        assert float(((counts - expected) ** 2 / expected).sum()) < chi2.isf(0.001, len(counts) - 1)
    assert abs(float(found.mean())) < 4 * deviation / sqrt(len(found))
    assert float(found.var()) / variance == pytest.approx(1, abs=0.01)
    assert abs(float(torch.corrcoef(torch.stack([found[1:], found[:-1]]))[0, 1])) < 4 / sqrt(len(found))


def test_small_discrete_noise_by_hand() -> None:
    """s = 1: P(0) = 1 / (1 + 2 sum_k exp(-k^2 / 2)) = 0.398942..., P(1) = exp(-1/2) P(0)."""
    found, none = drawn(1, 400_000), 1 / (1 + 2 * sum(exp(-k * k / 2) for k in range(1, 12)))
    for value, share in ((0, none), (1, none * exp(-0.5)), (-1, none * exp(-0.5)), (2, none * exp(-2))):
        assert float((found == value).double().mean()) == pytest.approx(share, abs=4 * sqrt(share / len(found)))


def total_of(simulation: Simulation, clients: list[int], noise: bool = True) -> Tensor:
    """The plain sum of the uploads of clients, with their noise or from the same training without."""
    job = simulation.job
    release: Any = job.algorithm.release
    release = release if noise else replace(release, noise=0.0)
    simulation.worker.job = replace(job, algorithm=replace(job.algorithm, release=release))
    total = simulation.worker.serve(broadcast(simulation), clients, {}, len(clients)).total
    simulation.worker.job = job
    assert sorted(total.clients) == clients
    return total.rule.sums.value("delta")


def broadcast(simulation: Simulation) -> Broadcast:
    return server.send(simulation.job.algorithm, simulation.start(), simulation.setting)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("survivors", [5, 6, 9, 12])
def test_every_set_of_survivors_has_at_least_the_noise_that_is_stated(survivors: int) -> None:
    """n shares have the variance n / least (noise c)^2, within 1 % over 10^5 draws."""
    block, size = PrivateShares(0.5, 2.0, 5), 100_000
    shares = [
        draw_discrete(size, block.deviation, generator(1, 0, client, "share")).double() * block.grid
        for client in range(survivors)
    ]
    stated = (2.0 * 0.5) ** 2
    assert float(torch.stack(shares).sum(0).var()) == pytest.approx(survivors / 5 * stated, rel=0.01)
    assert stated <= 5 * (block.deviation * block.grid) ** 2 < stated * 1.001


def test_the_noise_is_on_the_sum_of_clipped_displacements() -> None:
    """Without noise it is the clip; with it a sum differs by noise and less than one step of the grid per client."""
    simulation = simulate("uniform + private-shares(0.01, 1.0, 3)", secure=Secure(3))
    clients = [0, 2, 3, 7]
    clean, noisy = total_of(simulation, clients, noise=False), total_of(simulation, clients)
    block = simulation.job.algorithm.release
    assert isinstance(block, PrivateShares)
    noise = sum(
        draw_discrete(len(clean), block.deviation, generator(3, 0, client, "share")).double() * block.grid
        for client in clients
    )
    assert float((noisy - noise - clean).abs().max()) < len(clients) * (block.grid + 1e-9)
    assert (noisy / block.grid == (noisy / block.grid).round()).all()
    without = simulate("uniform + private-shares(0.01, 0)", secure=Secure(10), cohort=12)
    assert torch.equal(without.run(3).params, simulate("uniform + norm-clip(0.01)", cohort=12).run(3).params)


def test_what_leaves_a_client_is_not_longer_than_c() -> None:
    block = PrivateShares(0.3, 1.0, 4)
    for seed in range(20):
        x = torch.randn(1000, generator=generator(seed, 0, 0, "x"))
        whole = x.double() * (0.3 * (1 - 2.0**-40) / float(x.double().norm()) / block.grid)
        assert float(whole.trunc().norm()) <= 0.3 / block.grid
    assert (0.3 + 16 * 0.15) / block.grid <= 2**24


@pytest.mark.parametrize("step", STEPS)
def test_a_masked_sum_is_the_plain_sum_of_noisy_uploads(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulate("scaffold + uniform + private-shares(0.02, 1.0, 4)", secure=Secure(4))
    clients = simulation.sample(0)
    lost = set(clients[1:3])
    monkeypatch.setattr(
        secure_round, "add_uploads", partial(add_uploads, drops=lambda at, party: at == step and party in lost)
    )
    masked: Partial = simulation.collect(broadcast(simulation), clients, {})
    left = sorted(masked.total.clients)
    assert len(left) == (6 if STEPS.index(step) < 3 else 8)
    plain = simulation.worker.serve(broadcast(simulation), left, {}, len(clients)).total
    assert set(plain.sums) == set(masked.total.sums) == {"weight", "buffers", "delta"}
    for name, found in masked.total.sums.items():
        assert torch.equal(found.value(), plain.sums[name].value()), name


def test_nothing_without_noise_is_in_the_masked_sum_or_the_rows(tmp_path: Path) -> None:
    simulation = simulate("uniform + private-shares(0.02, 1.0, 4)", secure=Secure(4))
    state, record = simulation.round(simulation.start())
    row = record.row(0.1)
    assert not {"train_loss", "drift", "client_distance", "client_norm"} & set(row) and row["gradients"] == 0
    again = simulate("uniform + private-shares(0.02, 1.0, 4)", secure=Secure(4))
    assert fingerprint(again.run(1)) == fingerprint(state)  # drawn from the seed, so a resumed run has the same noise
    config = Config(
        method="uniform + private-shares(0.5, 1.0, 4)",
        data="digits",
        clients=6,
        rounds=2,
        secure={"least": 4},  # type: ignore[arg-type]
        output={"lens_every": 0},  # type: ignore[arg-type]
        local={"steps": 2, "buffers": "keep"},  # type: ignore[arg-type]
    )
    start(config, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert run.summary["privacy"]["epsilon"] > 0 and "train_loss" not in run.history.last()  # type: ignore[index]


def test_a_displacement_that_is_not_finite_counts_as_zero() -> None:
    block = PrivateShares(0.5, 1.0, 4)
    end: Any = type("End", (), {"random": partial(generator, 1, 0, 0), "share": lambda _, x: x})()
    bad, zero = (block.release(torch.full((9,), x), None, end) for x in (float("nan"), 0.0))
    assert torch.equal(bad, zero) and bool(bad.any())


def test_the_statement_is_that_of_the_fewest_survivors_without_amplification() -> None:
    simulation = simulate("uniform + private-shares(0.5, 10.0, 5)", secure=Secure(5), probability=0.8, cohort=None)
    stated = simulation.privacy(100, delta=1e-5)
    assert stated is not None
    assert gaussian_epsilon(10.0, 1e-5, 100) < stated.epsilon < 4.7527  # exact, and the best of whole Renyi orders
    assert stated.epsilon == pytest.approx(4.7285, abs=1e-3) and "the server sees" in stated.covers
    assert "discrete Gaussian" in stated.accountant and stated.sampling.startswith("none")


@pytest.mark.parametrize("secure", [None, Secure(4)])
def test_without_a_secure_sum_of_so_many_it_is_refused(secure: Secure | None) -> None:
    with pytest.raises(ValueError, match=r"without a secure sum of 5 clients or more .* secure = Secure\(least=5\)"):
        simulate("uniform + private-shares(0.5, 1.0, 5)", secure=secure)
    with pytest.raises(TypeError, match="use uniform"):
        parse("fedavg + private-shares(0.5, 1.0, 5)")
