"""The Flower engine: a bound that follows the accepted norms, and what gets past it."""

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, Message

import undrift
from support.deploy_runs import deployed, grid, rounds_by
from support.flower import ALL, grid_of, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from undrift import Local, Simulation, make
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.engine.flower.records import decode, encode
from undrift.engine.flower.server.adaptive_bound import RunningBound
from undrift.engine.round.record import Record
from undrift.flower import AdaptiveBound
from undrift.testing import fingerprint


class Stop(Exception):
    """Ends a run after a round."""


def enlarged(factor: float) -> Any:
    """A fault: the displacement of one client is multiplied."""

    def fault(message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records["arrays"]
        assert isinstance(arrays, ArrayRecord)
        grown = decode(ArrayRecord({"delta": arrays["delta"]}))["delta"] * factor
        arrays["delta"] = encode({"delta": grown})["delta"]
        return reply

    return fault


@pytest.mark.parametrize("factor", [1e6, 100.0, -30.0])
def test_an_enlarged_upload_is_rejected(factor: float, tmp_path: Path) -> None:
    """A huge one in the first round, where nothing is known of the norms; any other from the second on."""
    nodes = grid_of("fedavg", 8, tmp_path)
    nodes.faults = {4: enlarged(factor)}
    strategy = strategy_of("fedavg", adaptive=AdaptiveBound())
    start(strategy, nodes, 3)
    first = 0 if abs(factor) > 1e3 else 1
    for record in strategy.records[first:]:
        assert 4 in [r.client for r in record.rejections if r.reason is Reason.SIZE]
    assert all(record.bound is not None and record.typical_norm is not None for record in strategy.records)


def test_honest_clients_pass_and_their_bits_are_those_without_a_bound(tmp_path: Path) -> None:
    strategy = strategy_of("scaffold", adaptive=AdaptiveBound())
    start(strategy, grid_of("scaffold", 3, tmp_path), 4)
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("scaffold", ALL, ALL, ALL, ALL))
    first, second = strategy.records[:2]
    assert first.typical_norm is not None and second.bound == 5.0 * first.typical_norm


def test_a_minority_cannot_raise_the_bound() -> None:
    bounds = RunningBound(AdaptiveBound(multiple=4.0, window=3))
    assert bounds.value(torch.zeros(3)) == 4.0 and bounds.value(torch.full((4,), 5.0)) == 40.0
    for _ in range(5):
        bounds.take([1.0, 1.0, 1.0, 1e9, 1e9])
    assert bounds.value(torch.zeros(3)) == 4.0 and len(bounds.norms) == 3
    assert bounds.take([0.0, 0.0]) is None and bounds.take([]) is None and len(bounds.norms) == 3
    assert RunningBound().value(torch.ones(2)) is None and RunningBound().take([1.0]) is None


def test_no_later_bound_falls_below_a_share_of_the_largest() -> None:
    bounds = RunningBound(AdaptiveBound(multiple=4.0, window=3, least=0.25))
    for norm in (1.0, 8.0, 8.0, 2.0, 1e-3, 1e-3, 1e-3):
        bounds.take([norm])
    assert bounds.largest == 8.0 and bounds.value(torch.zeros(3)) == 8.0
    again = RunningBound(bounds.rule)
    again.restore([1.0, 8.0, 0.0, 8.0, 2.0, 1e-3, 1e-3, 1e-3])
    assert (again.norms, again.largest) == (bounds.norms, bounds.largest)
    assert RunningBound(AdaptiveBound(least=0.0), [1e-3], 8.0).value(torch.zeros(3)) == 5e-3


def test_honest_clients_of_a_run_that_has_nearly_converged_are_not_rejected() -> None:
    """Few clients still move the model when the usual displacement is small; the task is that of `undrift new`."""
    app = run_path(str(Path(undrift.__file__).parent / "templates" / "deployment" / "app" / "task.py.in"))
    rejected = {}
    for least in (0.0, 0.25):
        simulation = Simulation(make("scaffold"), app["task"](), Local(lr=0.1, batch_size=10), cohort=8)
        state, bounds, rejected[least] = simulation.start(), RunningBound(AdaptiveBound(least=least)), 0
        for _ in range(60):
            bound = bounds.value(state.params)
            state, record = simulation.round(state)
            accepted = [visit.norm for visit in record.visits if bound is not None and visit.norm <= bound]
            rejected[least] += len(record.visits) - len(accepted)
            bounds.take(accepted)
    assert rejected[0.25] == 0 < rejected[0.0]


def test_a_resumed_run_has_the_bounds_of_one_without_a_stop(tmp_path: Path) -> None:
    def stopping(state: ServerState, record: Record) -> None:
        if state.round == 2:
            raise Stop

    whole = deployed("fedavg", tmp_path / "whole", adaptive=AdaptiveBound())
    with pytest.raises(Stop):
        deployed("fedavg", tmp_path / "part", adaptive=AdaptiveBound(), on_round=stopping)
    again = deployed("fedavg", tmp_path / "part", grid("fedavg", tmp_path / "part", seed=5), adaptive=AdaptiveBound())
    assert [row["bound"] for row in rounds_by(again)] == [row["bound"] for row in rounds_by(whole)]
    assert again.sha256 == whole.sha256


@pytest.mark.parametrize(
    "wrong", [{"multiple": 1.0}, {"quantile": 0.0}, {"window": 0}, {"first": -1.0}, {"least": 2.0}]
)
def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"AdaptiveBound: {next(iter(wrong))} must be"):
        AdaptiveBound(**wrong)
