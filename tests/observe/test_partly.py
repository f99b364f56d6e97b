"""Parts of a measurement that fail alone, filters that draw at random, and layers that stand still."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import lens
from undrift.algorithms import fedavg
from undrift.core.records.types import Local
from undrift.core.tasks.tensor_task import TensorTask
from undrift.engine.round.simulation import Simulation
from undrift.observe.live import measure_state
from undrift.report import ReportError, draw_kind
from undrift.runs import Config, start
from undrift.runs.reading import open_checkpoint as look

pytestmark = [pytest.mark.usefixtures("tiny"), pytest.mark.xdist_group("observe")]  # one run for all

FEW: dict[str, Any] = {"clients": 3, "examples": 20, "points": 3}


@pytest.fixture(scope="module")
def ended(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A run with a perturbation and a filter that draws at random."""
    config = Config.build({**RUN, "method": "fedsam + gradient:random-stop(0.3)", "output": {"lens_every": 0}})
    return start(config, tmp_path_factory.mktemp("runs") / "run").folder


def refuse(message: str) -> Callable[..., None]:
    def raises(*_: Any, **__: Any) -> None:
        raise RuntimeError(message)

    return raises


@pytest.mark.sweep(every=4)
def test_updates_that_cannot_be_computed_cost_what_needs_them_only(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("undrift.lens.vectors.local_update", refuse("client 3: its loss is nan"))
    found = look.look(ended, parts=["spectrum", "divergence", "embedding", "views"], **FEW)
    assert {"gradient", "perturbation", "filtered"} <= set(found["spectrum"]) and "update" not in found["spectrum"]
    assert {"gradient", "gradient_relative", "filtered"} <= set(found["divergence"])
    assert set(found["embedding"]) == {"tsne_features"} and list(found["views"]) == [
        "perturbations of features.0.weight"
    ]
    why = "client 3: its loss is nan"
    assert found["skipped"] == {
        "spectrum/update": why,
        "divergence/update": why,
        "embedding/pca_update": why,
        "views/weights": why,
        "views/features": why,
    }


@pytest.mark.sweep(every=4)
def test_what_is_measured_again_is_no_longer_skipped(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lens, "tsne", refuse("no"))
        assert look.look(ended, parts=["embedding"], seed=1, **FEW)["skipped"] == {"tsne_features": "no"}
    found = look.look(ended, parts=["embedding"], seed=1, **FEW)
    assert found["skipped"] == {} and set(found["embedding"]) == {"pca_update", "tsne_features"}


@pytest.mark.sweep(every=2)
def test_a_filter_that_draws_follows_the_seed(ended: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed fixes all estimates, so another one draws other frequencies of the same gradients."""
    monkeypatch.setattr("undrift.runs.reading.open_checkpoint.sample_clients", lambda *_: [0, 1, 2])
    first, second, again = (look.look(ended, parts=["spectrum", "divergence"], seed=seed, **FEW) for seed in (1, 2, 1))
    assert first["spectrum"]["gradient"] == second["spectrum"]["gradient"]
    for keys in (("spectrum", "filtered", "consensus"), ("divergence", "filtered", "relative")):
        one, two, three = (found[keys[0]][keys[1]][keys[2]] for found in (first, second, again))
        assert one == three != two
    assert first["spectrum"]["filtered"]["filtering"] != second["spectrum"]["filtered"]["filtering"]


class Still(nn.Module):
    """Small, with a layer whose gradient is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.idle = nn.Linear(2, 3), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.first(x) + 0 * self.idle(x)
        return out


def small() -> Simulation:
    draw = torch.Generator().manual_seed(0)
    task = TensorTask(Still, torch.randn(12, 2, generator=draw), torch.arange(12) % 3, torch.arange(12).split(4))
    return Simulation(fedavg(), task, Local(batch_size=4, lr=0.1))


def test_a_layer_that_stands_still_does_not_diverge() -> None:
    simulation = small()
    layout = simulation.worker.model.layout
    row = measure_state(simulation.job, simulation.start(), [0, 1, 2], layout, ("divergence",))
    relative = dict(zip(row["divergence"]["layers"], row["divergence"]["relative"], strict=True))
    assert relative["idle.weight"] == relative["idle.bias"] == 0.0 < relative["first.weight"]


def test_a_model_that_is_too_small_for_bands_has_its_other_numbers() -> None:
    simulation = small()
    layout = simulation.worker.model.layout
    row = measure_state(simulation.job, simulation.start(), [0, 1], layout, ("spectrum", "divergence", "heterogeneity"))
    assert row["skipped"].startswith("spectrum: no tensor has the 18 elements that 10 bands need")
    assert "consensus" not in row and row["drift"] > 0 and row["heterogeneity"]["whole"]["between"] > 0


@pytest.mark.sweep(every=4)
def test_a_part_of_which_nothing_is_left_says_why(ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lens, "tsne", refuse("no map"))
    monkeypatch.setattr(lens, "pca", refuse("no plane"))
    found = look.look(ended, parts=["embedding"], seed=7, **FEW)
    assert "embedding" not in found and found["skipped"] == {
        "embedding/pca_update": "no plane",
        "tsne_features": "no map",
    }
    with pytest.raises(ReportError, match="nothing to draw for tsne: no plane; no map"):
        draw_kind("tsne", [ended], tmp_path)
