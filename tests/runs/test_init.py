"""Runs that start from weights, and runs with frozen parts: what is recorded, resumed and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.models import build, hash_weights
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.files import RunError

pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(7)
    save_file(build("small-cnn", classes=10, channels=1, image=28).state_dict(), tmp_path / "w.safetensors")
    return tmp_path / "w.safetensors"


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, **changes})


def test_identity_is_that_of_before_unless_used() -> None:
    assert settings().identity() == settings(init=None, frozen=[]).identity()
    assert len({settings(**more).identity() for more in ({}, {"init": "a.pt"}, {"frozen": "head.*"})}) == 3
    assert settings(frozen=["b.*", "a.*", "b.*"]).frozen == ("a.*", "b.*")


def test_every_form_of_init_gives_one_text() -> None:
    forms = ("w.pt(match='shapes')", {"name": "w.pt", "match": "shapes"}, {"name": "w.pt(match='shapes')"})
    assert {settings(init=form).init for form in forms} == {"w.pt(match='shapes')"}
    assert settings(init={"name": "w.pt", "match": "all"}).init == "w.pt"
    assert Config.build(settings(init=forms[0], frozen="head.*").model_dump()).init == forms[0]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"init": "nowhere.pt"}, "init: nowhere.pt: there is no such file; give a .safetensors or .pt file, a run"),
        ({"init": ""}, "init: write a file, a run or a reference"),
        ({"init": {"match": "shapes"}}, "init: write a file, a run or a reference"),
        ({"init": "w.pt(strict=False)"}, "init: unknown argument 'strict'; known is match"),
        ({"init": "w.pt(match='some')"}, 'init: match must be "all" or "shapes"'),
        ({"frozen": ["bodi.*"]}, r"frozen: no parameter is named 'bodi\.\*'; the model has "),
        ({"frozen": 3}, "frozen: write name patterns of parameters"),
    ],
)
def test_refusals(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        start(settings(**changes), tmp_path / "run")


@pytest.mark.quick
def test_a_run_starts_from_weights_and_records_them(weights: Path, tmp_path: Path) -> None:
    run = start(settings(init=str(weights), rounds=1), tmp_path / "run")
    result = json.loads((run.folder / "init.json").read_text())
    assert result["sha256"] == hash_weights(load_file(weights)) and result["taken"] == result["tensors"] == 8
    assert result["left"] == result["unused"] == []
    assert run.sha256 != start(settings(rounds=1), tmp_path / "drawn").sha256
    on = start(settings(init=str(run.folder), rounds=1), tmp_path / "on")  # another run's model
    assert json.loads((on.folder / "init.json").read_text())["sha256"] == hash_weights(
        load_file(run.folder / "model.safetensors")
    )


def test_frozen_weights_stay_and_are_resumed_to_the_bit(weights: Path, tmp_path: Path) -> None:
    names = list(load_file(weights))
    given = {"init": str(weights), "frozen": [x for x in names if not x.startswith("head")], "method": "scaffold"}
    whole = start(settings(**given, rounds=3), tmp_path / "whole")
    short = start(settings(**given, rounds=1), tmp_path / "short")
    assert resume(short.folder, rounds=3).sha256 == whole.sha256
    before, after = load_file(weights), load_file(whole.folder / "model.safetensors")
    moved = {name for name in names if not torch.equal(before[name], after[name])}
    assert set(after) == set(names) and moved == {name for name in names if name.startswith("head")}
    size = sum(before[name].numel() for name in moved)
    assert whole.summary["parameters"] == size
    assert whole.summary["bytes_up"] == 3 * 4 * 4 * size  # 3 rounds of 4 clients, 4 bytes a number


@pytest.mark.sweep(every=0)
@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's own
def test_workers_start_alike(weights: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    given = {"init": str(weights), "frozen": ["features.*"], "rounds": 1}
    one = start(settings(**given), tmp_path / "one")
    other = start(settings(**given, engine={"name": "ray", "workers": 2}), tmp_path / "other")
    assert one.sha256 == other.sha256


def test_changed_weights_are_refused_on_resume(weights: Path, tmp_path: Path) -> None:
    run = start(settings(init=str(weights), rounds=1), tmp_path / "run")
    changed = load_file(weights)
    changed["head.bias"] += 1
    save_file(changed, weights)
    with pytest.raises(RunError, match=r"init\.json: init = .* has changed since the run was started"):
        resume(run.folder, rounds=2)
    weights.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        resume(run.folder, rounds=2)


def test_the_command_takes_what_fits(weights: Path, tmp_path: Path) -> None:
    given = load_file(weights)
    given["head.weight"], given["head.bias"] = torch.zeros(3, given["head.weight"].shape[1]), torch.zeros(3)
    save_file(given, weights)
    words = ["run", "fedavg", "--clients", "8", "--cohort", "4", "--rounds", "1", "--init", str(weights)]
    words += ["--frozen", "head.bias", "--out", str(tmp_path / "run")]
    refused = CliRunner().invoke(app, words)
    assert (
        refused.exit_code == 2
        and "init: the weights do not fit" in refused.stderr
        and "head.weight has shape (3, " in refused.stderr
    )
    done = CliRunner().invoke(app, [*words, "--set", "init.match=shapes"])
    assert done.exit_code == 0, done.stderr
    assert "6 of 8 tensors" in done.stdout and "head.weight, head.bias" in done.stdout
    assert json.loads((tmp_path / "run" / "init.json").read_text())["unused"] == ["head.bias", "head.weight"]
