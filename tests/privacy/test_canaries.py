"""Canaries: their bound of epsilon, on synthetic scores and on runs."""

import json
from dataclasses import replace
from functools import partial
from math import inf, sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from support.audit import events
from undrift import Local, Secure, Simulation, TensorTask, make
from undrift.algorithms import ALGORITHMS
from undrift.blocks import PrivateShares, PrivateSum, Uniform
from undrift.cli import app
from undrift.core.method.view import ServerView
from undrift.core.method.with_hooks import with_hooks
from undrift.core.model.flat_model import layout_of
from undrift.core.server.wire import fingerprint
from undrift.privacy.canaries import CanaryBound, bound_epsilon, canary_direction
from undrift.privacy.statement import why_not_private
from undrift.runs import ConfigError, start, verify
from undrift.runs.loop.privacy_audit import _Audited, audit_run, audit_simulation

LOCAL = Local(lr=0.1, batch_size=8, steps=2)


def wide(clients: int = 20) -> TensorTask:
    """A linear model with 2,000 parameters."""
    drawn = torch.Generator().manual_seed(1)
    inputs, targets = (
        torch.randn(16 * clients, 200, generator=drawn),
        torch.randint(10, (16 * clients,), generator=drawn),
    )
    return TensorTask(
        partial(torch.nn.Linear, 200, 10), inputs, targets, list(torch.arange(16 * clients).chunk(clients))
    )


def audit(method: str, rounds: int = 5, **settings: Any) -> CanaryBound:
    simulation = Simulation(method, wide(), LOCAL, **{"probability": 0.5, "seed": 2, **settings})
    return audit_simulation(simulation, rounds, canaries=60, delta=1e-3)


def test_directions_are_unit_vectors_of_the_shared_part() -> None:
    mask = torch.ones(5000)
    mask[:1000] = 0
    drawn = torch.stack([canary_direction(3, number, mask) for number in range(50)])
    assert not drawn[:, :1000].any()
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(50))
    products = (drawn @ drawn.T)[~torch.eye(50, dtype=torch.bool)]
    assert products.std().item() == pytest.approx(1 / sqrt(4000), rel=0.1)


def test_directions_that_took_no_part_give_no_bound() -> None:
    """The bound may be above 0 with a probability of 0.01 each time."""
    release = torch.randn(2000, generator=torch.Generator().manual_seed(5))
    release /= release.norm()
    found = []
    for trial in range(20):
        ours = torch.stack([canary_direction(trial, number, torch.ones(2000)) for number in range(60)]) @ release
        found.append(bound_epsilon([ours], [1], 2000, 1e-3))
    assert sum(one > 0 for one in found) <= 2


@pytest.mark.parametrize("shift", [1.0, 2.0, 3.0])
def test_the_bound_of_two_normal_distributions_is_below_the_truth(shift: float) -> None:
    """Scores that a Gaussian release of noise 1 / shift gives: its epsilon is exact."""
    from undrift.privacy import gaussian_epsilon

    drawn = torch.randn(20_000, generator=torch.Generator().manual_seed(7))
    scores, truth = (drawn + shift) / sqrt(1e6), gaussian_epsilon(1 / shift, 1e-3)
    found = bound_epsilon([scores], [1], 1_000_000, 1e-3)
    assert 0.45 * truth < found < truth


def test_without_noise_canaries_are_found() -> None:
    found = audit("uniform + private-sum(0.1, 0)")
    assert found.epsilon == inf and found.bound > 10 and found.holds and found.row()["epsilon"] is None


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize(
    "method",
    ["uniform + private-sum(0.1, 1)", "scaffold + private-sum(0.1, 2)", "uniform + private-quantile(0.1, noise=1)"],
)
def test_the_stated_epsilon_is_above_the_bound(method: str) -> None:
    found = audit(method)
    assert found.holds and 0 < found.epsilon < inf, found


def shares_something(name: str) -> bool:
    """Whether a method lets some of a model leave the client that is one linear module, its own head."""
    shared = make(name).personalization.shared(layout_of(torch.nn.Linear(3, 2)))
    return shared is None or bool(shared.any())


def test_a_method_that_shares_nothing_is_not_audited() -> None:
    with pytest.raises(ConfigError, match="shares no parameter of this model"):
        audit("fedper + uniform + private-sum(0.1, 1)")


PRIVATE = [
    name
    for name in ALGORITHMS
    if not make(name).needs.model and not why_not_private(make(name)) and name != "fedloge" and shares_something(name)
]
"""The model of these tests is one linear module, without adapters; FedLoGe needs a head of its own after others."""


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("name", PRIVATE)
def test_every_method_that_can_be_private_keeps_its_epsilon(name: str) -> None:
    method = replace(make(name), aggregation=Uniform())
    rounds, noise = 3, 1.0
    summed = PrivateSum(0.1, noise), PrivateSum(0.1, 0.0), PrivateShares(0.1, noise, 5), PrivateShares(0.1, 0.0, 5)
    for release in summed:
        secure = Secure(least=5) if isinstance(release, PrivateShares) else None
        simulation = Simulation(replace(method, release=release), wide(), LOCAL, probability=0.5, seed=2, secure=secure)
        found = audit_simulation(simulation, rounds, canaries=60, delta=1e-3)
        assert found.holds and (release.noise or found.bound > 5), found


