"""A Fashion-MNIST of toys for tests of whole runs: ten classes that a small network learns in a few rounds."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.runs.loop import run as runs

SIDE, CLASSES = 28, 10
RUN: dict[str, Any] = {
    "partition": "dirichlet:1,min_size=10",
    "clients": 8,
    "cohort": 4,
    "rounds": 2,
    "model": "small-cnn",
    "local": {"batch_size": 10, "epochs": 1},
}
"""Settings of a run that takes about half a second."""


def write_tiny_fashion(folder: Path, train: int = 600, test: int = 200, seed: int = 0) -> None:
    """Write the four idx files: every class is a bright spot in a place of its own, shifted and under noise."""
    draw = np.random.default_rng(seed)
    for stem, count in (("train", train), ("t10k", test)):
        labels = draw.permutation(np.arange(count, dtype=np.uint8) % CLASSES)
        _write_idx(folder / f"{stem}-images-idx3-ubyte.gz", _pictures(labels, draw))
        _write_idx(folder / f"{stem}-labels-idx1-ubyte.gz", labels)


def _pictures(labels: np.ndarray[Any, Any], draw: np.random.Generator) -> np.ndarray[Any, Any]:
    angle = 2 * np.pi * labels / CLASSES
    centre = SIDE / 2 + 9 * np.stack([np.sin(angle), np.cos(angle)], axis=1) + draw.normal(0, 1.5, (len(labels), 2))
    rows, columns = np.mgrid[:SIDE, :SIDE]
    distance = (rows - centre[:, :1, None]) ** 2 + (columns - centre[:, 1:, None]) ** 2
    pictures = 220 * np.exp(-distance / 12) + draw.normal(30, 20, distance.shape)
    out: np.ndarray[Any, Any] = np.clip(pictures, 0, 255).astype(np.uint8)
    return out


def _write_idx(path: Path, array: np.ndarray[Any, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(gzip.compress(head + array.tobytes(), compresslevel=1, mtime=0))


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the toys as fashion-mnist."""
    folder = tmp_path_factory.mktemp("tiny")
    write_tiny_fashion(folder / "fashion-mnist")
    return folder


@pytest.fixture(scope="module")
def tiny(tiny_data: Path) -> Iterator[Path]:
    """The toys are the only data, with a cache of their own, while a module's tests run: others see the machine's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDRIFT_DATA", str(tiny_data))
        patch.setenv("UNDRIFT_CACHE", str(tiny_data / "cache"))
        yield tiny_data


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The last two names of the folders of runs that are started or gone on with from now on."""
    found: list[str] = []
    go: Callable[..., Any] = runs._train

    def counted(run: Any, *rest: Any) -> Any:
        found.append("/".join(run.path.parts[-2:]))
        return go(run, *rest)

    monkeypatch.setattr(runs, "_train", counted)
    return found
