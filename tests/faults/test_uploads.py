"""Real nodes over TLS whose uploads trickle."""

import sys
from pathlib import Path

import pytest

from faults.figures import record
from support.deployment import TOOLS, Deployment, deploy, outcome, replay, running, seconds, until

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("deployment"),
    *TOOLS,
]
SLOW = Path(__file__).parents[1] / "support" / "slow_supernode.py"


def test_a_trickling_node_holds_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 uploads an object every 30 s: its clients are left out, and rounds end at their deadline of 40 s."""
    with running(Deployment(tmp_path / "it")) as it:
        deploy.stop(it.work, "node0")
        start = deploy.launch
        with monkeypatch.context() as patched:
            slow = (sys.executable, SLOW, "30")
            patched.setattr(
                deploy, "launch", lambda work, name, _, *words, **more: start(work, name, *slow, *words, **more)
            )
            deploy.start_supernode(it.work, it.ports, "node0", "partition-id=0 num-partitions=3")
        until(lambda: "SuperNode ID" in deploy.last_log(it.work, "node0"), 90)
        log = it.finish(it.submit(algorithm="scaffold", num_rounds=2, cohort=12, deadline=40.0), 400)
        accepted, final = outcome(log)
        others = [client for client in range(12) if client % 3]
        record("R4", "trickle over TLS", deadline=40.0, seconds=seconds(log))
        assert accepted == [others, others] and final == replay("scaffold", accepted)
        assert all(40.0 <= took <= 42.0 for took in seconds(log))
