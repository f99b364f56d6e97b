"""Modules of the tests in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """The environment of a process that imports undrift and what the tests share.

    Args:
        folders: further folders of modules.
        variables: what else is set.
    """
    path = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests", *folders)))
    return {**os.environ, "PYTHONPATH": path, **variables}


def run_module(name: str, *arguments: object, timeout: float = 590, **variables: str) -> str:
    """Run `python -m NAME ARGUMENTS` and return what it prints; an error is an assertion.

    Args:
        name: the module, such as support.stops.
        arguments: of the command line.
        timeout: in seconds.
        variables: of the environment.
    """
    command = [sys.executable, "-m", name, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment(**variables), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
