"""One simulation: what its options mean on every backend, and what is refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from undrift import Algorithm, Local, Simulation, make
from undrift.core.client.visit import ClientError
from undrift.core.method.block import Correction
from undrift.core.records.rejection import Reason, Rejection
from undrift.engine.round.backend import DiskBackend, InProcess
from undrift.engine.round.failures import check_failures
from undrift.engine.stores.store import MemoryStore, StoreError
from undrift.lens import client_vectors
from undrift.testing import Clinic, fingerprint

LOCAL = Local(lr=0.05, batch_size=4)


@dataclass(frozen=True)
class Failing(Clinic):
    """Some clients cannot read their data."""

    broken: tuple[int, ...] = (3, 6)

    def batches(self, client: Any, size: Any, generator: Any) -> Any:
        if client in self.broken:
            raise ValueError("the disk is gone")
        return super().batches(client, size, generator)


@dataclass(frozen=True)
class Broken(Correction):
    """A block with a mistake in it."""

    def adjust(self, grad: Any, local: Any, run: Any) -> None:  # type: ignore[override]
        raise IndexError("a mistake")


@pytest.mark.quick
def test_a_client_that_fails_is_rejected_and_the_round_goes_on() -> None:
    simulation = Simulation(make("scaffold"), Failing(), LOCAL)
    state, record = next(simulation.rounds(1))
    failed = {r.client: r.detail for r in record.rejections if r.reason is Reason.FAILED}
    assert record.clients == (0, 2, 4, 5, 7) and set(failed) == {3, 6}
    assert failed[3] == "round 1, client 3, step 0: the disk is gone"
    other = Simulation(make("scaffold"), Clinic(), LOCAL)
    assert fingerprint(state) == fingerprint(other.round(other.start(), [0, 2, 4, 5, 7])[0])


def test_a_client_that_fails_ends_the_run_if_asked_to() -> None:
    with pytest.raises(
        ClientError, match=r"client 3, step 0: the disk is gone \(2 of 7 clients failed; failures="
    ) as seen:
        Simulation(make("fedavg"), Failing(), LOCAL, failures="raise").run(1)
    assert isinstance(seen.value.__cause__.__cause__, ValueError)  # type: ignore[union-attr]  # where it happened is not lost


def test_a_round_in_which_every_client_fails_ends_the_run() -> None:
    for failures in ("reject", "raise"):
        simulation = Simulation(Algorithm(drift=Broken()), Clinic(), LOCAL, failures=failures)
        with pytest.raises(ClientError, match=r"drift=Broken.adjust: a mistake \(every client .* failed, 7 in all\)"):
            simulation.run(1)
    simulation = Simulation(make("fedavg"), Failing(), LOCAL)
    with pytest.raises(ClientError, match=r"client 3, .* 1 in all"):  # client 1 has no examples and cannot fail
        simulation.round(simulation.start(), [1, 3])


def test_a_client_without_its_state_is_treated_like_one_that_fails(tmp_path: Path) -> None:
    simulation = Simulation(make("scaffold"), Clinic(), LOCAL, backend=InProcess(root=tmp_path))
    state = simulation.run(1)
    next(tmp_path.rglob("4/0")).write_bytes(b"damaged")
    next(tmp_path.rglob("5/0")).unlink()
    _, record = next(simulation.rounds(1, state))
    failed = {r.client: r.detail for r in record.rejections if r.reason is Reason.FAILED}
    assert "client 4 after round 1 cannot be used" in failed[4] and "no state of client 5 after round 1" in failed[5]
    simulation.failures = "raise"
    with pytest.raises(ClientError, match="the state of client 4 after round 1 cannot be used") as seen:
        simulation.run(1, state)
    assert isinstance(seen.value.__cause__, StoreError)


def test_a_probe_of_a_client_that_fails_raises() -> None:
    simulation = Simulation(make("fedavg"), Failing(), LOCAL)
    with pytest.raises(ClientError, match="client 3, step 0: the disk is gone"):
        client_vectors(simulation, simulation.start(), [0, 3], "update")


def test_what_counts_as_a_failure() -> None:
    failed, unsound, empty = Rejection(5, Reason.FAILED, "no"), Rejection(2, Reason.FINITE), Rejection(1, Reason.EMPTY)
    for accepted, rejections, absent in [(0, [], {}), (0, [empty], {}), (0, [unsound], {}), (1, [failed], {4: "late"})]:
        check_failures(accepted, rejections, absent)
    check_failures(0, [failed, unsound], {})  # one that was rejected had trained
    check_failures(0, [empty, unsound], {}, "raise")
    with pytest.raises(ClientError, match=r"no \(every client of the round failed, 2 in all\)"):
        check_failures(0, [failed, empty], {4: "late"})
    with pytest.raises(ClientError, match=r"client 4: late \(1 of 3 clients failed"):
        check_failures(2, [empty], {4: "late"}, "raise")


def test_probability_samples_the_clients_of_every_round() -> None:
    simulation = Simulation(make("fedavg"), Clinic(), LOCAL, probability=0.4, seed=3)
    sizes = {len(simulation.sample(round)) for round in range(20)}
    assert len(sizes) > 2 and max(sizes) <= 8


def test_options_that_cannot_work_are_refused_by_name(tmp_path: Path) -> None:
    def simulation(**options: Any) -> Simulation:
        return Simulation(make("fedavg"), Clinic(), LOCAL, **options)

    with pytest.raises(ValueError, match=r"failures: use \"reject\" .* or \"raise\" .*, got 'ignore'"):
        simulation(failures="ignore")
    with pytest.raises(ValueError, match=r"give cohort= .* or probability=, not both; got 4 and 0.5"):
        simulation(cohort=4, probability=0.5)
    with pytest.raises(ValueError, match=r"InProcess: give store= or root=, not both"):
        InProcess(MemoryStore(), tmp_path)
    for backend in (None, InProcess(), InProcess(MemoryStore())):
        with pytest.raises(ValueError, match=r"depth=3: InProcess keeps .* on disk only; give it a folder, InProcess"):
            simulation(depth=3, backend=backend)
    with pytest.raises(TypeError, match=r"InProcess keeps .* on disk: give root= the path .*, got MemoryStore"):
        InProcess(root=MemoryStore())  # type: ignore[arg-type]
    backend = InProcess()
    simulation(backend=backend)
    with pytest.raises(RuntimeError, match="this InProcess already belongs to another Simulation; give each"):
        simulation(backend=backend)
    with pytest.raises(RuntimeError, match=r"InProcess has no job yet: give it to a Simulation"):
        _ = InProcess().worker


def test_a_backend_on_disk_deletes_what_it_made_and_nothing_else(tmp_path: Path) -> None:
    for root in (None, tmp_path):
        backend = DiskBackend(root)
        simulation = Simulation(make("fedavg"), Clinic(), LOCAL, depth=2, backend=backend)  # type: ignore[arg-type]
        assert backend.worker is simulation.worker and backend.worker.store.depth == 2  # type: ignore[attr-defined]
        folder = backend.states
        simulation.stop()
        simulation.stop()
        assert folder.exists() == (root is not None)
        with pytest.raises(RuntimeError, match="DiskBackend is closed; create a new one for a new Simulation"):
            _ = backend.job
    assert backend.worker is simulation.worker  # what lies in the folder can still be evaluated
    gone = DiskBackend()
    with Simulation(make("fedavg"), Clinic(), LOCAL, backend=gone):  # type: ignore[arg-type]
        pass
    with pytest.raises(
        RuntimeError, match="the clients' states were deleted with the backend; give root= to keep them"
    ):
        _ = gone.worker


def test_a_run_on_disk_keeps_states_as_deep_as_asked(tmp_path: Path) -> None:
    with Simulation(make("feddyn"), Clinic(), LOCAL, depth=3, backend=InProcess(root=tmp_path)) as simulation:
        state = simulation.run(6)
        assert torch.equal(simulation.run(2, state).params, Simulation(make("feddyn"), Clinic(), LOCAL).run(8).params)
    assert sorted(int(path.name) for path in (tmp_path / "0" / "4").iterdir()) == [3, 4, 5, 6, 7]
