"""Without the extras the package works, and what needs one says in one line how to install it."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from support.optional import OPTIONAL, missing_library

ROOT = Path(__file__).parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def read_image(_: Path) -> object:
    from undrift.data.arrays.images import need

    return need("PIL.Image")


def corrupt(_: Path) -> object:
    from undrift.data.distortion.kinds import jpeg

    return jpeg(np.zeros((1, 1, 8, 8), np.float32), [], 50)


def states(_: Path) -> object:
    from undrift.engine.stores.object_store import check_url

    return check_url("s3://bucket/run")


def from_flower(_: Path) -> object:
    from undrift.data.partitions.draw import from_flower

    return from_flower(SimpleNamespace(is_dataset_assigned=lambda: False), [0, 1])


def plot(_: Path) -> object:
    from undrift.util.storage.history import History

    return History([{"round": 1, "loss": 1.0}]).plot("loss")


def print_figure(folder: Path) -> object:
    from undrift.report.draw.description import Figure
    from undrift.report.draw.print_figures import write_print

    return write_print(Figure("a", "a", "a", ()), folder / "a.png")


def render(_: Path) -> object:
    from undrift.report import render

    return render(None)  # type: ignore[arg-type]


def tsne(_: Path) -> object:
    from undrift.lens.embedding import tsne

    return tsne(torch.zeros(4, 2), perplexity=2)


def onnx(_: Path) -> object:
    from undrift.runs.reading.export import _check_onnx

    return _check_onnx()  # type: ignore[func-returns-value]


def track(name: str) -> Callable[[Path], object]:
    def call(folder: Path) -> object:
        from undrift.runs.loop.run import _library

        return _library("torch.utils.tensorboard" if name == "tensorboard" else name, name)

    return call


def model(name: str) -> Callable[[Path], object]:
    def call(_: Path) -> object:
        from undrift.models import build

        return build(name, classes=10, channels=3, image=64)

    return call


def module(name: str) -> Callable[[Path], object]:
    return lambda _: import_module(name)


@pytest.mark.parametrize(
    ("hidden", "extra", "use"),
    [
        ("ray", "ray", module("undrift.ray")),
        ("s3fs", "s3", states),
        ("flwr", "flower", module("undrift.flower")),
        ("cryptography", "secure", module("undrift.secure.keys")),
        ("datasets", "data", from_flower),
        ("PIL", "data", read_image),
        ("PIL", "data", corrupt),
        ("matplotlib", "plots", plot),
        ("matplotlib", "plots", print_figure),
        ("plotly", "report", render),
        ("jinja2", "report", render),
        ("sklearn", "analysis", tsne),
        ("onnx", "onnx", onnx),
        ("onnxscript", "onnx", onnx),
        ("torchvision", "vision", model("densenet121")),
        ("timm", "vision", model("vit-tiny")),
        ("tensorboard", "tensorboard", track("tensorboard")),
        ("mlflow", "mlflow", track("mlflow")),
        ("wandb", "wandb", track("wandb")),
    ],
)
def test_a_missing_extra_is_named(
    hidden: str, extra: str, use: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (
        "undrift.ray",
        "undrift.flower",
        "undrift.engine.ray_backend",
        "undrift.engine.flower",
        "undrift.secure.keys",
    )
    for name in list(sys.modules):
        if name.startswith(own) or name.startswith("torch.utils.tensorboard"):
            monkeypatch.delitem(sys.modules, name)
        if name.startswith(f"{hidden}."):
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, hidden, None)
    if hidden == "s3fs":
        monkeypatch.delitem(import_module("fsspec.registry")._registry, "s3", raising=False)  # it remembers the class
    assert extra in EXTRAS
    with pytest.raises(Exception, match=re.escape(f"pip install 'undrift[{extra}]'")) as error:
        use(tmp_path)
    assert "\n" not in str(error.value)


def test_all_has_every_extra_of_a_user() -> None:
    (whole,) = EXTRAS["all"]
    assert set(whole[len("undrift[") : -1].split(",")) == set(EXTRAS) - {"all", "dev", "docs", "examples", "test"}


def test_only_an_absent_library_skips_a_file_of_tests() -> None:
    assert missing_library("E   ModuleNotFoundError: No module named 'torch.nothing'") is None
    assert missing_library("E   ImportError: cannot import name 'x' from 'undrift'") is None
    assert missing_library("E   ModuleNotFoundError: No module named 'mlflow'") in ("mlflow", None)


@pytest.mark.sweep(every=4)
def test_everything_else_works_without_extras(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(OPTIONAL), encoding="utf-8")
    quiet = "ignore:'click.utils.:DeprecationWarning"  # typer's use of click
    words = [sys.executable, "-W", "error", "-W", quiet, str(script)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    need = done.stdout.splitlines()[-1].split()
    assert need and all(
        re.match(r"undrift\.(engine\.)?(ray|pool|dispatch|flower|secure|worker\.secure|round\.secure)", name)
        for name in need
    )


SCRIPT = """
import sys
from importlib import import_module
from pkgutil import walk_packages

HIDDEN = "{}".split()


class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hide())

import undrift

failed = []
for found in walk_packages(undrift.__path__, "undrift.", onerror=lambda name: None):
    if found.name.endswith("__main__"):
        continue
    try:
        import_module(found.name)
    except ImportError as error:
        assert "pip install 'undrift[" in str(error), (found.name, error)
        failed.append(found.name)
from undrift.cli import app

app(["run", "--data", "digits", "--rounds", "1", "--out", "run"], standalone_mode=False)
app(["doctor"], standalone_mode=False)
print(*failed)
"""
