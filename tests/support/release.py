"""The source of the last release, from the repository's history."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "74516cfd"
"""The oldest commit in the history that is release 0.2.0."""


def old_source(root: Path) -> Path:
    """The folder `src` of release 0.2.0, written below a folder; skips where the history is not there.

    Args:
        root: a folder for it.
    """
    done = subprocess.run(["git", "-C", str(ROOT), "archive", COMMIT, "src"], capture_output=True, timeout=120)
    if done.returncode:
        pytest.skip(f"the history has no commit {COMMIT}: {done.stderr.decode().strip()[:100]}")
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", str(root)], input=done.stdout, check=True, timeout=120)
    return root / "src"
