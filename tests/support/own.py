"""A module of people's own code in the working folder, and packages with entry points, without installing anything."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

MODULE = '''
from dataclasses import dataclass

from torch import nn

from undrift import Algorithm
from undrift.core import Correction, Objective


@dataclass(frozen=True)
class Shrink(Correction):
    a: float = 0.5

    def adjust(self, grad, state, step):
        return grad.mul_(self.a)


@dataclass(frozen=True)
class Pull(Objective):
    mu: float = 0.1

    def adjust(self, grad, state, step):
        return grad.add_(step.w - step.w0, alpha=self.mu)


def fedpull(mu: float = 0.1) -> Algorithm:
    """FedPull: FedProx by another name."""
    return Algorithm(objective=Pull(mu))


class Net(nn.Module):
    def __init__(self, classes, channels, image, width: int = 8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(channels * image * image, width), nn.ReLU(), nn.Linear(width, classes)
        )

    def forward(self, x):
        return self.layers(x)


def stack(classes, widths: tuple[int, ...] = (4,), **others):
    sizes = [784, *widths, classes]
    return nn.Sequential(nn.Flatten(), *(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))


class Regressor(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)


def wide(hidden: int):
    return nn.Linear(hidden, 10)


def wrong(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(5, classes))


def few():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))


def nothing():
    return "no module"


THING = 3
'''


@pytest.fixture(name="own_code")
def own_code_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the module `their_parts`, which lies in the working folder."""
    path = tmp_path / "their_parts.py"
    path.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    yield path
    for name in [name for name in sys.modules if name.startswith("their_")]:
        del sys.modules[name]


def add_package(folder: Path, name: str, entries: Mapping[str, Mapping[str, str]]) -> None:
    """Write what pip writes of an installed package: its name and its entry points, by group."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in own.items()) for group, own in entries.items())
    (info / "entry_points.txt").write_text("\n".join(groups))


@pytest.fixture(name="plugged")
def plugged_fixture(own_code: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module as a plug-in named "theirs"; the folder is on the path."""
    entries = {
        "undrift.methods": {"fedpull": "their_parts:fedpull", "FedAvg": "their_parts:fedpull"},
        "undrift.blocks": {"shrink": "their_parts:Shrink", "gone": "their_missing:Block"},
        "undrift.models": {"their-net": "their_parts:Net", "cnn": "their_parts:Net", "thing": "their_parts:THING"},
        "undrift.data": {"nothing": "their_parts:nothing", "numbers": "their_parts:THING"},
    }
    folder = own_code.parent / "site"
    add_package(folder, "theirs", entries)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(own_code.parent))
    return own_code
