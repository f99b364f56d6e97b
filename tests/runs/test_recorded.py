"""Runs with models, blocks and methods of one's own: what their folders record, and what is refused afterwards."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from support.own import MODULE, own_code_fixture, plugged_fixture  # noqa: F401
from support.runs import RUN, tiny, tiny_data  # noqa: F401  fixtures
from undrift import make
from undrift.cli import app
from undrift.data import Dataset, Split
from undrift.runs import Config, ConfigError, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.folder.provenance import check_references, code_records, file_record, find_references, keep_references
from undrift.runs.setup.choose_model import default_model, model_maker
from undrift.runs.setup.prepare import prepare
from undrift.studies import compare
from undrift.studies.compare import Comparison
from undrift.studies.tune import Tuning, tune

pytestmark = pytest.mark.usefixtures("tiny", "own_code")
OWN: dict[str, Any] = {**RUN, "method": "fedavg + their_parts:Shrink(0.9)", "model": "their_parts:Net(width=4)"}


def cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def edit(path: Path) -> None:
    path.write_text(MODULE + "# edited\n")


@pytest.mark.quick
def test_a_run_records_its_code_and_is_resumed(own_code: Path, tmp_path: Path) -> None:
    done = start(Config.build(OWN), tmp_path / "run")
    found = json.loads((tmp_path / "run" / "references.json").read_text())
    assert [(one["setting"], one["text"]) for one in found] == [
        ("method", "their_parts:Shrink"),
        ("model", "their_parts:Net"),
    ]
    assert all(len(one["sha256"]) == 64 and one["kind"] == "code" for one in found)
    more = resume(tmp_path / "run", rounds=3)
    assert more.sha256 == start(Config.build({**OWN, "rounds": 3}), tmp_path / "whole").sha256 != done.sha256
    assert not (start(Config.build(RUN), tmp_path / "ours").folder / "references.json").exists()


def test_changed_code_is_refused_by_name(own_code: Path, tmp_path: Path) -> None:
    start(Config.build(OWN), tmp_path / "run")
    edit(own_code)
    with pytest.raises(RunError, match=r"run: method: their_parts:Shrink: its file has changed .* restore it or start"):
        resume(tmp_path / "run", rounds=3)
    shown = cli("resume", str(tmp_path / "run"), "--rounds", "3")
    assert shown.exit_code == 2 and shown.stderr.count("\n") == 1 and "its file has changed" in shown.stderr
    assert cli("look", str(tmp_path / "run")).exit_code == 2
    own_code.write_text(MODULE)
    assert resume(tmp_path / "run", rounds=3).trained


def test_code_that_is_gone_is_refused_by_name(own_code: Path, tmp_path: Path) -> None:
    start(Config.build(OWN), tmp_path / "run")
    own_code.unlink()
    del sys.modules["their_parts"]
    shown = cli("resume", str(tmp_path / "run"), "--rounds", "3")
    assert shown.exit_code == 2 and "method: their_parts:Shrink: no module is named 'their_parts'" in shown.stderr


def test_comparisons_and_tuning_refuse_changed_code(own_code: Path, tmp_path: Path) -> None:
    base = {key: value for key, value in OWN.items() if key != "method"}
    rows = [{"method": "their_parts:fedpull", "label": "own", "arguments": {"mu": 0.2}}, {"method": "fedavg"}]
    comparison = Comparison.build({"seeds": [0], "baseline": "fedavg", "base": base, "methods": rows})
    assert compare(comparison, tmp_path / "table")["failures"] == []
    tuning = Tuning.build(
        {"method": "their_parts:fedpull", "grid": {"mu": [0.1, 0.2]}, "widenings": 0, "base": {**base, "rounds": 1}}
    )
    assert len(tune(tuning, tmp_path / "tuned")["trials"]) == 2
    edit(own_code)
    table = (tmp_path / "table" / "table.json").read_bytes()
    with pytest.raises(RunError, match="their_parts:fedpull: its file has changed"):
        compare(comparison, tmp_path / "table")
    assert (tmp_path / "table" / "table.json").read_bytes() == table
    with pytest.raises(RunError, match="their_parts:fedpull: its file has changed"):
        tune(tuning, tmp_path / "tuned")


def test_plug_ins_files_and_data_are_recorded(plugged: Path, tmp_path: Path) -> None:
    Path("clients.json").write_text("[[0], [1]]")
    values = {"method": "fedpull + momentum:shrink", "model": "their-net", "partition": "file:clients.json"}
    config = Config.build(values).model_copy(update={"data": "their_parts:nothing"})
    found = find_references(config, SimpleNamespace(sha256="abc"))
    assert {(one.setting, one.text, one.kind) for one in found} == {
        ("method", "their_parts:fedpull", "code"),
        ("method", "their_parts:Pull", "code"),
        ("method", "their_parts:Shrink", "code"),
        ("model", "their_parts:Net", "code"),
        ("data", "their_parts:nothing", "code"),
        ("data", "their_parts:nothing", "data"),
        ("partition", "clients.json", "file"),
    }
    keep_references(tmp_path, found)
    keep_references(tmp_path, found)
    check_references(tmp_path)
    other = find_references(config, SimpleNamespace(sha256="abd"))
    with pytest.raises(RunError, match="data: their_parts:nothing: it has changed; restore it or start a new run"):
        keep_references(tmp_path, other)
    Path("clients.json").write_text("[[1], [0]]")
    with pytest.raises(RunError, match=r"partition: clients.json: the file has changed or is missing"):
        check_references(tmp_path)


def test_records_of_other_settings() -> None:
    assert code_records("task", "undrift.core:TensorTask") == [] and code_records("task", 3) == []
    (one,) = code_records("task", Result)  # the defining module, not one that imports it
    assert one.text == f"{Result.__module__}:Result" and len(one.sha256 or "") == 64
    assert file_record("weights", "missing.safetensors").sha256 is None


def test_every_setting_that_may_name_code_or_a_file(own_code: Path, tmp_path: Path) -> None:
    own_code.write_text(MODULE + "\n\ndef half(*_: object) -> float:\n    return 0.5\n")
    (tmp_path / "trace.json").write_text("[]")
    local = {
        "schedule": "warmup(2) + their_parts:half",
        "step_schedule": "their_parts:half",
        "epochs": "their_parts:half",
    }
    config = Config.build({**RUN, "local": local, "availability": f"file:{tmp_path / 'trace.json'}"})
    found = [(one.setting, one.text, one.kind) for one in find_references(config)]
    assert find_references(Config.build({**RUN, "partition": "column:site"})) == []  # a scheme, not code
    assert found == [
        ("availability", str(tmp_path / "trace.json"), "file"),
        ("local.epochs", "their_parts:half", "code"),
        ("local.schedule", "their_parts:half", "code"),
        ("local.step_schedule", "their_parts:half", "code"),
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            "their_parts:wrong",
            r"model 'their_parts:wrong' does not fit fashion-mnist: with inputs of shape \(2, 1, 28, 28\) it failed "
            r"with RuntimeError: mat1 and mat2",
        ),
        ("their_parts:few", "it failed with ValueError: it has 3 outputs for 10 classes"),
        ("their_parts:wide", "missing a required argument: 'hidden'"),
        ("their_gone:Net", "model: their_gone:Net: no module is named 'their_gone'"),
        (
            {"name": "their_parts:Net", "width": {"a": 1}},
            "model: 'their_parts:Net': width must be a whole number, got {'a': 1}",
        ),
        ({"name": "their_parts:stack", "widths": [4, "a"]}, "widths must be tuple"),
        (
            {"name": "their_parts:stack", "other": {"a": 1}},
            "arguments are numbers, texts, true, false or lists of them",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(Config.build({**RUN, "model": model}))


def test_a_table_of_arguments_is_one_text() -> None:
    config = Config.build({**RUN, "model": {"name": "their_parts:stack", "widths": [8, 4], "extra": "x"}})
    assert config.model == "their_parts:stack(extra='x', widths=(8, 4))"
    assert len(prepare(config).task.model()) == 4  # type: ignore[arg-type]
    assert Config.build({**RUN, "model": config.model}).identity() == config.identity()


def test_tables_get_a_perceptron() -> None:
    rows = torch.zeros(6, 3)
    numbers = Split(rows, torch.zeros(6, 2))
    regression = Dataset("numbers", "table", numbers, numbers, 0, (), (), "Numbers")
    assert default_model(regression, make("fedavg")) == "mlp"
    assert model_maker("mlp(width=5)", regression)()(rows).shape == (6, 2)
    one = Split(rows, torch.zeros(6))
    assert model_maker("mlp", Dataset("one", "table", one, one, 0, (), (), "One"))()(rows).shape == (6, 1)
    classes = Split(rows, torch.zeros(6, dtype=torch.int64))
    kinds = Dataset("kinds", "table", classes, classes, 4, (), (), "Kinds")
    assert model_maker("their_parts:Regressor", kinds)()(rows).shape == (6, 4)
