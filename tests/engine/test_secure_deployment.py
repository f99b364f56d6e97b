"""Secure sums on a real SuperLink with SuperNodes over TLS, two of which are killed."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.deployment import TOOLS, Deployment, outcome, replay, running, until

pytest.importorskip("flwr")
pytestmark = [pytest.mark.xdist_group("secure deployment"), *TOOLS]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(Deployment(tmp_path_factory.mktemp("secure"), nodes=6)) as it:
        yield it


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("method", ["scaffold", "fedavg", "fedfft-d"])
def test_the_final_state_is_that_of_the_plain_run_over_the_survivors(deployment: Any, method: str) -> None:
    """All six nodes take part in the first round; two are killed before the second, and start again afterwards."""
    deployment.up()
    run = deployment.submit(run=method, algorithm=method, num_rounds=2, cohort=12, secure=True, deadline=480.0)
    until(lambda: deployment.rounds(method) == 1, 600)
    for name in ("node1", "node4"):
        deployment.kill(name)
    accepted, final = outcome(deployment.finish(run, 900))
    gone = {client for node in (1, 4) for client in range(node, 12, 6)}
    assert len(accepted[0]) == 12 and accepted[1] and not gone & set(accepted[1])
    assert final == replay(method, accepted)
