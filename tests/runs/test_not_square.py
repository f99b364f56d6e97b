"""Images that are not square."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undrift.runs import Config, ConfigError
from undrift.runs.setup.prepare import prepare


def config(folder: Path, model: str | None, **data: int) -> Config:
    path = folder / "wide.npz"
    images = np.random.default_rng(0).integers(0, 255, (40, 20, 32), dtype=np.uint8)
    np.savez(path, inputs=images, targets=np.arange(40) % 2)
    settings = {"method": "fedavg", "data": {"name": str(path), **data}, "clients": 2, "partition": "iid"}
    return Config.build(settings if model is None else {**settings, "model": model})


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))


def test_models_that_read_them(tmp_path: Path) -> None:
    rows: Any = prepare(config(tmp_path, "mlp(width=4)")).task.model()
    assert rows.hidden[0].in_features == 20 * 32
    prepare(config(tmp_path, "resnet8"))
    prepare(config(tmp_path, None, resize=20))


@pytest.mark.parametrize("model", [None, "small-cnn"])
def test_others_are_refused_with_advice(tmp_path: Path, model: str | None) -> None:
    with pytest.raises(ConfigError, match=r"the images are 20 x 32: make them square, \[data\] resize = 20, or use mo"):
        prepare(config(tmp_path, model))
