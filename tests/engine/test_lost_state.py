"""A client whose state is lost or damaged is set aside, or ends the run, by the same policy on every engine.

`test_ray.py` has the same test on Ray; on real nodes the strategy always rejects: `test_flower_rounds.py`.
"""

from pathlib import Path

import pytest

from support.lost_states import LOCAL, check_policy_for_lost_states
from undrift import Simulation
from undrift.core.records.rejection import Reason
from undrift.engine.round.backend import InProcess
from undrift.testing import Clinic


@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_in_one_process(method: str, tmp_path: Path) -> None:
    check_policy_for_lost_states(lambda: InProcess(root=tmp_path), tmp_path, method)


def test_in_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    check_policy_for_lost_states(lambda: InProcess(root=f"local://{tmp_path}"), tmp_path)


def test_on_flower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("ray")
    from test_flower_backend import Flower
    from undrift.flower import FlowerBackend

    monkeypatch.setattr("flwr.simulation.run_simulation", Flower(tmp_path / "unused"))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    root = tmp_path / "states"
    check_policy_for_lost_states(lambda: FlowerBackend(workers=2, root=root), root)


def test_a_state_that_cannot_be_read_sets_its_client_aside(tmp_path: Path) -> None:
    simulation = Simulation("scaffold", Clinic(), LOCAL, backend=InProcess(root=tmp_path))
    before = simulation.run(1)
    state = next(tmp_path.rglob("4/0"))
    state.unlink()
    state.mkdir()  # an I/O error, as read() raises it
    _, record = simulation.round(before)
    (failed,) = [r for r in record.rejections if r.reason is Reason.FAILED]
    assert failed.client == 4 and failed.detail.endswith("Is a directory")


def test_a_selection_by_losses_goes_on_and_names_the_client(tmp_path: Path) -> None:
    method = "fedper + power-of-choice(8)"
    simulation = Simulation(method, Clinic(), LOCAL, cohort=3, backend=InProcess(root=tmp_path))
    before = simulation.round(simulation.start(), range(8))[0]
    next(tmp_path.rglob("4/0")).unlink()
    _, record = simulation.round(before)
    (failed,) = [r for r in record.rejections if r.reason is Reason.FAILED]
    assert failed.client == 4 and "no state of client 4 after round 1" in failed.detail and len(record.clients) == 2
