"""Parts of a benchmark in processes of their own, so that the memory of one does not affect the next."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run_part(file: str, arguments: list[str], environment: Mapping[str, str] | None = None) -> Any:
    """Run one part of a benchmark in its own process; its last line, read as JSON.

    Args:
        file: the benchmark.
        arguments: select the part.
        environment: variables to set besides those that keep Ray and Flower from calling home.
    """
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    variables = {**os.environ, **quiet, **(environment or {})}
    command = [sys.executable, file, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
