"""The data set in the package: the same as scikit-learn's, and enough for a run anywhere."""

from pathlib import Path

import numpy as np
import pytest
import torch

import undrift
from undrift.data import available, load
from undrift.data.arrays.images import read_npz
from undrift.data.files import find as places
from undrift.data.files.digits import FILE, read_digits
from undrift.runs import Config, start


def test_the_images_are_those_of_scikit_learn() -> None:
    theirs = pytest.importorskip("sklearn.datasets").load_digits()
    assert np.array_equal(read_npz(FILE, "images"), theirs.images)
    assert np.array_equal(read_npz(FILE, "labels"), theirs.target)
    assert FILE.stat().st_size < 50_000 and FILE.is_relative_to(Path(undrift.__file__).parent)  # so it is in the wheel


def test_the_split_is_stratified_and_complete() -> None:
    parts = {split: read_digits(split) for split in ("train", "test")}
    assert {split: len(part["label"]) for split, part in parts.items()} == {"train": 1438, "test": 359}
    counts = {split: np.bincount(part["label"]) for split, part in parts.items()}
    assert np.array_equal(counts["train"], np.rint(0.8 * (counts["train"] + counts["test"])))
    whole = read_npz(FILE, "images").astype(float) * 255 / 16
    both = np.concatenate([part["image"] for part in parts.values()])
    assert sorted(np.rint(whole).astype(np.uint8).tobytes()) == sorted(both.tobytes())


@pytest.mark.quick
def test_statistics_and_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path))
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    monkeypatch.setattr(places, "DEBIAN", tmp_path)
    data = load("digits")
    assert data.shape == (1, 8, 8) and data.classes == 10 and data.train.inputs.dtype == torch.uint8
    pixels = data.train.inputs.double() / 255
    assert data.mean[0] == pytest.approx(float(pixels.mean()), abs=1e-4)
    assert data.std[0] == pytest.approx(float(pixels.std(correction=0)), abs=1e-4)
    found = next(row for row in available() if row.name == "digits")
    assert found.available and found.where == "in the package"


def test_a_run_with_all_defaults_learns(tmp_path: Path) -> None:
    outcome = start(Config(data="digits"), tmp_path / "run")
    assert outcome.summary["best_accuracy"] > 0.7 and outcome.summary["parameters"] == 9610
    assert Config.read(tmp_path / "run" / "config.toml").clients == 14
