"""R8: a run that is stopped by SIGTERM or SIGINT ends at once, leaves nothing behind, and goes on to the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")


@pytest.mark.parametrize(
    ("engine", "count"),
    [
        ("local", 3),
        pytest.param("local", 50, marks=pytest.mark.slow),
        pytest.param("ray", 10, marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(3600)
def test_stops_at_random_moments(engine: str, count: int, tmp_path: Path) -> None:
    if engine == "ray":
        pytest.importorskip("ray")
    path = os.pathsep.join(str(ROOT / part) for part in ("src", "tests", "tests/support"))
    script = ROOT / "tests" / "support" / "stops.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data"), engine, str(count)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    stops = [json.loads(line) for line in done.stdout.splitlines()]
    print(done.stdout)
    assert len(stops) == count
    for stop in stops:
        assert stop["again"] == 0 and stop["same"], stop
        assert stop["left"] == {"processes": 0, "ports": 0, "shared": 0}, stop
        assert stop["seconds"] <= 30, stop  # 0.5 s on a free machine
