"""Membership inference: a guess for a model that never saw the data, much more for an over-fitted one."""

import json
from math import exp, inf
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from support.audit import events
from undrift import Local, Simulation, TensorTask
from undrift.cli import app
from undrift.models import MLP
from undrift.privacy import compare_losses
from undrift.runs import ConfigError, infer_members, start, verify

RANDOM = torch.Generator().manual_seed(11)


def noise_task(test: bool = True, seed: int = 2, **settings: Any) -> TensorTask:
    """Labels without any relation to the inputs: all that a model learns of them is memory."""
    drawn = torch.Generator().manual_seed(seed)
    inputs, targets = torch.randn(600, 20, generator=drawn), torch.randint(3, (600,), generator=drawn)
    held = (inputs[300:], targets[300:]) if test else None
    clients = list(torch.arange(300).chunk(3))
    return TensorTask(lambda: MLP(20, 3, width=256), inputs[:300], targets[:300], clients, test=held, **settings)


def test_the_area_equals_that_of_all_pairs() -> None:
    ours, others = torch.randint(9, (70,), generator=RANDOM), torch.randint(2, 11, (50,), generator=RANDOM)
    pairs = (ours[:, None] < others).double() + 0.5 * (ours[:, None] == others)
    found = compare_losses(ours, others)
    assert found.auc == pytest.approx(float(pairs.mean()), abs=1e-12)
    assert found.auc_interval[0] < found.auc < found.auc_interval[1]


def test_the_intervals_have_the_truth_as_often_as_they_state() -> None:
    """Members of N(-1, 1) against N(0, 1): the area is Phi(1 / sqrt 2), and the share at a threshold t Phi(t + 1)."""
    normal, areas, shares, allowed = torch.distributions.Normal(0.0, 1.0), 0, 0, 0
    truth = float(normal.cdf(torch.tensor(0.5**0.5)))
    for _ in range(400):
        ours, others = torch.randn(200, generator=RANDOM) - 1, torch.randn(300, generator=RANDOM)
        found = compare_losses(ours, others)
        threshold = others.sort().values[3]
        areas += found.auc_interval[0] <= truth <= found.auc_interval[1]
        shares += found.tpr_interval[0] <= float(normal.cdf(threshold + 1)) <= found.tpr_interval[1]
        allowed += float(normal.cdf(threshold)) <= found.fpr_most
        assert found.fpr == 0.01
    assert 0.92 < areas / 400 < 0.98 and shares / 400 > 0.93 and allowed / 400 > 0.95


def test_epsilon_allows_a_share() -> None:
    ours, others = torch.zeros(100), torch.linspace(1, 2, 1000)
    plain, strict = compare_losses(ours, others), compare_losses(ours, others, 1.0, 1e-3)
    assert plain.tpr == 1 and plain.allowed == 1 and plain.holds and plain.epsilon == inf
    assert strict.allowed == pytest.approx(exp(1) * strict.fpr_most + 1e-3) and not strict.holds
    assert "MORE THAN ALLOWED" in str(strict) and plain.row()["epsilon"] is None
    assert all(compare_losses(torch.rand(99, generator=RANDOM), others - 1, 0.0).holds for _ in range(50))


def test_losses_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="two members and two others are needed, got 1 and 5"):
        compare_losses(torch.zeros(1), torch.zeros(5))
    with pytest.raises(ValueError, match="not finite"):
        compare_losses(torch.tensor([0.0, inf]), torch.zeros(5))


def test_a_model_that_never_saw_the_data_tells_nothing() -> None:
    """The standard deviation of one area is 0.024, that of the mean over 16 draws of the data 0.006."""
    found = [infer_members(task.model().eval(), task) for task in (noise_task(seed=seed) for seed in range(16))]
    assert abs(sum(one.auc for one in found) / 16 - 0.5) < 0.02
    assert sum(one.tpr for one in found) / 16 < 0.02


def test_an_over_fitted_model_tells_its_members() -> None:
    task = noise_task()
    simulation = Simulation("fedavg", task, Local(lr=0.2, batch_size=20, epochs=5), cohort=3)
    found = infer_members(simulation.module(simulation.run(30)), task)
    assert found.auc_interval[0] > 0.8 and found.tpr_interval[0] > found.fpr, found
    assert (found.members, found.others) == (300, 300)


def test_what_has_no_held_out_examples_is_refused() -> None:
    module = MLP(20, 3)
    with pytest.raises(ConfigError, match="give test="):
        infer_members(module, noise_task(test=False))
    with pytest.raises(ConfigError, match="use a TensorTask"):
        infer_members(module, object())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no loss per example; use cross_entropy"):
        infer_members(module, noise_task(criterion=nn.CrossEntropyLoss()))


def test_audits_are_events_of_the_run_and_a_section_of_its_report(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings: dict[str, Any] = {"clients": 10, "probability": 0.5, "rounds": 2, "local": {"steps": 1}}
    start(method="uniform + private-sum(0.5, 1)", data="digits", model="mlp", folder=folder, **settings)
    before = (folder / "summary.json").read_bytes()
    done = CliRunner().invoke(app, ["audit", str(folder), "--inversion", "--membership", "--canaries", "20", "--json"])
    shown = json.loads(done.stdout)
    assert done.exit_code == 0 and shown["holds"], done.output
    assert set(shown) == {"holds", "canaries", "inversion", "membership"}
    assert [event["event"] for event in events(folder)[-3:]] == ["canaries", "inversion", "membership"]
    assert verify(folder).intact and (folder / "summary.json").read_bytes() == before
    assert shown["membership"]["epsilon"] == pytest.approx(json.loads(before)["privacy"]["epsilon"])
    assert [row["seen"] for row in shown["inversion"]] == ["the upload", "the upload", "the models"]
    assert shown["inversion"][0]["best"] < 0.01 < shown["inversion"][-1]["best"]

    from undrift.report import collect, sections

    (part,) = (part for part in sections(collect([folder])) if part.key == "privacy")
    canaries, membership, inversion = part.tables
    assert canaries.rows[0][-1] == "yes" and len(inversion.rows) == 3 and "allowed" in membership.headings
    assert all(len(row) == len(table.headings) for table in part.tables for row in table.rows)


def test_a_run_without_audits_has_no_such_section(tmp_path: Path) -> None:
    start(data="digits", model="mlp", clients=4, rounds=1, local={"steps": 1}, folder=tmp_path / "run")

    from undrift.report import collect, sections

    assert "privacy" not in [part.key for part in sections(collect([tmp_path / "run"]))]
