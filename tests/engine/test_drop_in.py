"""examples/flower_app: few lines turn Flower's FedAvg into FedFFT-D, and both apps run."""

import gzip
import importlib
import sys
import tomllib
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict

from support.flower_grid import StandInGrid
from undrift import make
from undrift.engine.flower.server import receive

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "flower_app"
NODES = 3


def sources(name: str) -> dict[str, list[str]]:
    """The lines of every file of an app."""
    root = FOLDER / name
    found = [path for path in sorted(root.rglob("*")) if path.suffix in (".py", ".toml")]
    return {path.relative_to(root).as_posix(): path.read_text().splitlines() for path in found}


def changes() -> list[str]:
    """The lines removed and added on the way from before to after."""
    before, after = sources("before"), sources("after")
    assert list(before) == list(after)
    lines = [line for name in before for line in list(unified_diff(before[name], after[name], lineterm="", n=0))[2:]]
    return [line for line in lines if not line.startswith("@@")]


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "fashion"]:
        del sys.modules[name]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """How to import an app; both packages have the same name."""

    def load(name: str) -> tuple[ModuleType, ...]:
        forget()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(FOLDER / name)
            names = ("task", "client_app", "server_app")
            modules = tuple(importlib.import_module(f"fashion.{part}") for part in names)
        assert all(Path(module.__file__).is_relative_to(FOLDER / name) for module in modules)  # type: ignore[arg-type]
        return modules

    yield load
    forget()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A few images in the files of Fashion-MNIST: the brighter, the higher the class."""
    random, folder = np.random.default_rng(0), tmp_path / "data" / "fashion-mnist"
    folder.mkdir(parents=True)
    for split, count in (("train", 300), ("t10k", 100)):
        labels = random.permutation(np.arange(count, dtype=np.uint8) % 10)
        images = (labels[:, None] * 25 + random.integers(0, 25, (count, 784))).astype(np.uint8)
        for kind, header, content in (("images-idx3", 16, images), ("labels-idx1", 8, labels)):
            packed = gzip.compress(bytes(header) + content.tobytes())
            (folder / f"{split}-{kind}-ubyte.gz").write_bytes(packed)
    monkeypatch.setenv("UNDRIFT_DATA", str(folder.parent))
    return folder


def run(name: str, modules: tuple[ModuleType, ...], root: Path, **settings: Any) -> list[ArrayRecord]:
    """The global model before and after each of two rounds."""
    _, client, server = modules
    grid, seen = StandInGrid(client.app, NODES, root), list[ArrayRecord]()
    config = tomllib.loads((FOLDER / name / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    config |= {"num-rounds": 2, "num-nodes": NODES, **settings}
    evaluate = server.evaluate

    def watch(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        assert server_round == len(seen)
        seen.append(arrays)
        out: MetricRecord = evaluate(server_round, arrays)
        return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(receive, "sleep", lambda seconds: None)
        patch.setattr(server, "evaluate", watch)
        server.app(grid, Context(grid.run_id, 1, {}, RecordDict(), config))
    return seen


def test_the_diff_is_under_ten_lines() -> None:
    signs = [line[0] for line in changes()]
    assert signs.count("+") < 10 and signs.count("-") < 10
    assert 'make("fedfft-d")' in "\n".join(changes())


def test_the_readme_shows_the_diff() -> None:
    shown = (FOLDER / "README.md").read_text().partition("```diff\n")[2].partition("```")[0].splitlines()
    assert [line for line in shown if line[:1] in ("+", "-") and line[:3] not in ("+++", "---")] == changes()


@pytest.mark.parametrize("name", ["before", "after"])
def test_the_app_runs(name: str, load: Any, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start, *_, end = run(name, load(name), tmp_path, **{"batch-size": 20, "epochs": 2})
    assert capsys.readouterr().out.count("accuracy") == 3
    first, last = start.to_torch_state_dict(), end.to_torch_state_dict()
    for entry, x in last.items():
        assert x.isfinite().all() and not torch.equal(x, first[entry]), entry


def test_with_the_same_method_both_give_the_same_model(load: Any, data: Path, tmp_path: Path) -> None:
    whole = {"batch-size": 1000, "epochs": 2}  # one batch: the order of examples, drawn by each in its way, is nothing
    expected = run("before", load("before"), tmp_path / "before", **whole)
    modules = load("after")
    for module in modules[1:]:
        module.make = lambda name: make("fedavg")
    actual = run("after", modules, tmp_path / "after", **whole)
    for ours, theirs in zip(actual, expected, strict=True):
        for entry, x in theirs.to_torch_state_dict().items():
            torch.testing.assert_close(ours.to_torch_state_dict()[entry], x, rtol=1e-5, atol=1e-6)


def test_the_partition_deals_out_every_example_once_and_unevenly(load: Any) -> None:
    task, *_ = load("before")
    labels = np.arange(5000) % 10
    parts = task.partition(labels, 10)
    assert sorted(np.concatenate(parts)) == list(range(5000)) and min(map(len, parts)) >= 10
    shares = np.array([np.bincount(labels[part], minlength=10).max() / len(part) for part in parts])
    assert shares.mean() > 0.4
    assert all(np.array_equal(x, y) for x, y in zip(parts, task.partition(labels, 10), strict=True))


def test_missing_data_is_said(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path))
    task, *_ = load("before")
    monkeypatch.setattr(task, "DEBIAN", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="apt install dataset-fashion-mnist, or set UNDRIFT_DATA"):
        task.read("train")


def test_data_elsewhere_does_not_hide_debians(
    load: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    task, *_ = load("before")
    monkeypatch.setenv("UNDRIFT_DATA", str(tmp_path / "empty"))
    monkeypatch.setattr(task, "DEBIAN", str(data))
    assert len(task.read("t10k")) == 100


def test_debians_files(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, *_ = load("before")
    if not Path(task.DEBIAN).exists():
        pytest.skip("dataset-fashion-mnist is not installed")
    monkeypatch.delenv("UNDRIFT_DATA", raising=False)
    images, labels = task.read("t10k").tensors
    assert images.shape == (10_000, 1, 28, 28) and labels.bincount().tolist() == [1000] * 10
    assert abs(images.mean()) < 0.05 and abs(images.std() - 1) < 0.05
