"""R6, R7 on whole runs: `damaged_runs`, in a process that has not trained, so that its forks may."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.sweep(every=4)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_damaged_runs() -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).parent / "damaged_runs.py"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=550, cwd=Path(__file__).parents[2])
    assert done.returncode == 0 and "......" in done.stdout, done.stdout[-5000:] + done.stderr[-2000:]
