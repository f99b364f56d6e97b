"""A model that can be used: exported with its preprocessing, loaded again, and used for predictions."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import undrift
from undrift.cli import app
from undrift.data import DataError
from undrift.data.arrays.preprocess import InputColumn, Preprocess
from undrift.data.own.rows import as_rows
from undrift.runs import Config, export, load_model, start
from undrift.runs.folder.files import RunError
from undrift.runs.folder.signature import AuditError
from undrift.runs.reading.model_folder import script
from undrift.runs.setup.prepare import prepare

pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

FILES = ["README.md", "config.json", "model.pt2", "model.safetensors", "predict.py", "preprocess.json"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a run on it, an export, and a run on images."""
    folder, patch = tmp_path_factory.mktemp("models"), pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setenv("UNDRIFT_CACHE", str(folder / "cache"))
        patched.chdir(folder)
        draw = np.random.default_rng(1)
        with open("ward.csv", "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["age", "sex", "ward", "ill"])
            for n in range(200):
                age = int(draw.integers(20, 80))
                rows.writerow(["" if n == 9 else age, "fm"[n % 2], "abc"[n % 3], "yes" if age > 60 else "no"])
        for n in range(60):
            picture = Path("scans", f"site{n % 2}", ("bright", "dark")[n // 2 % 2], f"{n}.png")
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), int(draw.integers(0, 100)) + 150 * (n // 2 % 2 == 0)).save(picture)
        run("ward", {"name": "ward.csv", "target": "ill", "missing": "median"}, "column:ward", rounds=8)
        run("scan", "./scans", "column:folder", rounds=3)
        export("ward", "model")
    return folder


def run(name: str, data: Any, partition: str, **more: Any) -> None:
    values = {"data": data, "partition": partition, "output": {"lens_every": 0}, **more}
    start(Config.build(values), name)


@pytest.fixture
def inside(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNDRIFT_CACHE", str(here / "cache"))
    monkeypatch.chdir(here)
    return here


def test_a_folder_has_what_is_needed(inside: Path) -> None:
    assert sorted(path.name for path in Path("model").iterdir()) == FILES
    about = json.loads(Path("model/config.json").read_text())
    assert about["model"] == "mlp" and about["arguments"] == {"classes": 2, "outputs": None, "inputs": 3}
    assert about["sha256"]["run"] == json.loads(Path("ward/summary.json").read_text())["sha256"]
    made = json.loads(Path("model/preprocess.json").read_text())
    assert made["labels"] == ["no", "yes"] and [one["name"] for one in made["columns"]] == ["age", "sex"]
    card = Path("model/README.md").read_text()
    assert card.startswith("---\nlibrary_name: pytorch\npipeline_tag: tabular-classification\n")
    for text in ("model-index:", "always no", about["sha256"]["run"], "Classes, in the order of the outputs: no, yes"):
        assert text in card


def test_predictions_are_those_of_training(inside: Path) -> None:
    config = Config.read(Path("ward/config.toml"))
    task = prepare(config).data_task
    expected = torch.softmax(undrift.load_run("ward").model()(task.dataset.test.inputs), 1)
    for folder in ("ward", "model"):
        loaded = undrift.load_model(folder)
        found = loaded.predict("ward.csv")
        assert set(found) == {"prediction", "probability"} and len(found["prediction"]) == 200
        rows = list(csv.DictReader(Path("ward.csv").read_text().splitlines()))
        right = np.mean([row["ill"] == own for row, own in zip(rows, found["prediction"], strict=True)])
        assert right > 0.9
        columns = {"sex": [row["sex"] for row in rows], "age": [float(row["age"] or "nan") for row in rows]}
        assert loaded.predict(columns) == found
        kept = loaded.predict("ward.csv", keep=["sex", "ill"])
        assert kept == {"sex": columns["sex"], "ill": [row["ill"] for row in rows], **found}
        with pytest.raises(DataError, match="no column is named 'name' to be kept; the table has"):
            loaded.predict(columns, keep=["name"])
        raw = torch.tensor([[25.0, 0.0], [70.0, 1.0]], dtype=torch.float64)
        assert loaded.predict(raw)["prediction"] == ["no", "yes"]
        with pytest.raises(DataError, match="keep names columns, and only a table has some"):
            loaded.predict(raw, keep=["sex"])
    assert expected.shape == (20, 2)


@pytest.mark.sweep(every=4)
def test_the_script_runs_in_plain_pytorch(inside: Path, tmp_path: Path) -> None:
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-I", "model/predict.py", "ward.csv"], env=clean, capture_output=True, text=True, check=True
    )
    found = undrift.load_model("model").predict("ward.csv")
    expected = [f"{a} {b:.4f}" for a, b in zip(found["prediction"], found["probability"], strict=True)]
    assert done.stdout.splitlines() == expected
    assert "undrift" not in Path("model/predict.py").read_text()


@pytest.mark.sweep(every=2)
def test_the_script_reads_gaps_as_training_does_and_says_what_is_missing(inside: Path, tmp_path: Path) -> None:
    def predict(*rows: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "new.csv").write_text("\n".join(rows) + "\n")
        words = [sys.executable, "-I", "model/predict.py", *([str(tmp_path / "new.csv")] if rows else [])]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    done = predict("age,sex", "NA,f", "31,", "n/a,m")
    found = undrift.load_model("model").predict(tmp_path / "new.csv")
    assert done.stdout.split()[::2] == found["prediction"]
    assert done.stdout.split()[1::2] == [f"{share:.4f}" for share in found["probability"]]
    absent = predict("age", "31")
    assert absent.returncode == 1 and absent.stderr.endswith("no column sex, which the model was trained on\n")
    empty = predict()
    assert empty.returncode == 1 and empty.stderr.startswith("Predictions of this model in plain PyTorch: python")


def test_a_column_without_a_text_has_the_category_of_empty_texts() -> None:
    columns = (InputColumn("sex", ("", "f", "m")),)
    none = np.ma.MaskedArray(np.zeros(2), [True, True])  # as a table is read in which the column has no text
    assert as_rows({"sex": none}, columns).tolist() == [[0.0], [0.0]]
    assert np.isnan(as_rows({"sex": none}, (InputColumn("sex", ("f", "m")),))).all()


def test_a_model_for_all_of_a_run_that_was_judged_by_each_clients_own_is_named(
    inside: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(str(tmp_path / "own"), "./scans", "column:folder", rounds=1, method="fedper")
    export(tmp_path / "own", tmp_path / "one.safetensors", client=0)
    assert caplog.messages == []
    assert str(load_model(tmp_path / "own")) == "LoadedModel(MLP: image [1, 8, 8] -> bright, dark)"
    export(tmp_path / "own", tmp_path / "all.safetensors")
    said = f"{tmp_path / 'own'}: this is the model for all; clients have their own, by their number: 0 to 1"
    assert caplog.messages == [said, said]


def test_new_rows_that_do_not_fit(inside: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = undrift.load_model("model")
    with pytest.raises(DataError, match="the table has no column 'age'; found sex"):
        model.predict({"sex": ["f"]})
    assert model.predict({"age": [None], "sex": ["x"]})["prediction"] == ["no"]
    assert caplog.messages == ["column 'sex': 1 rows have texts that training did not have (x)"]
    with pytest.raises(DataError, match=r"none\.csv: no such file or folder"):
        model.predict("none.csv")
    with pytest.raises(RunError, match="an export has one model; leave out client and round"):
        load_model("model", client=1)


def test_the_command(inside: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["predict", "model", "ward.csv", "--out", str(tmp_path / "out.csv")])
    assert done.exit_code == 0 and done.stdout == f"{tmp_path / 'out.csv'}  200 predictions\n"
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "prediction,probability" and len(lines) == 201
    shown = CliRunner().invoke(app, ["predict", "scan", "scans/site0"])
    assert shown.exit_code == 0 and shown.stdout.startswith("file,prediction,probability\nscans/site0/bright/")
    wrong = CliRunner().invoke(app, ["predict", "cache", "ward.csv"])
    assert wrong.exit_code == 2 and "cache: neither a run nor an export" in wrong.output


def test_images_are_prepared_as_in_training(inside: Path) -> None:
    task = prepare(Config.read(Path("scan/config.toml"))).data_task
    model = undrift.load_model("scan")
    stored = task.dataset.test.inputs
    with torch.inference_mode():
        expected = torch.softmax(model.module(task.prepare(stored)), 1)
    assert torch.equal(model.outputs(stored), expected)
    Image.new("RGB", (30, 20), (255, 255, 255)).save("large.png")
    assert model.predict("large.png")["file"] == ["large.png"]


def test_a_damaged_model_is_not_exported(inside: Path, tmp_path: Path) -> None:
    weights = load_file("scan/model.safetensors")
    before = Path("scan/model.safetensors").read_bytes()
    save_file({name: x + 1 for name, x in weights.items()}, "scan/model.safetensors")
    try:
        with pytest.raises(AuditError, match=r"model.safetensors: is not the one that audit.jsonl has"):
            export("scan", tmp_path / "m.safetensors")
    finally:
        Path("scan/model.safetensors").write_bytes(before)
    copy = tmp_path / "model"
    copy.mkdir()
    for name in ("config.json", "preprocess.json", "model.safetensors"):
        (copy / name).write_bytes(Path("model", name).read_bytes())
    (copy / "model.safetensors").write_bytes(Path("model/model.safetensors").read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(
        RunError, match=r"damaged: it is not the file that config\.json describes; export the run again"
    ):
        load_model(copy)


@pytest.mark.sweep(every=4)
def test_a_graph_has_the_preprocessing_inside(inside: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    reference = pytest.importorskip("onnx.reference")
    path = export("ward", tmp_path / "m.onnx")
    rows = torch.tensor([[25.0, 0.0], [float("nan"), 1.0], [70.0, float("nan")]], dtype=torch.float64)
    (found,) = reference.ReferenceEvaluator(str(path)).run(None, {"input": rows.numpy()})
    assert torch.allclose(torch.from_numpy(found), undrift.load_model("ward").outputs(rows), atol=1e-6)


@pytest.mark.parametrize(
    "made",
    [
        Preprocess("image", (3, 8, 8), 2, ("a", "b")),
        Preprocess("text", (80,), 81, ("a",) * 81, encoding="characters", vocabulary="ab"),
        Preprocess("text", (4,), 2, ("a", "b"), encoding="words", symbols=9),
        Preprocess("table", (3,), 1),
    ],
)
def test_scripts_of_other_kinds_compile(made: Preprocess) -> None:
    text = script(made)
    compile(text, "predict.py", "exec")
    assert len(text.splitlines()) < 32 and text.isascii()
