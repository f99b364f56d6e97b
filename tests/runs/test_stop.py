"""R8: a run that is stopped by SIGTERM or SIGINT ends at once, leaves nothing behind, and goes on to the same bits."""

import json
from pathlib import Path

import pytest

from support.processes import run_module

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")


@pytest.mark.sweep(every=0)
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
    printed = run_module("support.stops", tmp_path / "data", engine, count, timeout=3500)
    stops = [json.loads(line) for line in printed.splitlines()]
    print(printed)
    assert len(stops) == count
    for stop in stops:
        assert stop["again"] == 0 and stop["same"], stop
        assert stop["left"] == {"processes": 0, "ports": 0, "shared": 0}, stop
        assert stop["seconds"] <= 30, stop  # 0.5 s on a free machine
