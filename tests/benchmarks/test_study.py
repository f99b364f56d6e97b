"""A study on digits: tuned, run, collected, and not computed twice."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from undrift.data.partitions.skew import measure_skew
from undrift.runs import Config
from undrift.runs.loop.run import complete
from undrift.runs.setup.prepare import prepare

FOLDER = Path(__file__).parents[2] / "benchmarks" / "studies"
STUDY = """
name = "tiny"
seeds = [0, 1]
baseline = "fedavg"
tune = { lr = [0.05, 0.1], rounds = 1, seed = 100, widenings = 0 }
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


def test_a_study(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["skewed"], ["center"])
    assert {x["label"] for x in study.read("tiny")} == {"center"}
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["skewed"])
    lines = study.read("tiny")
    assert [(x["setting"], x["label"], x["seed"]) for x in lines] == [
        ("skewed", label, seed) for label in ("center", "fedavg") for seed in (0, 1)
    ]
    assert all(x["lr"] in (0.05, 0.1) and x["stateless"] and x["skew"]["label"] > 0.1 for x in lines)
    for x in lines:  # a seed splits the data anew
        ready = prepare(Config.build(x["config"]))
        assert x["skew"]["label"] == round(measure_skew(ready.data_task.dataset, ready.partition.clients).label, 4)
    assert len({x["skew"]["label"] for x in lines}) == 2
    assert json.loads((tmp_path / "results" / "machine.json").read_text()) == study.machine()

    config = study.settings("tiny", "skewed/center/1")
    summary = complete(config, tmp_path / "again", lambda: prepare(config), None)
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["sha256"] == lines[1]["sha256"], summary
    with pytest.raises(SystemExit, match="not in"):
        study.settings("tiny", "skewed/center/7")

    def never(*_: object) -> None:
        raise AssertionError("it is known already")

    with monkeypatch.context() as patch:  # on another machine
        patch.setattr(study, "tune", never)
        patch.setattr(import_module("undrift.studies.compare"), "complete", never)
        study.study(tmp_path / "tiny.toml", tmp_path / "elsewhere", ["skewed"])
    study.study(tmp_path / "tiny.toml", tmp_path / "runs", ["even"])
    assert len(study.read("tiny")) == 8 and set(study.committed("tiny")["settings"]) == {"skewed", "even"}
    assert Config.build(study.read("tiny")[0]["config"]).partition == "iid"


def test_a_study_with_given_learning_rates(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STUDY.replace('{ method = "fedavg" }', '{ method = "fedavg", local = { lr = 0.3 } }')
    text = "\n".join(["about = 'Rates of another study.'", "own_local = true", text]).replace("tune = {", "# tune = {")
    (tmp_path / "given.toml").write_text(text)
    monkeypatch.setattr(study, "tune", None)
    study.study(tmp_path / "given.toml", tmp_path / "runs", ["even"])
    assert {(x["label"], x["lr"]) for x in study.read("given")} == {("fedavg", 0.3), ("center", 0.1)}
    assert study.settings("given", "even/fedavg/1").local.lr == 0.3


def test_a_row_may_have_rates_of_its_own(study: Any, tmp_path: Path) -> None:
    whole = STUDY.replace("widenings = 0 }", "widenings = 0, rows = { center = [0.01, 0.02] } }")
    (tmp_path / "own.toml").write_text(whole)
    study.study(tmp_path / "own.toml", tmp_path / "runs", ["even"])
    rates = {
        x["label"]: [lr for lr, _ in x["rates"]] for x in import_module("rates").read_rates(tmp_path / "results", "own")
    }
    assert rates == {"fedavg": [0.05, 0.1], "center": [0.01, 0.02]}
    (tmp_path / "more.toml").write_text(whole.replace("[0.01, 0.02]", "[0.01, 0.02, 0.04]"))
    with pytest.raises(SystemExit, match=r"tune\.rows\.center: give 2 learning rates, as the other rows have"):
        study.study(tmp_path / "more.toml", tmp_path / "runs", ["even"])


def test_a_row_is_tuned_with_its_own_settings(study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the row, and of the row in one setting, which also has them when it is run."""
    text = STUDY.replace('label = "center",', 'label = "center", local = { steps = 3 }, model = "small-cnn",')
    text = text.replace(
        'even = { partition = "iid" }',
        'even = { partition = "iid", rows = { center = { local = { batch_size = 5 } } } }',
    )
    (tmp_path / "own.toml").write_text("own_local = true\nown_model = true\n" + text)
    seen: list[Any] = []
    tune = study.tune
    monkeypatch.setattr(study, "tune", lambda tuning, folder: (seen.append(tuning), tune(tuning, folder)))
    study.study(tmp_path / "own.toml", tmp_path / "runs", ["even"], ["center"])
    tried = seen[0].config((0.05,))
    assert (tried.local.steps, tried.local.batch_size, tried.model) == (3, 5, "small-cnn") and "rows" not in seen[
        0
    ].base
    ran = study.settings("own", "even/center/0")
    assert (ran.local.steps, ran.local.batch_size, ran.model) == (3, 5, "small-cnn") and ran.local.lr in (0.05, 0.1)


def test_what_is_not_in_a_study_is_refused(study: Any, tmp_path: Path) -> None:
    for given, message in (
        ((["evn"],), "no setting is named 'evn'; did you mean 'even'"),
        ((["even"], ["centre"]), "no row is labelled 'centre'; did you mean 'center'"),
    ):
        with pytest.raises(SystemExit, match=message):
            study.study(tmp_path / "tiny.toml", tmp_path / "runs", *given)
    assert not (tmp_path / "runs").exists()