def test_noise_that_is_missing_is_found() -> None:
    """A release that states noise and adds none."""

    def leave_alone(_: PrivateSum, total: torch.Tensor, view: ServerView[None]) -> torch.Tensor:
        return total

    simulation = Simulation("uniform + private-sum(0.1, 4)", wide(), LOCAL, probability=0.5, seed=2)
    method = simulation.job.algorithm
    broken = replace(method, release=with_hooks(method.release, {"release_sum": leave_alone}))
    found = audit_simulation(replace(simulation, algorithm=broken), 5, canaries=60, delta=1e-3)
    assert not found.holds and found.bound > found.epsilon and "REFUTED" in str(found)


@pytest.mark.sweep(every=4)
def test_canaries_audit_noise_that_is_in_shares() -> None:
    """Below the claimed epsilon with it, large without, and refuted where the clients leave their shares out."""
    method, secure = "uniform + private-shares(0.1, 1, 5)", Secure(least=5)
    found = audit(method, rounds=2, secure=secure)
    assert found.holds and 0 < found.epsilon < inf, found
    clean = audit("uniform + private-shares(0.1, 0, 5)", rounds=2, secure=secure)
    assert clean.epsilon == inf and clean.bound > 10 and clean.holds

    def clip_only(block: PrivateShares, delta: torch.Tensor, state: None, end: Any) -> torch.Tensor:
        return PrivateShares(block.c, 0.0, block.least).release(delta, state, end)

    simulation = Simulation("uniform + private-shares(0.1, 4, 5)", wide(), LOCAL, probability=0.5, secure=secure)
    held = simulation.job.algorithm
    broken = replace(held, release=with_hooks(held.release, {"release": clip_only}))
    found = audit_simulation(replace(simulation, algorithm=broken), 2, canaries=60, delta=1e-3)
    assert not found.holds and found.bound > found.epsilon > 0, found


@pytest.mark.parametrize("release", ["private-shares(0.1, 0, 4)", "private-shares(0.1, 1, 4)"])
def test_an_audit_without_masks_trains_what_secure_sums_would(release: str) -> None:
    """Some of its rounds have too few clients for a sum."""
    given: dict[str, Any] = {"local": LOCAL, "probability": 0.25, "secure": Secure(least=4), "seed": 2}
    plain = _Audited(f"uniform + {release}", wide(12), **given)
    secure = Simulation(f"uniform + {release}", wide(12), **given)
    rows = [(fingerprint(state), sorted(record.clients)) for state, record in plain.rounds(6)]
    assert rows == [(fingerprint(state), sorted(record.clients)) for state, record in secure.rounds(6)]
    assert {bool(clients) for _, clients in rows} == {True, False}


def test_what_cannot_be_audited_is_refused() -> None:
    for method in ("fedavg", "uniform + private-sum(inf, 0)"):
        with pytest.raises(ConfigError, match=r"add private-sum\(c, noise\)"):
            audit(method)
    with pytest.raises(ConfigError, match="give 2, got 1"):
        audit_simulation(Simulation("uniform + private-sum", wide(), LOCAL), 1, canaries=1)


def test_a_run_with_noise_in_shares_is_audited(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"clients": 6, "rounds": 1, "local": {"steps": 1}, "output": {"lens_every": 0}}
    method = "uniform + private-shares(0.5, 1, 4)"
    start(method=method, data="digits", folder=tmp_path / "run", secure={"least": 4}, **settings)
    assert audit_run(tmp_path / "run", 10).holds and verify(tmp_path / "run").intact


def test_an_audit_is_an_event_of_the_run_and_can_fail_its_verification(tmp_path: Path) -> None:
    folder, method = tmp_path / "run", "uniform + private-sum(0.5, 1)"
    settings: dict[str, Any] = {"clients": 10, "probability": 0.5, "rounds": 2, "local": {"steps": 1}}
    start(method=method, data="digits", model="mlp", folder=folder, **settings)
    before = (folder / "summary.json").read_bytes()
    said = CliRunner().invoke(app, ["audit", str(folder), "--canaries", "20", "--json"])
    assert said.exit_code == 0 and json.loads(said.stdout)["holds"], said.output
    assert events(folder)[-1]["event"] == "canaries" and verify(folder).intact
    assert (folder / "summary.json").read_bytes() == before
    assert str(audit_run(folder, 20)).endswith("consistent")
    from undrift.runs.folder.files import RunFolder

    with RunFolder.open(folder) as run:
        run.audit.write("canaries", **CanaryBound(1.0, 1e-3, 2.0, 20, 650, 9.0).row())
    (problem,) = verify(folder).problems
    assert "at least 2, and 1 is stated" in problem
