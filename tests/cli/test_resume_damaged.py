"""What `undrift resume` says about damaged checkpoints."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from undrift.cli import app


def undrift(*words: object) -> Any:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three rounds, with checkpoints after the last two."""
    folder = tmp_path / "run"
    words = ("--data", "digits", "--model", "mlp", "--clients", 4, "--cohort", 1, "--rounds", 3)
    done = undrift("run", "fedavg", *words, "--engine", "local", "--out", folder)
    assert done.exit_code == 0, done.output
    return folder


def flip(path: Path) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_reported_and_not_counted(run: Path) -> None:
    newest = run / "checkpoints" / "0000003.safetensors"
    flip(newest)
    again = undrift("resume", run, "--rounds", 4)
    assert again.exit_code == 0, again.output
    assert f"{newest}: damaged: it is not what 0000003.json describes; resuming after round 2" in again.stderr
    assert "2 of 4 rounds done" in again.stderr and "3 of 4 rounds done" not in again.stderr


def test_without_an_intact_checkpoint_the_error_names_all_and_says_what_to_do(run: Path) -> None:
    for name in ("0000002.safetensors", "0000003.safetensors"):
        flip(run / "checkpoints" / name)
    again = undrift("resume", run, "--rounds", 4)
    last = again.stderr.splitlines()[-1]
    assert again.exit_code == 2 and "0000003.safetensors: damaged" in last and "0000002.safetensors: damaged" in last
    assert last.endswith("no checkpoint is intact: restore the run's folder from a backup, or start a new run")
