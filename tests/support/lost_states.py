"""One policy for lost and damaged states of clients, on every engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from undrift import Local, Simulation, make
from undrift.core.client.visit import ClientError
from undrift.core.records.rejection import Reason
from undrift.engine.round.backend import Backend
from undrift.testing import Clinic, fingerprint

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
EVERYONE = [0, 2, 3, 4, 5, 6, 7]  # client 1 has no examples


def check_policy_for_lost_states(backend: Callable[[], Backend], root: Path, method: str = "scaffold") -> None:
    """Damage the state of one client and delete that of another: both are rejected, or the run ends, as configured.

    Args:
        backend: makes a backend that keeps its states in a folder.
        root: the folder.
        method: one that keeps states.
    """
    with Simulation(make(method), Clinic(), LOCAL, seed=3, backend=backend()) as simulation:
        before = simulation.run(1)
        next(root.rglob("4/0")).write_bytes(b"damaged")
        next(root.rglob("5/0")).unlink()
        after, record = simulation.round(before)
        failed = {r.client: r.detail for r in record.rejections if r.reason is Reason.FAILED}
        assert set(failed) == {4, 5} and record.clients == (0, 2, 3, 6, 7) and record.absent == ()
        assert failed[4].startswith("the state of client 4 after round 1 cannot be used: ")
        assert failed[5].startswith("no state of client 5 after round 1; resume with the clients' states of this run")
        later, record = simulation.round(after)  # and so it goes on, until their states are back
        assert record.clients == (0, 2, 3, 6, 7)
        simulation.failures = "raise"
        said = r"the state of client 4 after round 1 cannot be used: .* \(2 of 7 clients failed; failures=\"reject\""
        with pytest.raises(ClientError, match=said):
            simulation.round(later)
    reference = Simulation(make(method), Clinic(), LOCAL, seed=3)
    state = reference.start()
    for clients in (EVERYONE, record.clients, record.clients):
        state, _ = reference.round(state, clients)
    assert fingerprint(later) == fingerprint(state)
