"""The Flower engine: what a registered node may state or send again: weights, losses, norms, old displacements."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import ArrayRecord, Message

from support.deploy_runs import deployed, grid, rounds_by
from support.flower import ALL, grid_of, reference, rounds_of, start, state_of, strategy_of
from support.flower import own_clock as own_clock
from undrift import Local
from undrift.core.records.rejection import Reason
from undrift.core.records.types import ServerState
from undrift.engine.flower.records import encode
from undrift.engine.round.record import Record
from undrift.testing import fingerprint


class Stop(Exception):
    """Ends a run after a round."""


def stating(**numbers: float) -> Any:
    """A fault: the reply of one client states other numbers."""

    def fault(message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records["arrays"]
        assert isinstance(arrays, ArrayRecord)
        for name, value in numbers.items():
            dtype = torch.int64 if isinstance(value, int) else torch.float64
            arrays[name] = encode({name: torch.tensor([value], dtype=dtype)})[name]
        return reply

    return fault


def summary(change: Any) -> Any:
    """A fault: the numbers that a node states about its clients become others."""

    def fault(message: Message, reply: Message) -> Message:
        facts = json.loads(reply.content.config_records["undrift"]["summary"])  # type: ignore[arg-type]
        for visit in facts["visits"]:
            change(visit)
        reply.content.config_records["undrift"]["summary"] = json.dumps(facts)
        return reply

    return fault


def replaying(*, sums: bool) -> Any:
    """A fault: from the second round on, the displacement of the first is sent again under the round's number."""
    first: dict[str, Any] = {}

    def fault(message: Message, reply: Message) -> Message:
        arrays = reply.content.array_records["arrays"]
        assert isinstance(arrays, ArrayRecord)
        name = "delta/sum" if sums else "delta"
        arrays[name] = first.setdefault(name, arrays[name])
        return reply

    return fault


def reasons(record: Record) -> Mapping[int, Reason]:
    """Why clients were rejected in a round; client 1 has no examples."""
    return {rejection.client: rejection.reason for rejection in record.rejections if rejection.client != 1}


STEPS = Local(lr=0.05, steps=3, batch_size=4)


def test_a_node_with_too_much_weight_is_left_out(tmp_path: Path) -> None:
    """It claims a million examples; the others' sum is that of a round without it."""
    nodes = grid_of("fedavg", 8, tmp_path)
    nodes.faults = {4: stating(examples=1 << 20)}
    strategy = strategy_of("fedavg", share=0.5, local=STEPS)
    start(strategy, nodes, 2)
    others = [client for client in ALL if client not in (1, 4)]
    assert all(reasons(record) == {4: Reason.SHARE} for record in strategy.records)
    assert "of the round's weight, at most 50 %" in strategy.records[0].rejections[-1].detail
    assert fingerprint(state_of(strategy)) == fingerprint(rounds_of("fedavg", others, others, local=STEPS))


def test_a_share_does_not_change_the_bits_of_honest_rounds(tmp_path: Path) -> None:
    strategy = strategy_of("scaffold", cohort=5, share=0.9)
    start(strategy, grid_of("scaffold", 4, tmp_path))
    assert fingerprint(state_of(strategy)) == fingerprint(reference("scaffold"))


def test_a_round_of_one_node_is_abandoned_under_a_share(tmp_path: Path) -> None:
    strategy = strategy_of("fedavg", share=0.9, patience=5)
    start(strategy, grid_of("fedavg", 1, tmp_path), 1)
    assert strategy.records[0].abandoned and set(reasons(strategy.records[0]).values()) == {Reason.SHARE}


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_is_a_fraction(share: float) -> None:
    with pytest.raises(ValueError, match="share must be"):
        strategy_of("fedavg", share=share)


