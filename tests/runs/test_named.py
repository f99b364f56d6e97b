"""Models and data with arguments: in files, on the command line, in comparisons and tuning, and after a resume."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from support.runs import RUN, tiny, tiny_data, write_tiny_fashion  # noqa: F401  fixtures
from support.vision import torchvision  # noqa: F401  a fixture
from undrift.cli import app
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.loop.run import is_finished
from undrift.runs.reading.open_checkpoint import look
from undrift.runs.settings.named_arguments import parts
from undrift.runs.settings.schema import merge_settings
from undrift.runs.setup.prepare import prepare
from undrift.studies.compare import Comparison
from undrift.studies.tune import Tuning

VIT = {"name": "vit-tiny", "patch": 16, "image": 224}
SMALL = ["--clients", "8", "--cohort", "2", "--rounds", "1", "--partition", "dirichlet:1", "--batch-size", "10"]
CHANGED: dict[str, Any] = {
    **RUN,
    "model": {"name": "resnet8", "groups": 4},
    "data": {"name": "fashion-mnist", "resize": 16, "mean": 0.5, "std": 0.5},
    "augment": "flip(probability=0.3)+crop(padding=2, probability=0.5, fill='mean')",
}


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def test_runs_without_arguments_keep_their_identity() -> None:
    """The hash of an empty run file before models and data took arguments."""
    assert Config().identity() == "5ca29867354171c8a789aa2a33ed66238b3a6448140b803ecfcc1024d18e3534"
    assert Config.build({"data": {"name": "fashion-mnist"}}).identity() == Config().identity()
    assert Config.build({"model": {"name": "cnn"}}).toml() == Config.build({"model": "cnn"}).toml()


def test_data_whose_owners_are_named_are_split_by_them() -> None:
    data = {"name": "patients.csv", "owner": "hospital"}
    assert Config.build({"data": data}).partition == "natural"
    assert Config.build({"data": "patients.csv(owner='hospital')"}).partition == "natural"
    assert Config.build({"data": data, "partition": "iid"}).partition == "iid"
    assert Config.build({"data": "patients.csv"}).partition == Config().partition == "dirichlet(0.1)"


@pytest.mark.quick
def test_every_form_gives_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[model]\nname = "vit-tiny"\npatch = 16\nimage = 224\n')
    configs = [
        Config.read(tmp_path / "a.toml"),
        Config.build({"model": VIT}),
        Config.build({"model": "vit-tiny(patch=16, image=224)"}),
        Config.build({"model": {"name": "vit-tiny(patch=8)", "patch": 16, "image": 224}}),
        Config.build(merge_settings({"model": "vit-tiny"}, {"model": {"image": 224, "patch": 16}})),
    ]
    assert {config.model for config in configs} == {"vit-tiny(image=224, patch=16)"}
    (tmp_path / "b.toml").write_text(configs[0].toml())
    assert Config.read(tmp_path / "b.toml") == configs[0]
    assert len({config.identity() for config in [*configs, Config.build({"model": "vit-tiny"})]}) == 2
    assert parts(str(configs[0].model)) == ("vit-tiny", {"patch": 16, "image": 224})


def test_a_name_replaces_arguments_and_a_table_adds_them() -> None:
    assert merge_settings({"model": VIT}, {"model": "cnn"}) == {"model": "cnn"}
    assert merge_settings({"model": VIT}, {"model": {"patch": 8}}) == {"model": {**VIT, "patch": 8}}
    assert merge_settings({"model": VIT}, {"model": None}) == {"model": VIT}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"model": {"name": "vit-tiny", "path": 16}},
            "model: 'vit-tiny' has no argument 'path'; it takes image, patch",
        ),
        ({"model": {"name": "vit-tiny", "classes": 3}}, "has no argument 'classes'; it takes image, patch"),
        ({"model": {"name": "lstm", "width": 3}}, "'lstm' has no argument 'width'; it takes hidden"),
        ({"model": {"name": "cnn", "widths": 3}}, "'cnn' has no argument 'widths'; it takes image"),
        ({"model": {"name": "vit-tiny", "patch": "16"}}, "model: 'vit-tiny': patch must be a whole number, got '16'"),
        ({"model": {"name": "vit-tiny", "patch": [16]}}, r"patch must be a whole number, got \[16\]"),
        ({"model": {"name": "vit", "patch": 16}}, "model: no model is named 'vit'; did you mean 'vit-tiny'"),
        ({"model": {"patch": 16}}, 'model: write name = "vit-tiny" beside the arguments, or give --model'),
        ({"model": "vit-tiny(16)"}, "model: 'vit-tiny\\(16\\)': name its arguments"),
        ({"model": "vit-tiny(patch=)"}, "model: .*cannot be read"),
        ({"model": "x" * 3000}, "model: a name with its arguments has at most 2000 characters"),
        ({"model": 3}, "model: input should be a valid string, got '3'"),
        (
            {"data": {"name": "cifar10", "size": 8}},
            "'cifar10' has no argument 'size'; it takes stride, resize, mean, std",
        ),
        ({"data": {"name": "cifar", "resize": 8}}, "data: no data set is named 'cifar'; did you mean 'cifar10'"),
        ({"data": {"name": "cifar10", "mean": float("nan")}}, "data: 'cifar10' takes finite numbers"),
        ({"augment": "flip+crop(size=2)"}, "augment = crop.* unexpected keyword argument 'size'; it takes padding"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_known(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.build(values)


def test_comparisons_and_tuning_take_arguments() -> None:
    base = {"model": {"name": "resnet8", "width": 2}, "data": "cifar10"}
    settings = {"large": {"data": {"resize": 64}}, "wide": {"model": {"width": 4}}, "plain": {"model": "cnn"}}
    comparison = Comparison.build({"base": base, "methods": [{"method": "fedavg"}], "settings": settings, "seeds": [0]})
    assert [(trial.config.model, trial.config.data) for trial in comparison.trials()] == [
        ("resnet8(width=2)", "cifar10(resize=64)"),
        ("resnet8(width=4)", "cifar10"),
        ("cnn", "cifar10"),
    ]
    tuning = Tuning.build({"method": "fedavg", "base": base})
    assert tuning.config((0.1,)).model == "resnet8(width=2)"


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("tiny")
def test_a_run_with_arguments_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = Config.build(CHANGED)
    whole = start(config, tmp_path / "whole")
    start(config.model_copy(update={"rounds": 1}), tmp_path / "cut")
    assert resume(tmp_path / "cut", rounds=2).sha256 == whole.sha256
    assert is_finished(config, tmp_path / "whole")
    stored = Config.read(tmp_path / "whole" / "config.toml")
    assert (stored.model, stored.data, stored.augment) == (config.model, config.data, CHANGED["augment"])
    assert start(Config.build({**CHANGED, "augment": "flip+crop"}), tmp_path / "other").sha256 != whole.sha256
    measured = look(tmp_path / "whole", clients=2, parts=("divergence", "alignment"), examples=20)
    assert not measured["skipped"]


@pytest.mark.usefixtures("tiny")
def test_the_command_line_sets_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--data", "fashion-mnist", "--model", "resnet8", "--set", "model.groups=4", "--set", "data.resize=16"]
    done = cli("run", "fedavg", *SMALL, *flags)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "runs" / "fedavg-fashion-mnist-resize-16-seed0"
    written = Config.read(folder / "config.toml")
    assert (written.model, written.data) == ("resnet8(groups=4)", "fashion-mnist(resize=16)")
    assert cli("resume", str(folder), "--rounds", "2").exit_code == 0
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 2
    fixed = ["--partition", "iid", "--set", "data.resize=9", "--set", "model.name=cnn", "--set", "model.image=8"]
    tuned = cli("tune", "fedavg", *flags[:2], *fixed)
    assert tuned.exit_code == 2 and "cnn(image=8): the images of fashion-mnist have 9 pixels" in tuned.output
    refused = cli("run", "fedavg", *SMALL, "--model", "resnet8", "--set", "model.group=4")
    assert refused.exit_code == 2 and "it takes groups, width, norm" in refused.output


@pytest.mark.usefixtures("tiny")
def test_a_model_s_image_size_must_be_that_of_the_data() -> None:
    with pytest.raises(ConfigError, match=r"cnn\(image=32\): the images of fashion-mnist have 28 pixels; resize them"):
        prepare(Config.build({**RUN, "model": {"name": "cnn", "image": 32}}))
    data = {"name": "fashion-mnist", "resize": 32}
    assert (
        prepare(Config.build({**RUN, "data": data, "model": {"name": "cnn", "image": 32}})).data_task.dataset.resize
        == 32
    )
    assert prepare(Config.build({**RUN, "data": data, "model": None})).config.model == "cnn"


@pytest.mark.sweep(every=4)
@pytest.mark.usefixtures("torchvision")
def test_vit_at_224_trains_a_round_on_small_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_fashion(tmp_path / "fashion-mnist", train=40, test=10)
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    few = {"clients": 4, "cohort": 1, "rounds": 1, "partition": "iid", "output": {"lens_every": 0}}
    data = {"name": "fashion-mnist", "resize": 224}
    outcome = start(Config.build({**RUN, **few, "model": VIT, "data": data}), tmp_path / "run")
    assert outcome.summary["parameters"] == 5_717_416 - 2 * 256 * 192 - 990 * 193  # one channel, ten classes
    assert outcome.summary["rounds"] == 1 and outcome.summary["accuracy"] >= 0


def test_a_folder_may_have_brackets_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pets (copy)").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parts("./pets (copy)") == ("./pets (copy)", {})
    assert parts("./pets (copy)(side=32)") == ("./pets (copy)", {"side": 32})
    with pytest.raises(ValueError, match="got a name"):
        parts("./dogs (copy)")
    columns = ";".join(f"column{n}" for n in range(60))  # longer than the name of a file may be
    assert parts(f"rows.csv(inputs={columns!r})") == ("rows.csv", {"inputs": columns})
