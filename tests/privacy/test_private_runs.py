"""Private sums: their limits, their noise, and what they refuse."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from undrift import Algorithm, Local, Simulation, TensorTask, parse
from undrift.algorithms import ALGORITHMS
from undrift.blocks import PrivateQuantile, PrivateSum, Uniform
from undrift.core import Upload
from undrift.core.server.wire import fingerprint
from undrift.core.tasks.participation import Participation
from undrift.privacy import gaussian_epsilon, rounds_within, sampled_epsilon, statement
from undrift.privacy.statement import in_words, why_not_private
from undrift.runs import ConfigError, export, start
from undrift.testing.tasks import Quadratics

TASK = Quadratics.random(12)
LOCAL = Local(lr=0.05, batch_size=4, steps=3)


def run(method: str | Algorithm, rounds: int = 3, **settings: Any) -> Simulation:
    simulation = Simulation(method, TASK, LOCAL, **{"cohort": 6, "seed": 3, **settings})
    simulation.last = simulation.run(rounds)  # type: ignore[attr-defined]
    return simulation


@pytest.mark.quick
@pytest.mark.parametrize("host", ["uniform", "scaffold", "feddyn", "fedcm", "fedavgm"])
def test_without_noise_and_without_a_radius_it_is_the_method_itself(host: str) -> None:
    plain = replace(parse(host), aggregation=parse("uniform").aggregation)
    released = replace(plain, release=PrivateSum(inf, 0.0))
    ours, other = (run(method).last.params for method in (released, plain))  # type: ignore[attr-defined]
    if host in ("uniform", "feddyn", "fedavgm"):
        assert torch.equal(ours, other)
    torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-6)  # slopes from the one sum, in another order


def test_without_noise_it_is_the_clip() -> None:
    plain = parse("uniform + norm-clip(0.05)")
    assert torch.equal(run(plain).last.params, run("uniform + private-sum(0.05, 0)").last.params)  # type: ignore[attr-defined]


@pytest.mark.parametrize("settings", [{}, {"probability": 0.4, "cohort": None}])
def test_the_noise_on_the_sum(settings: dict[str, Any]) -> None:
    """One release minus the same without noise, times the expected cohort, is z c times standard normal numbers."""
    task = linear(partial(nn.Linear, 100, 200), inputs=100)
    drawn = []
    for seed in range(5):
        models = [
            Simulation(f"uniform + private-sum(0.5, {noise})", task, LOCAL, **{"cohort": 6, "seed": seed, **settings})
            for noise in (2.0, 0.0)
        ]
        with_noise, without = (simulation.run(1).params.double() for simulation in models)
        drawn.append((with_noise - without) * models[0].setting.expected)
    noise = torch.cat(drawn)
    assert abs(noise.mean()) < 4 / sqrt(noise.numel()) and noise.var() == pytest.approx(1.0, rel=0.02)
    ordered = np.sort(noise.numpy())
    normal = torch.special.ndtr(torch.from_numpy(ordered)).numpy()
    gap = np.abs(normal - (np.arange(len(ordered)) + 0.5) / len(ordered)).max()
    assert gap < 1.95 / sqrt(len(ordered))  # Kolmogorov and Smirnov, one in a thousand
    first, second = drawn[0], drawn[1]
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 4 / sqrt(len(first))
    assert abs(float(torch.corrcoef(torch.stack([first[1:], first[:-1]]))[0, 1])) < 4 / sqrt(len(first))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


def linear(make: Callable[[], nn.Module], inputs: int = 4) -> TensorTask:
    """Twelve clients with four examples each."""
    data = torch.randn(48, inputs, generator=torch.Generator().manual_seed(0))
    return TensorTask(make, data, torch.arange(48) % 3, list(torch.arange(48).split(4)))


def test_a_round_without_clients_releases_noise() -> None:
    simulation = Simulation("uniform + private-sum(0.5, 1.0)", TASK, LOCAL, probability=1e-9, seed=1)
    before = simulation.start()
    after, record = simulation.round(before)
    assert (
        simulation.participation.empty
        and not record.clients
        and after.round == 1
        and not torch.equal(after.params, before.params)
    )


def test_resumed_runs_have_the_same_noise() -> None:
    method = "scaffold + uniform + private-sum(0.5, 1.0)"
    whole = run(method, 4).last  # type: ignore[attr-defined]
    simulation = Simulation(method, TASK, LOCAL, cohort=6, seed=3)
    assert fingerprint(simulation.run(2, simulation.run(2))) == fingerprint(whole)


@pytest.mark.parametrize(("start", "end"), [(0.1, 1.03), (10.0, 0.98)])
def test_the_radius_ends_at_the_quantile_from_both_sides(start: float, end: float) -> None:
    """Norms that are lognormal(0, 0.5), 100 clients, 100 rounds; the median is 1."""
    block, c = PrivateQuantile(start, noise=1.0), start
    random = np.random.default_rng(0)
    for _ in range(100):
        inside = 0.5 + ((random.lognormal(0, 0.5, 100) <= c) - 0.5).sum() / 100 + random.normal() / 20
        c = block.moved(c, inside).c
    assert c == pytest.approx(1.0, abs=0.15) and c == pytest.approx(end, abs=0.2)


def test_a_radius_in_a_run_moves_towards_the_norms() -> None:
    simulation = run(PRIVATE_QUANTILE, rounds=30)
    bounds = [row["release.bound"] for row in simulation.history]
    assert bounds[0] == 0.001 and bounds[-1] > 0.003


PRIVATE_QUANTILE = "uniform + private-quantile(0.001, noise=0.1, spread=0.3)"


def test_both_sums_cost_what_one_would() -> None:
    """m = 100, z = 1: the displacements get 1.005."""
    spread = 100 / 20
    assert 1 / sqrt(1 - (1 / (2 * spread)) ** 2) == pytest.approx(1.005, abs=1e-4)
    with pytest.raises(ValueError, match=r"set spread above 0\.5, or a larger cohort"):
        run("uniform + private-quantile(1.0, noise=1.0)", rounds=1)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("fedavg + private-sum(1, 1)", "weighs uploads by what clients report, or one by one; use uniform"),
        ("krum + private-sum(1, 1)", "or one by one; use uniform"),
        ("median + private-sum(1, 1)", "or one by one; use uniform"),
        ("fednova + private-sum(1, 1)", "weighs uploads"),
        ("uniform + local-adam(moments='average') + private-sum(1, 1)", "uploads .* besides"),
        ("uniform + power-of-choice(4) + private-sum(1, 1)", "chooses clients by their data"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(method: str, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        parse(method)


def test_which_methods_can_have_a_private_sum() -> None:
    found = {name for name, make in ALGORITHMS.items() if not why_not_private(make())}
    assert {"fedavg", "uniform", "fedprox", "scaffold", "feddyn", "fedcm", "fedsam", "fedfft", "specgrad"} <= found
    assert not found & {"krum", "median", "fednova", "q-fedavg", "fedscam", "feddisco", "fedlaw"}


@dataclass(frozen=True)
class Counted(Uniform):
    """A rule with equal weights that also reads a number of each client."""

    scalars = ("examples",)

    def weigh(self, upload: Upload, up: None, age: int) -> Any:
        return {"": 1.0, "examples": float(upload.examples)}


def test_settings_that_are_not_covered_are_refused() -> None:
    method = replace(parse("scaffold + uniform"), release=PrivateSum())
    with pytest.raises(ValueError, match="set steps"):
        Simulation(method, TASK, Local(epochs=1))
    with pytest.raises(ValueError, match="no deadline"):
        Simulation(method, TASK, Local(steps=3, deadline=1.0, speed=2.0))
    with pytest.raises(TypeError, match="weighs uploads by what clients report"):
        Algorithm(release=PrivateSum(), aggregation=Counted())
    with pytest.raises(ValueError, match="running statistics"):
        Simulation("uniform + private-sum(1, 1)", linear(normed), LOCAL)
    with pytest.raises(ValueError, match="noise needs a finite c"):
        PrivateSum(inf, 1.0)


def test_statements() -> None:
    method = parse("uniform + private-sum(0.5, 1.0)")
    poisson, fixed = Participation(TASK, None, 0.25, empty=True), Participation(TASK, 3)
    first = statement(method, poisson, 10, 1e-3)
    assert first is not None and first.epsilon == sampled_epsilon(1.0, 0.25, 1e-3, 10)
    assert first.sampling == "Poisson, probability 0.25" and first.relation == "one client added or removed"
    second = statement(method, fixed, 10, 1e-3)
    assert second is not None and second.epsilon == gaussian_epsilon(1.0, 1e-3, 10) and "none" in second.sampling
    assert "none" in statement(method, Participation(TASK, None, 0.25), 10, 1e-3).sampling  # type: ignore[union-attr]
    available = Participation(TASK, None, 0.25, {"0": [1]})
    assert "none" in statement(method, available, 10, 1e-3).sampling  # type: ignore[union-attr]
    assert statement(parse("uniform"), fixed, 10) is None
    assert statement(parse("uniform + private-sum(1, 0)"), fixed, 10) is None
    assert statement(method, fixed, 10).delta == 12**-1.1  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="delta must be above 0 and below 1 / 12"):
        statement(method, fixed, 10, 0.5)


def test_a_budget_ends_before_it_is_spent() -> None:
    method, fixed = parse("uniform + private-sum(0.5, 4.0)"), Participation(TASK, 3)
    rounds = rounds_within(3.0, method, fixed, 1000, 1e-3)
    after = [statement(method, fixed, rounds + more, 1e-3).epsilon for more in (0, 1)]  # type: ignore[union-attr]
    assert after[0] <= 3.0 < after[1]
    assert rounds_within(1e-3, method, fixed, 50) == 0 and rounds_within(1e6, method, fixed, 50) == 50
    with pytest.raises(ValueError, match="add private-sum"):
        rounds_within(3.0, parse("uniform"), fixed, 10)


def test_a_stored_run_has_its_statement_and_keeps_its_budget(tmp_path: Path) -> None:
    given: dict[str, Any] = {"method": "uniform + private-sum(0.5, 4.0)", "cohort": 3, "local": LOCAL, "delta": 1e-3}
    limit = rounds_within(3.0, parse(given["method"]), Participation(TASK, 3), 1000, 1e-3)
    out = start(task=TASK, folder=tmp_path / "fits", rounds=min(limit, 3), epsilon=3.0, **given)
    whole = statement(parse(given["method"]), Participation(TASK, 3), min(limit, 3), 1e-3)
    assert whole is not None and out.summary["privacy"] == whole.row()
    assert in_words(whole.row()).startswith(f"epsilon {whole.epsilon:.3g} at delta 0.001 for a client (one client's")
    export(tmp_path / "fits", tmp_path / "model")
    assert f"- differential privacy: {in_words(whole.row())}" in (tmp_path / "model" / "README.md").read_text()
    rows = [json.loads(line) for line in (tmp_path / "fits" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["epsilon"] == whole.epsilon and rows[0]["epsilon"] < whole.epsilon
    with pytest.raises(ConfigError, match=f"epsilon: {limit + 1} rounds would spend more than 3, {limit} rounds fit"):
        start(task=TASK, folder=tmp_path / "more", rounds=limit + 1, epsilon=3.0, **given)
    with pytest.raises(ConfigError, match="guarantees no privacy"):
        start(task=TASK, folder=tmp_path / "none", rounds=1, epsilon=3.0, method="uniform")
    plain = start(task=TASK, folder=tmp_path / "plain", rounds=1, method="uniform")
    assert plain.summary["privacy"] == "none"
