"""Runs on tables of one's own: what is reported, and what a run of an earlier version continues with."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.data import load
from undrift.data.own.columns import BEFORE
from undrift.runs import Config, load_model, load_run, resume, start
from undrift.runs.folder.files import RunError
from undrift.runs.folder.preprocess_file import FILE, read_preprocess
from undrift.runs.loop.run import complete
from undrift.runs.settings.schema import ConfigError
from undrift.runs.setup.prepare import prepare

pytest.importorskip("pyarrow")


@pytest.fixture(autouse=True)
def _table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(1)
    lines = []
    for n in range(240):
        age, sex, ward = draw.integers(20, 80), "fm"[n % 2], "abc"[n % 3]
        lines.append(f"{age},{sex},{ward},p{n},{150 * age + draw.normal(0, 40):.2f},{'yes' if n % 12 == 0 else 'no'}")
    Path("ward.csv").write_text("\n".join(["age,sex,ward,code,cost,ill", *lines]))


def config(target: str = "cost", **more: Any) -> Config:
    data = {"name": "ward.csv", "target": target}
    return Config.build({"data": data, "partition": "column:ward", "rounds": 3, "output": {"lens_every": 0}, **more})


def test_a_run_names_what_it_left_out_and_what_a_constant_answer_reaches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "undrift.steps"):
        outcome = start(config("ill"), "run")
    assert caplog.messages == ["ward.csv: left out as inputs: code (240 different texts)"]
    constant = outcome.summary["constant"]
    assert constant["answer"] == "no" and constant["accuracy"] == pytest.approx(22 / 24)
    made = read_preprocess(Path("run"))
    assert made is not None and made.labels == ("no", "yes") and made.targets == ("ill",)
    assert [one.name for one in made.columns] == ["age", "sex", "cost"]


def test_numbers_to_predict_are_judged_in_their_own_units() -> None:
    outcome = start(config(rounds=12), "run")
    constant = outcome.summary["constant"]
    assert constant["answer"] == "the mean" and constant["mae"] > 1000
    assert outcome.summary["mae"] < 400 and outcome.summary["test_loss"] < 0.1


def test_a_run_of_an_earlier_version_continues_as_it_began() -> None:
    given = config("ill", rounds=4)
    old = load("ward.csv", target="ill", owner="ward", **BEFORE)  # type: ignore[arg-type]
    whole = start(given, "whole", setup=prepare(given, old)).summary["sha256"]
    begun = given.model_copy(update={"rounds": 2})
    start(begun, "part", setup=prepare(begun, old))
    Path("part", FILE).unlink()  # earlier versions wrote none
    with pytest.raises(RunError, match="begun by a version that read tables in another way; continue it by itself"):
        complete(given, Path("part"), lambda: prepare(given))  # as a comparison shares data
    assert resume("part", rounds=4).summary["sha256"] == whole
    made = read_preprocess(Path("part"))
    assert made is not None and made.statistics == "pooled"
    assert load_run("part").model() is not None


def test_a_run_with_the_same_settings_is_continued() -> None:
    begun = config(rounds=2)
    start(begun, "part")
    again = start(config(rounds=4), "part", resume=True)
    assert again.summary["sha256"] == start(config(rounds=4), "whole").summary["sha256"]


def test_data_that_are_prepared_in_another_way_are_refused() -> None:
    start(config(rounds=2), "run")
    record = json.loads(Path("run", FILE).read_text())
    Path("run", FILE).write_text(json.dumps({**record, "mean": [0.0] * 3}))
    with pytest.raises(RunError, match="the data are not prepared as when the run began"):
        resume("run", rounds=3)


def test_class_weights_find_a_rare_class() -> None:
    metrics = ["balanced-accuracy", "f1(label=1)", "auroc"]
    values = {"rounds": 5, "metrics": metrics, "loss": "cross-entropy(weights='balanced')"}
    given = config("ill", **values)
    assert given.loss == "cross-entropy(weights='balanced')"
    weights = prepare(given).data_task.criterion.weights  # type: ignore[union-attr]
    assert weights == pytest.approx((216 / (2 * 198), 216 / (2 * 18)))
    summary = start(given, "run").summary
    assert {"accuracy", "balanced_accuracy", "f1", "auroc"} <= set(summary)
    assert summary["constant"]["balanced_accuracy"] == 0.5 and summary["constant"]["f1"] == 0
    with pytest.raises(ValueError, match=r"the data have 2 classes; give a weight for each"):
        prepare(config("ill", loss="cross-entropy(weights=(1, 2, 3))"))
    with pytest.raises(
        ValueError, match=r"arguments are weights='balanced' or weights=\(1, 5\), of cross-entropy only"
    ):
        config("ill", loss="mse(weights=(1, 2))")


def test_a_loss_of_ones_own_gets_a_notice_that_targets_are_scaled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "own_loss.py").write_text(
        "def squared(outputs, targets): return ((outputs[:, 0] - targets) ** 2).mean()"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with caplog.at_level(logging.WARNING, "undrift.steps"):
        prepare(config(loss="own_loss:squared"))
    notice = "loss: own_loss:squared gets targets with mean 0 and deviation 1; scale='inputs' in data leaves them"
    assert notice in caplog.messages


def test_a_partition_that_fails_names_the_columns_that_may_be_clients() -> None:
    with pytest.raises(ConfigError, match=r"sex, ward may: --partition column:sex"):
        prepare(config("ill", partition="natural"))
    with pytest.raises(
        ConfigError, match=r'equal size: --partition "dirichlet-client\(0\.1\)"; if a column names .* sex'
    ):
        prepare(config("ill", partition="dirichlet:0.1", clients=20))


def test_the_folders_above_images_are_named_as_clients() -> None:
    image = pytest.importorskip("PIL.Image")
    for number in range(24):
        folder = Path("scans", "north" if number % 2 else "south", "ab"[number // 2 % 2])
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((4, 4), number, np.uint8)).save(folder / f"{number}.png")
    given = Config.build({"data": "./scans", "partition": "natural", "rounds": 1})
    with pytest.raises(ConfigError, match=r"as folder may: --partition column:folder"):
        prepare(given)


def test_predictions_need_a_run_or_an_export() -> None:
    with pytest.raises(RunError, match="nowhere: neither a run nor an export: give a folder that undrift run or"):
        load_model("nowhere")


@pytest.mark.parametrize("ages", [20, 200])
def test_the_columns_that_a_model_receives_are_named(ages: int, caplog: pytest.LogCaptureFixture) -> None:
    first, *rows = [line.split(",", 1)[1] for line in Path("ward.csv").read_text().splitlines()]
    lines = [f"{'?' if n == 9 else n % ages},{row}" for n, row in enumerate(rows)]
    Path("ward.csv").write_text("\n".join([f"age,{first}", *lines]))
    with caplog.at_level(logging.INFO, "undrift.steps"):
        prepare(config("ill"))
    few = [
        "ward.csv: left out as inputs: code (240 different texts)",
        "ward.csv: column 'age' is read as texts, since '?' is no number; leave such cells empty",
        "ward.csv: predicts ill from age (21 texts), sex (2 texts), cost",
    ]
    many = [
        "ward.csv: left out as inputs: age (201 different texts; '?' is no number), code (240 different texts)",
        "ward.csv: predicts ill from sex (2 texts), cost",
    ]
    assert caplog.messages == (few if ages == 20 else many)


def test_one_client_by_default_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Path("ward.csv").write_text("\n".join(Path("ward.csv").read_text().splitlines()[:120]))
    prepare(Config.build({"data": "ward.csv(target='ill')"}))
    assert caplog.messages[-1] == (
        "ward.csv: one client, since there are only 107 training examples; for several give --clients 4, or "
        "--partition column:sex"
    )
    caplog.clear()
    prepare(Config.build({"data": "ward.csv(target='ill')", "clients": 1}))
    assert not [text for text in caplog.messages if "one client" in text]
