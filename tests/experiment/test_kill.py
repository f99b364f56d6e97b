"""R5: a run killed at any moment or place goes on to the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

METHODS = ["fedavg", "scaffold", "feddyn", "fedfft-d", "mofedsam"]


def kills(tmp_path: Path, method: str, how: str) -> list[dict[str, object]]:
    script = Path(__file__).parents[1] / "support" / "kills.py"
    command = [sys.executable, str(script), str(tmp_path / "data"), method, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, object]]) -> None:
    assert found and all(kill["code"] == 0 and kill["same"] and kill["rows"] for kill in found), found
    assert all(kill["seconds"] < 30 for kill in found)


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_random_moments(method: str, tmp_path: Path) -> None:
    check(kills(tmp_path, method, "random:3"))


@pytest.mark.parametrize("method", ["feddyn", "scaffold"])
def test_killed_at_every_place(method: str, tmp_path: Path) -> None:
    found = kills(tmp_path, method, "places")
    check(found)
    assert all(kill["ended"] == -9 for kill in found), found


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_at_twenty_random_moments(method: str, tmp_path: Path) -> None:
    check(kills(tmp_path, method, "random:20"))
