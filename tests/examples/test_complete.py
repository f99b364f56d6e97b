"""The scripts of examples/complete: from files that they make up to report, export and predictions."""

import csv
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import undrift

for module in ("pyarrow", "PIL", "plotly"):
    pytest.importorskip(module)

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "complete"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


def script(name: str) -> Any:
    """A script as a module."""
    spec = spec_from_file_location(f"complete_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_downloads_nothing(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text()
    assert len(text.splitlines()) < 60 and "http" not in text
    assert f"`{name}.py`" in (FOLDER / "README.md").read_text()


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))


@pytest.mark.sweep(every=4)
def test_the_bank(tmp_path: Path) -> None:
    summary = script("bank").main(tmp_path, rounds=6)
    assert summary["balanced_accuracy"] > 0.8 and summary["constant"]["balanced_accuracy"] == 0.5
    assert (tmp_path / "report.html").stat().st_size > 100_000
    new = tmp_path / "new.csv"
    found = undrift.load_model(tmp_path / "run").predict(new)
    assert found == undrift.load_model(tmp_path / "model").predict(new) and len(found["prediction"]) == 5
    command = [sys.executable, "-I", str(tmp_path / "model" / "predict.py"), str(new)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[::2] == found["prediction"]


@pytest.mark.sweep(every=4)
def test_the_hospital(tmp_path: Path) -> None:
    summary = script("hospital").main(tmp_path, rounds=4)
    assert {"accuracy", "personal_accuracy"} <= set(summary)
    new = tmp_path / "new" / "site-2"
    own = undrift.load_model(tmp_path / "run", client=2).predict(new)
    assert own == undrift.load_model(tmp_path / "model-of-site-2").predict(new)
    assert own != undrift.load_model(tmp_path / "run", client=1).predict(new)
    pictures = sorted(str(path) for path in new.rglob("*.png"))
    command = [sys.executable, "-I", str(tmp_path / "model-of-site-2" / "predict.py"), *pictures]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert printed[::2] == own["prediction"]


@pytest.mark.sweep(every=4)
def test_the_fleet(tmp_path: Path) -> None:
    summary = script("fleet").main(tmp_path, rounds=10)
    assert summary["mae"] < 0.5 * summary["constant"]["mae"]
    with (tmp_path / "new.csv").open() as file:
        left = [float(row["hours_left"]) for row in csv.DictReader(file)]
    found = undrift.load_model(tmp_path / "model").predict(tmp_path / "new.csv")["hours_left"]
    assert sum(abs(a - b) for a, b in zip(found, left, strict=True)) / len(left) < 80
