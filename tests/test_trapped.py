"""Booby-trapped files: no loader runs what a file contains, and each says which formats it reads."""

import gzip
import io
import os
import pickle
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from undrift import make
from undrift.core.local.devices import read_devices
from undrift.core.records.types import ClientState
from undrift.core.tasks.participation import read_trace
from undrift.data import load
from undrift.data.arrays.dataset import DataError
from undrift.data.partitions.draw import partition
from undrift.engine.stores.store import DiskStore, StoreError
from undrift.models import read_weights
from undrift.runs.folder.checkpoint import CheckpointError, Checkpoints
from undrift.runs.folder.files import RunError
from undrift.runs.reading.export import export
from undrift.runs.settings.config import Config
from undrift.runs.settings.schema import ConfigError


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.canary),)


def _saved(trap: Trap, legacy: bool) -> bytes:
    file = io.BytesIO()
    torch.save({"w": torch.ones(2), "trap": trap}, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def _npy(trap: Trap) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([trap], dtype=object), allow_pickle=True)
    return file.getvalue()


def _npz(trap: Trap) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(file, inputs=np.array([trap], dtype=object), targets=np.array([trap], dtype=object), x=np.zeros(1))
    return file.getvalue()


def _zip(trap: Trap, *names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, pickle.dumps(trap))
    return file.getvalue()


def payloads(trap: Trap) -> dict[str, bytes]:
    """Contents that run code in a careless loader."""
    yaml = f'!!python/object/apply:os.mkdir ["{trap.canary}"]\n'.encode()
    return {
        "protocol0": pickle.dumps(trap, 0),
        "protocol4": pickle.dumps(trap, 4),
        "torch": _saved(trap, legacy=False),
        "legacy": _saved(trap, legacy=True),
        "npy": _npy(trap),
        "npz": _npz(trap),
        "joblib": zlib.compress(pickle.dumps(trap)),
        "gzip": gzip.compress(pickle.dumps(trap)),
        "yaml": yaml,
        "pt2": _zip(trap, "archive/data.pkl", "archive/version", "data/weights/model.pt", "archive_format"),
        "zip": _zip(trap, "inputs.npy", "targets.npy", "data.pkl"),
    }


SUFFIXES = (".pt", ".pth", ".pkl", ".npy", ".npz", ".joblib", ".yaml", ".pt2", ".zip", ".safetensors")
OTHERS = (".parquet", ".csv", ".json", ".toml", ".arrow")
FILES = [
    (payload, suffix)
    for payload in ("protocol0", "protocol4", "torch", "legacy", "npy", "npz", "joblib", "gzip", "yaml", "pt2", "zip")
    for suffix in SUFFIXES
]


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    found = Trap(tmp_path / "canary")
    found.canary.unlink(missing_ok=True)
    return found


def test_the_trap_works(trap: Trap) -> None:
    pickle.loads(payloads(trap)["protocol4"])
    assert trap.canary.is_dir()


def _weights(path: Path) -> None:
    with pytest.raises(ValueError, match="safetensors") as refused:
        read_weights(path)
    assert ".pt" in str(refused.value) or path.suffix == ".safetensors"


def _data(path: Path) -> None:
    with pytest.raises(DataError) as refused:
        load(str(path))
    if path.suffix != ".npz":
        assert all(suffix in str(refused.value) for suffix in (".parquet", ".csv", ".npz")), refused.value


def _lists(path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        partition(f"file:{path}", [0, 1] * 8)


def _config(path: Path) -> None:
    with pytest.raises(ConfigError, match="TOML"):
        Config.read(path)


def _availability(path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        read_trace(f"file:{path}")


def _devices(path: Path) -> None:
    for behavior in (None, str(path)):
        with pytest.raises(ValueError, match="columns client"):
            read_devices(str(path), behavior)


LOADERS: dict[str, Callable[[Path], None]] = {
    "init": _weights,
    "data": _data,
    "partition": _lists,
    "config": _config,
    "availability": _availability,
    "devices": _devices,
}


@pytest.mark.parametrize("loader", LOADERS)
def test_a_trapped_file_is_refused(loader: str, trap: Trap, tmp_path: Path) -> None:
    contents = payloads(trap)
    assert len(FILES) >= 50
    for payload, suffix in FILES:
        path = tmp_path / f"{payload}{suffix}"
        path.write_bytes(contents[payload])
        LOADERS[loader](path)
        assert not trap.canary.exists(), f"{path.name} ran its code"


@pytest.mark.parametrize("suffix", OTHERS)
def test_a_trapped_file_under_a_readable_name_is_refused(suffix: str, trap: Trap, tmp_path: Path) -> None:
    for payload, content in payloads(trap).items():
        path = tmp_path / f"{payload}{suffix}"
        path.write_bytes(content)
        with pytest.raises(DataError):
            load(str(path))
        assert not trap.canary.exists()


def test_trapped_states_and_checkpoints_are_refused(trap: Trap, tmp_path: Path) -> None:
    algorithm = make("scaffold")
    store = DiskStore(tmp_path / "states", algorithm, 3)
    store.save(4, 0, ClientState({"drift": algorithm.drift.init_client(torch.zeros(3))}), None)
    (state,) = [path for path in (tmp_path / "states").rglob("*") if path.is_file()]
    kept = Checkpoints(tmp_path / "checkpoints", algorithm, 3, "run")
    for content in payloads(trap).values():
        state.write_bytes(content)
        with pytest.raises(StoreError):
            store.load(4, 0)
        for path in (kept._state(0), kept._manifest(0)):
            path.write_bytes(content)
        with pytest.raises(CheckpointError):
            kept.load(0)
    assert not trap.canary.exists()


def test_a_trapped_run_is_refused(trap: Trap, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text(Config(data="digits").toml())
    for content in payloads(trap).values():
        for name in ("summary.json", "metrics.jsonl", "model.safetensors"):
            (run / name).write_bytes(content)
        with pytest.raises((RunError, ValueError)):
            export(run, tmp_path / "out.safetensors")
    assert not trap.canary.exists()
