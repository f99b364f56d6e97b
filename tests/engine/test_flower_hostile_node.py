"""The Flower engine: one node of three shows another behaviour in every round."""

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from support.deployment import load
from support.flower import Clock
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from support.hostile_node import Hostile, claimed, own
from support.hostile_rounds import DEADLINE, LOCAL, METHOD, ROUNDS, check, keep, what_happened
from support.hosts import hosts_file, key_pair
from support.new_app import NEW_APP
from undrift import make
from undrift.deploying.deploy import deploy
from undrift.flower import AdaptiveBound, Job, client_app


def late(seconds: float) -> None:
    raise TimeoutError  # this grid calls a node in the server's own thread


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("run", ["uploads", "sums"])
def test_nothing_that_is_rejected_leaves_a_trace(run: str, clock: Clock, tmp_path: Path) -> None:
    """With one client on the hostile node, which sends its upload, and with four, whose sum it sends."""
    module = load(NEW_APP / "app" / "task.py")
    honest = client_app(lambda context: Job(make(METHOD), module.task(own(context)), depth=2), claimed)
    nodes = StandInGrid(Hostile(honest, late), 3, tmp_path / "nodes")
    nodes.keys_of = {partition: key_pair(partition)[1] for partition in range(3)}
    for context in nodes.nodes.values():
        context.run_config = {"deadline": DEADLINE, "run": run}
    hosts = hosts_file(tmp_path, *(range(first, 12, 3) for first in range(3)), examples=10_000)
    deploy(
        nodes,
        METHOD,
        module.task(hosted=(), test=module.test_set()),
        LOCAL,
        folder=tmp_path / run,
        rounds=ROUNDS,
        nodes=3,
        deadline=DEADLINE,
        poll=0.01,
        wait=5.0,
        hosts=hosts,
        adaptive=AdaptiveBound(),
        on_round=lambda state, _: keep(tmp_path / "states", state),
    )
    found = what_happened(tmp_path / run, tmp_path / "states")
    check(found, accepted=("40 MB", "500 objects"))  # this grid has whole replies: a SuperLink announces their sizes
