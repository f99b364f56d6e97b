"""Runs with corrupted images: what they are tested on, per type and on average, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift.cli import app
from undrift.data.partitions.draw import parse
from undrift.data.tasks.corruption import STANDARD, corrupted
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.setup.prepare import prepare

pytest.importorskip("PIL")
pytestmark = pytest.mark.usefixtures("tiny")
HARD = "corrupt,severity=5,types=contrast+fog+gaussian-noise"


def settings(**changes: Any) -> Config:
    return Config.build({**RUN, "partition": "corrupt", "clients": 6, "cohort": 3, **changes})


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.quick
def test_accuracy_is_the_mean_over_the_types(tmp_path: Path) -> None:
    outcome = start(settings(partition=HARD, rounds=3), tmp_path / "run")
    kinds = ["contrast", "fog", "gaussian-noise"]
    for row in rows(outcome.folder):
        each = [row[f"accuracy/{kind}"] for kind in kinds]
        assert row["accuracy"] == pytest.approx(np.mean(each)) and "clean_accuracy" in row
        assert {name for name in row if name.startswith("accuracy/")} == {f"accuracy/{kind}" for kind in kinds}
    last = rows(outcome.folder)[-1]
    for name in ("accuracy", "clean_accuracy", *(f"accuracy/{kind}" for kind in kinds)):
        assert outcome.summary[name] == last[name]
    assert len({last[f"accuracy/{kind}"] for kind in kinds} | {last["clean_accuracy"]}) > 1


def test_the_columns_are_those_of_the_model_on_corrupted_test_images(tmp_path: Path) -> None:
    """The accuracies of a run, computed once more from its saved model and the images alone."""
    from safetensors.torch import load_file

    outcome = start(settings(partition="corrupt,severity=4,types=snow+contrast", rounds=2), tmp_path / "run")
    task = prepare(settings(partition="corrupt,severity=4,types=snow+contrast")).data_task
    model = task.model()
    model.load_state_dict(load_file(outcome.folder / "model.safetensors"))
    model.eval()
    test, shift = task.dataset.test, task.corruptions
    assert shift is not None
    with torch.no_grad():
        for name, images in (
            ("accuracy/snow", shift.under("snow").inputs),
            ("accuracy/contrast", shift.under("contrast").inputs),
            ("clean_accuracy", test.inputs),
        ):
            right = (model(task.prepare(images)).argmax(1) == test.targets).double().mean()
            assert outcome.summary[name] == pytest.approx(float(right)), name
    own = json.loads((outcome.folder / "clients.json").read_text())["accuracy"]
    assert own == pytest.approx([task.own_score(model, client).accuracy for client in range(6)])


def test_a_clean_run_has_no_such_columns(tmp_path: Path) -> None:
    outcome = start(settings(partition="iid", rounds=1), tmp_path / "run")
    assert "clean_accuracy" not in outcome.summary and not any("/" in name for name in rows(outcome.folder)[0])


def test_held_out_examples_are_corrupted() -> None:
    ready, clean = (prepare(settings(partition=text, holdout=0.3)) for text in ("corrupt", "iid"))
    held = torch.cat([ready.data_task.own(client) for client in range(6)])
    before, after = (task.own_split.inputs[held] for task in (clean.data_task, ready.data_task))
    assert ready.data_task.own_split is ready.data_task.dataset.train
    assert (before != after).flatten(1).any(1).float().mean() > 0.95


def test_test_images_are_the_same_for_all_methods_and_seeds() -> None:
    one, two = (prepare(settings(method=m, seed=s)).data_task.corruptions for m, s in (("fedavg", 0), ("scaffold", 5)))
    assert one is not None and two is not None and one.kinds == two.kinds == STANDARD
    for kind in ("gaussian-noise", "snow"):
        assert torch.equal(one.under(kind).inputs, two.under(kind).inputs)


@pytest.mark.sweep(every=4)
def test_severity_and_types_are_recorded_and_resumed(tmp_path: Path) -> None:
    text = "corrupt, types=fog+contrast+fog, severity=5"
    whole = start(settings(partition=text, rounds=3), tmp_path / "whole")
    start(settings(partition=text, rounds=1), tmp_path / "part")
    longer = resume(tmp_path / "part", rounds=3)
    assert longer.sha256 == whole.sha256 and longer.summary["accuracy/fog"] == whole.summary["accuracy/fog"]
    there = Config.read(tmp_path / "part" / "config.toml")
    assert there.partition == "corrupt(severity=5, types='fog+contrast')"
    assert json.loads((tmp_path / "part" / "partition.json").read_text())["scheme"] == there.partition
    other = start(settings(partition="corrupt,types=fog+contrast", rounds=3), tmp_path / "other")
    assert other.sha256 != whole.sha256
    assert settings(partition="corrupt").identity() == settings(partition=str(parse("corrupt,severity=3"))).identity()


def test_training_images_are_as_before() -> None:
    """The default partition corrupts the training images at severity 3 with the fourteen types of the first version."""
    from undrift.data.tasks.corruption import assign

    ready, clean = prepare(settings()), prepare(settings(partition="iid"))
    assert ready.partition is not None and clean.partition is not None
    wanted = corrupted(clean.data_task.dataset.train.inputs.numpy(), assign(ready.partition, 0), 0)
    assert np.array_equal(ready.data_task.dataset.train.inputs.numpy(), wanted)
    assert ready.partition.sha256 == clean.partition.sha256


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("corrupt,severity=6", r"corrupt: severity must be between 1 and 5, got 6"),
        ("corrupt,types=frost", r"frost needs photographs of ice"),
        ("corrupt,types=all", r"saturate changes colours, but these images are grey; name the others: types="),
        ("corrupt,types=snwo", r"no corruption is named 'snwo'; did you mean 'snow'"),
        ("corrupt,over=dirichlet-client:0.1,refill=true", r"share samples, so a sample's client is not known"),
    ],
)
def test_refusals(partition: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(settings(partition=partition))


def test_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from undrift.runs.setup import prepare as loading

    load = loading.load
    monkeypatch.setattr(loading, "load", lambda name: replace(load(name), kind="text", symbols=3))
    with pytest.raises(ConfigError, match="corrupt: only images can be corrupted, fashion-mnist is text"):
        prepare(settings(model="lstm"))


def test_the_command_line_says_what_accuracy_is(tmp_path: Path) -> None:
    said = CliRunner().invoke(
        app,
        ["run", "fedavg", "--partition", HARD, "--clients", "6", "--rounds", "1", "--out", str(tmp_path / "run")],
    )
    assert said.exit_code == 0, said.output
    assert "this is the mean over 3 types of corruption, worst " in said.output
    assert "; without corruption " in said.output
