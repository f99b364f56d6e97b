"""Quarantine: when it begins, how long it lasts, and that it is the same on every engine and after a resume."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undrift import Local, Quarantine, Simulation, make
from undrift.core.records.rejection import Reason, Rejection
from undrift.engine.round.quarantine import QuarantineList
from undrift.testing import Clinic, fingerprint

LOCAL = Local(lr=0.05, epochs=1, batch_size=4)
ALL = list(range(8))


def fault(client: int, reason: Reason = Reason.SIZE) -> Rejection:
    return Rejection(client, reason, "norm 9")


def outs(listed: QuarantineList, client: int, rounds: int) -> list[int]:
    """The rounds, from 0, in which a client is left out."""
    return [round for round in range(rounds) if client in listed.out(round)]


def test_rounds_by_hand() -> None:
    listed = QuarantineList(Quarantine(after=2, rounds=3))
    assert listed.take(0, [fault(4), fault(5, Reason.FAILED)]) == ()
    assert listed.take(1, [fault(5, Reason.FAILED)]) == ()
    (sentence,) = listed.take(2, [fault(4)])
    assert sentence == (4, 7, Reason.SIZE.value) and str(sentence).startswith("quarantined until round 7: a value")
    assert outs(listed, 4, 20) == [3, 4, 5] and not outs(listed, 5, 20)  # round 7 is number 6 from 0
    assert listed.take(6, [fault(4)]) == () and listed.take(7, [fault(4)])[0].until == 8 + 6 + 1
    assert outs(listed, 4, 30) == [3, 4, 5, 8, 9, 10, 11, 12, 13]  # the second one is twice as long


def test_rejections_far_apart_do_not_count_together() -> None:
    listed = QuarantineList(Quarantine(after=2, rounds=3, within=5))
    assert not any(listed.take(round, [fault(1)]) for round in (0, 5, 10))
    assert listed.take(14, [fault(1)])


def test_only_faults_of_an_upload_count() -> None:
    listed = QuarantineList(Quarantine(after=1))
    harmless = (*map(Reason.__getitem__, ["EMPTY", "IDLE", "FAILED", "VERSION", "SHARE", "MASKED", "STALE"]),)
    for round, reason in enumerate(harmless):
        assert not listed.take(round, [fault(2, reason)])
    for reason in set(Reason) - set(harmless):
        assert QuarantineList(Quarantine(after=1)).take(0, [fault(2, reason)]), reason


def test_without_a_rule_nobody_is_left_out() -> None:
    listed = QuarantineList()
    assert not any(listed.take(round, [fault(1)]) for round in range(9)) and not listed.out(9)


def test_a_repeated_round_replaces_what_was_known() -> None:
    listed = QuarantineList(Quarantine(after=2, rounds=5))
    listed.take(0, [fault(1)])
    assert listed.take(1, [fault(1)])
    assert not listed.take(1, []) and not listed.out(2)


@pytest.mark.parametrize("wrong", [{"after": 0}, {"rounds": -1}, {"within": 0}, {"after": 2.0}, {"rounds": True}])
def test_settings_that_cannot_work(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=f"Quarantine: {next(iter(wrong))}.* (greater than or equal to 1|whole number|integer)"
    ):
        Quarantine(**wrong)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 4)), max_size=25),
    st.integers(1, 4),
    st.integers(1, 4),
    st.none() | st.integers(1, 8),
    st.integers(0, 25),
)
def test_restored_rejections_give_the_same_list(faulty: Any, after: Any, rounds: Any, within: Any, cut: Any) -> None:
    """A client is rejected only in rounds in which it takes part; the rest follows from the rejections alone."""
    rule = Quarantine(after, rounds, within)
    listed, log = QuarantineList(rule), []
    for round, clients in enumerate(faulty):
        asked = [client for client in sorted(clients) if client not in listed.out(round)]
        log += [(round, client, "SIZE") for client in asked]
        for sentence in listed.take(round, [fault(client) for client in asked]):
            assert sentence.client in listed.out(round + 1) and sentence.until > round + 2
    other = QuarantineList(rule)
    other.restore([*log, (99, 0, "SIZE"), (0, 1, "NO_SUCH_REASON")], cut)
    assert other.out(cut) == listed.out(cut)


class Poisoned(Clinic):
    """Client 3 sends values that are not finite, in some rounds."""

    bad = True

    def loss(self, model: Any, batch: Any) -> Any:
        return super().loss(model, batch) * (float("nan") if self.bad and self.current == 3 else 1.0)

    def batches(self, client: Any, size: Any, generator: Any) -> Any:
        self.current = client
        return super().batches(client, size, generator)


def test_a_simulation_leaves_out_and_takes_back() -> None:
    task = Poisoned()
    simulation = Simulation("scaffold", task, LOCAL, seed=3, quarantine=Quarantine(after=2, rounds=2))
    records, states = [], [simulation.start()]
    for state, record in simulation.rounds(6):
        task.bad = record.round < 2
        records.append(record)
        states.append(state)
    assert [3 in record.clients for record in records] == [False, False, False, False, True, True]
    assert records[1].quarantined[0][:2] == (3, 5) and not records[0].quarantined + records[2].quarantined
    for record in records[2:4]:
        assert dict(record.absent)[3] == f"quarantined until round 5: {Reason.FINITE.value}"
    # By hand: the same rounds with the clients that took part.
    plain = Simulation("scaffold", Clinic(), LOCAL, seed=3)
    state = plain.start()
    for record in records:
        state, _ = plain.round(state, [client for client in ALL if client in record.clients])
    assert fingerprint(states[-1]) == fingerprint(state)


def test_clients_that_are_named_take_part() -> None:
    simulation = Simulation("fedavg", Poisoned(), LOCAL, seed=3, quarantine=Quarantine(after=1, rounds=9))
    state, _ = simulation.round(simulation.start())
    _, record = simulation.round(state, [2, 3])
    assert [r.client for r in record.rejections] == [3] and not record.absent


def test_a_strategy_leaves_out_whom_it_rejected(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, ConfigRecord

    from support.flower_grid import StandInGrid
    from undrift.flower import Job, UndriftStrategy, client_app

    task = Clinic()
    grid = StandInGrid(client_app(Job(make("fedavg"), task)), 8, tmp_path)

    def garbled(message: Any, reply: Any) -> Any:
        reply.content.config_records["undrift"]["summary"] = "{"
        return reply

    grid.faults, rule = {5: garbled}, Quarantine(after=2, rounds=3)
    strategy = UndriftStrategy(
        make("fedavg"), task.model(), LOCAL, population=8, seed=3, poll=0.01, quorum=0.8, quarantine=rule
    )
    strategy.start(grid, ArrayRecord(task.model().state_dict()), 6)
    rejected = [5 in {r.client for r in record.rejections} for record in strategy.records]
    assert rejected == [True, True, False, False, False, True]
    assert strategy.records[1].quarantined[0][:2] == (5, 6)
    assert "1 quarantined, the first: client 5" in str(strategy.records[1])
    assert dict(strategy.records[2].absent) == {5: f"quarantined until round 6: {Reason.TREE.value}"}
    # A new strategy that is told the rejections leaves out the same client.
    resumed = UndriftStrategy(
        make("fedavg"), task.model(), LOCAL, population=8, seed=3, poll=0.01, state=strategy.state, quarantine=rule
    )
    resumed.quarantined.restore([(0, 5, "TREE"), (5, 5, "TREE")], 6)
    orders = resumed.configure_train(7, ArrayRecord({}), ConfigRecord(), grid)
    assert sorted(c for m in orders for c in m.content.config_records["undrift"]["clients"]) == [0, 1, 2, 3, 4, 6, 7]  # type: ignore[union-attr]
