"""Secure sums on a real SuperLink with SuperNodes over TLS, two of which are killed."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.deployment import NEW_APP, TOOLS, Deployment, load, outcome, replay, running, until
from support.private_nodes import replay_private
from undrift import Local
from undrift.engine.flower.node.noise import NodeNoise
from undrift.secure.settings import Secure
from undrift.testing import fingerprint

pytest.importorskip("flwr")
pytestmark = [pytest.mark.xdist_group("secure deployment"), *TOOLS]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("secure"), nodes=6)) as it:
        yield it


def train(it: Deployment, run: str, method: str) -> tuple[list[list[int]], str, set[int]]:
    """Two rounds of secure sums; two of six nodes are killed before the second, and start again afterwards.

    Args:
        it: the deployment.
        run: the name of the run.
        method: what it trains.
    """
    it.up()
    number = it.submit(run=run, algorithm=method, num_rounds=2, cohort=12, secure=True, deadline=480.0)
    until(lambda: it.rounds(run) == 1, 600)
    for node in ("node1", "node4"):
        it.kill(node)
    return *outcome(it.finish(number, 900)), {client for node in (1, 4) for client in range(node, 12, 6)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ["scaffold", "fedavg", "fedfft-d"])
def test_the_final_state_is_that_of_the_plain_run_over_the_survivors(deployment: Any, method: str) -> None:
    accepted, final, gone = train(deployment, method, method)
    assert len(accepted[0]) == 12 and accepted[1] and not gone & set(accepted[1])
    assert final == replay(method, accepted)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_noise_in_shares_is_that_of_the_nodes_secrets(deployment: Any) -> None:
    method, name = "uniform + private-shares(0.5, 1.0, 3)", "private"
    accepted, final, gone = train(deployment, name, method)
    assert len(accepted[0]) == 12 and len(accepted[1]) >= 3 and not gone & set(accepted[1])
    files = {node: list((deployment.work / "nodes" / f"node{node}").glob(f"{name}-*/noise-*")) for node in range(6)}
    assert all(len(found) == 1 for found in files.values()), files
    held = {client: NodeNoise(files[client % 6][0]) for client in range(12)}
    task, local = load(NEW_APP / "app" / "task.py").task(), Local(lr=0.1, batch_size=10)
    assert final == fingerprint(replay_private(method, task, local, accepted, held, seed=0, secure=Secure(least=3)))
    stated = deployment.summary(name)["privacy"]
    assert stated["rounds"] == 2 and stated["epsilon"] > 0 and "secrets of the nodes" in stated["randomness"]