@pytest.mark.parametrize("loss", [-1e9, 1e12])
@pytest.mark.parametrize("nodes", [8, 3])
def test_a_forged_loss_is_limited_and_recorded(loss: float, nodes: int, tmp_path: Path) -> None:
    def forged(visit: list[Any]) -> None:
        visit[3] = loss

    honest, strategy = strategy_of("fedavg"), strategy_of("fedavg")
    start(honest, grid_of("fedavg", nodes, tmp_path / "honest"), 1)
    grid = grid_of("fedavg", nodes, tmp_path / "forged")
    grid.faults = {2: stating(loss=loss) if nodes == 8 else summary(forged)}
    start(strategy, grid, 1)
    record = strategy.records[0]
    assert abs(record.loss) < 11 * honest.records[0].loss and record.limited_losses == (1 if nodes == 8 else 2)
    assert "limited" in str(record) and honest.records[0].limited_losses == 0
    assert fingerprint(state_of(strategy)) == fingerprint(honest.state)  # type: ignore[arg-type]


def test_the_row_of_a_deployment_counts_limited_losses(tmp_path: Path) -> None:
    nodes = grid("fedavg", tmp_path, nodes=8)
    nodes.faults = {client: stating(loss=-1e9) for client in (0, 1, 2)}
    rows = rounds_by(deployed("fedavg", tmp_path, nodes))
    assert any("limited_losses" in row for row in rows) and all(row["train_loss"] > -100 for row in rows)
    assert "limited_losses" not in rounds_by(deployed("fedavg", tmp_path / "honest"))[0]


@pytest.mark.parametrize("nodes", [8, 3])
def test_an_old_displacement_under_a_new_round_is_rejected(nodes: int, tmp_path: Path) -> None:
    grid = grid_of("fedavg", nodes, tmp_path)
    sender = 4 if nodes == 8 else 2
    grid.faults = {sender: replaying(sums=nodes == 3)}
    strategy = strategy_of("fedavg")
    start(strategy, grid, 3)
    hosted = {4} if nodes == 8 else {2, 5}
    assert not reasons(strategy.records[0])
    for record in strategy.records[1:]:
        assert {c for c, reason in reasons(record).items() if reason is Reason.ROUND} == hosted
        assert "the same bits as the displacements that were accepted in round 1" in record.rejections[-1].detail


def test_displacements_of_zero_may_repeat(tmp_path: Path) -> None:
    strategy = strategy_of("fedavg", local=Local(lr=1e-300, epochs=1, batch_size=4))
    start(strategy, grid_of("fedavg", 3, tmp_path), 3)
    assert not any(reasons(record) for record in strategy.records)


def test_a_resumed_run_knows_the_displacements_before(tmp_path: Path) -> None:
    def stopping(state: ServerState, record: Record) -> None:
        if state.round == 2:
            raise Stop

    fault, seen = replaying(sums=False), list[Record]()

    def hostile(seed: int) -> Any:
        on = grid("fedavg", tmp_path, nodes=8, seed=seed)
        on.faults = {4: fault}
        return on

    with pytest.raises(Stop):
        deployed("fedavg", tmp_path, hostile(0), cohort=8, on_round=stopping)
    deployed("fedavg", tmp_path, hostile(5), cohort=8, on_round=lambda _, record: seen.append(record))
    assert [reasons(record) for record in seen] == [{4: Reason.ROUND}] * 2
    events = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    accepts = [event for event in events if event["event"] == "accept"]
    assert [event["round"] for event in accepts] == [1, 2, 3, 4]
    assert [len(event["uploads"]) for event in accepts] == [7, 6, 6, 6]


def test_norms_above_the_bound_are_not_believed(tmp_path: Path) -> None:
    def forged(visit: list[Any]) -> None:
        visit[6] = 1e6

    grid = grid_of("fedavg", 3, tmp_path)
    grid.faults = {2: summary(forged)}
    strategy = strategy_of("fedavg", bound=50.0)
    start(strategy, grid, 1)
    assert reasons(strategy.records[0]) == {2: Reason.SIZE, 5: Reason.SIZE}
