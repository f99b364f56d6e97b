"""R5: a run killed at any moment or crash point goes on to the same bits."""

import json
from typing import Any

import pytest

from faults.figures import record
from faults.points import EIGHT, POINTS
from support.processes import run_module

STATEFUL = ["fedavg", "fedavgm", "scaffold", "feddyn", "fedsmoo"]
ADAPTERS = ["rolora", "fedex-lora(scale=2.0)"]
OTHERS = ["fedfft-d", "mofedsam", "every-other:feddyn", *ADAPTERS]


def kills(method: str, how: str, seconds: float = 500) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run_module("faults.kills", method, how, timeout=seconds).splitlines()]


def check(found: list[dict[str, Any]], count: int) -> None:
    assert len(found) == count
    for kill in found:
        assert kill["code"] == 0 and kill["same"] and kill["twice"] == 0, kill
        assert kill["seconds"] < 60, kill  # a busy machine


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_killed_at_random_moments(method: str) -> None:
    check(kills(method, "random:3"), 3)


@pytest.mark.sweep(every=4)
@pytest.mark.parametrize("method", ADAPTERS)
def test_turns_of_factors_and_versions_of_a_base_survive_kills(method: str) -> None:
    check(kills(method, "random:3"), 3)


@pytest.mark.sweep(every=2)
def test_killed_at_every_crash_point() -> None:
    found = kills("scaffold", "points")
    check(found, len(POINTS))
    assert all(kill["ended"] == -9 and kill["recomputed"] <= 1 for kill in found), found


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("method", OTHERS)
def test_methods_and_settings_beside_these(method: str) -> None:
    found = kills(method, "points")
    check(found, len(POINTS))
    most = 2 if method.startswith("every-other") else 1
    assert all(kill["ended"] == -9 and kill["recomputed"] <= most for kill in found), found


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("method", STATEFUL)
def test_killed_at_eight_points_of_every_round(method: str) -> None:
    found = kills(method, "all", 3500)
    good = [
        kill
        for kill in found
        if kill["ended"] == -9 and kill["code"] == 0 and kill["same"] and kill["twice"] == 0 and kill["recomputed"] <= 1
    ]
    slowest = max(kill["ready"] for kill in found)  # until the first round is trained again
    record(
        "R5",
        method,
        kills=len(found),
        same_hash=len(good),
        most_recomputed=max(kill.get("recomputed", 10) for kill in found),
        slowest_resume_seconds=slowest,
    )
    assert len(found) == 10 * len(EIGHT) == len(good), [kill for kill in found if kill not in good]
    assert slowest <= 10, f"the slowest of 80 took {slowest} s to resume"


@pytest.mark.slow
@pytest.mark.faults
def test_killed_in_the_middle_of_a_buffer() -> None:
    check(kills("scaffold + buffered(2)", "random:20"), 20)


@pytest.mark.sweep(every=4)
def test_stopped_by_signals() -> None:
    found = kills("scaffold", "signals:4")
    check(found, 4)
    assert all(kill["ended"] != 0 and kill["exited"] <= 10 for kill in found), found


@pytest.mark.slow
@pytest.mark.faults
def test_stopped_by_fifty_signals() -> None:
    """R8."""
    found = kills("scaffold", "signals:50", 1500)
    slowest = max(kill["exited"] for kill in found)
    record("R8", "scaffold", signals=50, same_hash=sum(kill["same"] for kill in found), slowest_exit_seconds=slowest)
    check(found, 50)
    assert all(kill["ended"] != 0 and kill["exited"] <= 10 for kill in found), found


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("method", [*STATEFUL, *OTHERS])
def test_killed_at_twenty_random_moments(method: str) -> None:
    check(kills(method, "random:20"), 20)
