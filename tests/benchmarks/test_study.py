"""A study on digits: tuned, run, collected, and not computed twice."""

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from undrift.data.partitions.skew import measure_skew
from undrift.runs import Config
from undrift.runs.loop.run import complete
from undrift.runs.setup.prepare import prepare

FOLDER = Path(__file__).parents[2] / "benchmarks" / "studies"
STUDY = """
name = "tiny"
protocol = "strict"
seeds = [0, 1, 2]
baseline = "fedavg"
tune = { seeds = [7, 8], grid.lr = [0.1, 0.4, 1.6] }
methods = [{ method = "fedavg" }, { label = "center", method = "fedavg + gradient:center('maps')" }]

[base]
data = "digits"
clients = 10
cohort = 2
rounds = 2
model = "mlp"
local = { steps = 2, batch_size = 10 }
output = { lens_every = 0 }

[settings]
skewed = { partition = "dirichlet:0.5" }
even = { partition = "iid" }
"""


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(FOLDER)
    import study

    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    (tmp_path / "tiny.toml").write_text(STUDY)
    return study


@pytest.mark.sweep(every=4)
def test_a_study(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["skewed"], ["center"])
    assert {x["label"] for x in study.read("tiny")} == {"center"}
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["skewed"])
    lines = study.read("tiny")
    assert [(x["setting"], x["label"], x["seed"]) for x in lines] == [
        ("skewed", label, seed) for label in ("center", "fedavg") for seed in (0, 1, 2)
    ]
    searches = {x["label"]: x for x in import_module("rates").read_rates(tmp_path / "results", "tiny")}
    assert all(x["edges"] == {"lr": "inside"} and len(x["trials"]) >= 3 for x in searches.values())
    assert all(
        x["lr"] == searches[x["label"]]["choice"]["lr"] and x["stateless"] and x["skew"]["label"] > 0.1 for x in lines
    )
    for x in lines:  # a seed splits the data anew
        ready = prepare(Config.build(x["config"]))
        assert ready.partition is not None
        assert x["skew"]["label"] == round(measure_skew(ready.data_task.dataset, ready.partition.clients).label, 4)  # type: ignore[arg-type]
    assert len({x["skew"]["label"] for x in lines}) == 3
    assert json.loads((tmp_path / "results" / "machine.json").read_text()) == study.machine()

    config = study.settings("tiny", "skewed/center/1")
    summary = complete(config, tmp_path / "again", lambda: prepare(config), None)  # type: ignore[func-returns-value]
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["sha256"] == lines[1]["sha256"], summary
    with pytest.raises(SystemExit, match="not in"):
        study.settings("tiny", "skewed/center/7")

    def never(*_: object) -> None:
        raise AssertionError("it is known already")

    with monkeypatch.context() as patch:  # on another machine
        patch.setattr(import_module("undrift.studies.tune"), "complete", never)
        patch.setattr(import_module("undrift.studies.compare"), "complete", never)
        study.study(tmp_path / "tiny.toml", tmp_path / "elsewhere", ["skewed"])
    path = tmp_path / "results" / "tiny.jsonl"
    path.write_text("".join(text + "\n" for text in path.read_text().splitlines()[:-1]))
    with monkeypatch.context() as patch:  # the search is known, only the run is not
        patch.setattr(import_module("undrift.studies.tune"), "complete", never)
        study.study(tmp_path / "tiny.toml", tmp_path / "elsewhere", ["skewed"])
    same = ("seed", "sha256", "lr", "curve", "config")
    assert [[x[key] for key in same] for x in study.read("tiny")] == [[x[key] for key in same] for x in lines]
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["even"])
    assert len(study.read("tiny")) == 12 and set(study.committed("tiny")["settings"]) == {"skewed", "even"}
    assert Config.build(study.read("tiny")[0]["config"]).partition == "iid"


