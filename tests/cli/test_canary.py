"""No output shows data, labels or clients' states: marked values are planted and searched for."""

import subprocess
import sys
from pathlib import Path

import pytest

TASK = """
import torch
from torch import nn

from undrift import TensorTask

CANARY = 8675309.25


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs):
        secret = inputs * 1.0
        if BROKEN:
            raise RuntimeError("this model is broken")
        return self.layer(secret / CANARY)


BROKEN = False
inputs = torch.full((40, 2), CANARY)
labels = torch.arange(40) % 2
data = TensorTask(Fragile, inputs, labels, torch.arange(40).view(4, 10), test=(inputs, labels))
"""
CANARIES = ("8675309", "tensor(", "grad_fn")


def undrift(folder: Path, *words: str) -> tuple[int, str]:
    """The exit code of a command and everything it printed."""
    command = [sys.executable, "-m", "undrift", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with a task and a run of two rounds on it."""
    (tmp_path / "canary.py").write_text(TASK)
    words = ["--task", "canary:data", "--cohort", "4", "--rounds", "2", "--out", "run", "--set", "failures=raise"]
    code, shown = undrift(tmp_path, "run", "scaffold", *words)
    assert code == 0, shown
    return tmp_path


def texts(folder: Path) -> str:
    """Every file of a run that is text."""
    files = [x for x in folder.rglob("*") if x.is_file() and x.suffix in (".jsonl", ".json", ".toml", ".log")]
    return "\n".join(x.read_text() for x in files)


@pytest.mark.sweep(every=4)
def test_a_damaged_state_is_named_in_one_line(run: Path) -> None:
    for state in (run / "run" / "clients").rglob("1"):
        if state.is_file():
            state.write_bytes(state.read_bytes()[:100])
    code, shown = undrift(run, "resume", "run", "--rounds", "3")
    assert code == 2 and "Traceback" not in shown and len(shown) < 2000, shown
    assert "cannot be used" in shown.splitlines()[-1] and "clients/0/" in shown.splitlines()[-1]
    assert not any(canary in shown + texts(run / "run") for canary in CANARIES)


@pytest.mark.sweep(every=0)
def test_a_traceback_shows_no_values(run: Path) -> None:
    (run / "canary.py").write_text(TASK.replace("BROKEN = False", "BROKEN = True"))
    code, shown = undrift(run, "run", "fedavg", "--task", "canary:data", "--out", "other", "--set", "failures=raise")
    assert code == 1 and "this model is broken" in shown and "Traceback" in shown
    assert not any(canary in shown + texts(run / "other") for canary in CANARIES), shown