@pytest.mark.sweep(every=4)
def test_rows_in_several_processes(tmp_path: Path) -> None:
    """Lines and searches of all of them are collected; a row that fails does not keep the others."""
    for name in ("study", "rates", "shared"):
        copy(FOLDER / f"{name}.py", tmp_path)
    (tmp_path / "tiny.toml").write_text(STUDY)

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "study.py", "tiny.toml", "skewed", "--jobs", "2", "--runs", "runs"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "skewed-center").touch()  # where the folder of one row belongs
    assert (failed := run()).returncode == 1 and "these rows failed" in failed.stderr, failed.stderr
    assert failed.stderr.endswith("skewed/center\n")
    (tmp_path / "runs" / "skewed-center").unlink()
    assert (first := run()).returncode == 0, first.stderr
    assert "fedavg" not in first.stdout, "it did not wait for the other row"
    lines = [json.loads(text) for text in (tmp_path / "results/here/tiny.jsonl").read_text().splitlines()]
    known = [(label, seed) for label in ("center", "fedavg") for seed in range(3)]
    assert [(x["label"], x["seed"]) for x in lines] == known
    searches = (tmp_path / "results/here/rates/tiny.jsonl").read_text().splitlines()
    assert {json.loads(text)["label"] for text in searches} == {"center", "fedavg"}
    tuned = tomllib.loads((tmp_path / "results/here/tiny.toml").read_text())["settings"]["skewed"]["rows"]
    assert {label: row["local"]["lr"] for label, row in tuned.items()} == {x["label"]: x["lr"] for x in lines}
    assert run().stdout == "", "nothing is left to run"


PLAIN = STUDY.replace('protocol = "strict"\n', "").replace("tune = {", "# tune = {")


def test_a_study_with_given_learning_rates(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLAIN.replace('{ method = "fedavg" }', '{ method = "fedavg", local = { lr = 0.3 } }')
    (tmp_path / "given.toml").write_text("about = 'Rates of another study.'\n" + text)
    monkeypatch.setattr(import_module("undrift.studies.protocol"), "tune", None)
    study.study(tmp_path / "given.toml", tmp_path / "runs", ["even"], ["fedavg"])
    assert {(x["label"], x["lr"]) for x in study.read("given")} == {("fedavg", 0.3)}
    assert study.settings("given", "even/fedavg/1").local.lr == 0.3
    with pytest.raises(
        SystemExit, match='even/center: has no learning rate; only a study with protocol = "strict" tunes'
    ):
        study.study(tmp_path / "given.toml", tmp_path / "runs", ["even"])


def test_a_row_is_tuned_with_its_own_settings(study: Any) -> None:
    """Those of the row, and of the row in one setting, which also has them when it is run."""
    text = STUDY.replace('label = "center",', 'label = "center", local = { steps = 3 }, model = "small-cnn",')
    text = text.replace(
        'even = { partition = "iid" }',
        'even = { partition = "iid", rows = { center = { local = { batch_size = 5 } } } }',
    )
    whole = study.Comparison.build(tomllib.loads("own_local = true\nown_model = true\n" + text))
    tried = whole.row_tuning("even", "center").config((0.4,), seed=7)
    ran = next(
        x.config
        for x in whole.with_choice("even", "center", {"lr": 0.4}).trials()
        if (x.setting, x.label) == ("even", "center")
    )
    for config in (tried, ran):
        assert (config.local.steps, config.local.batch_size, config.local.lr) == (3, 5, 0.4)
        assert (config.model, config.partition) == ("small-cnn", "iid")


def test_what_is_not_in_a_study_is_refused(study: Any, tmp_path: Path) -> None:
    for given, message in (
        ((["evn"],), "no setting is named 'evn'; did you mean 'even'"),
        ((["even"], ["centre"]), "no row is labelled 'centre'; did you mean 'center'"),
    ):
        with pytest.raises(SystemExit, match=message):
            study.study(tmp_path / "tiny.toml", tmp_path / "runs", *given)
    assert not (tmp_path / "runs").exists()
