"""The columns of what blocks report: the same however the cohort is split, and nothing of a stranger's."""

import json
from math import nan
from pathlib import Path
from typing import Any

import pytest

from undrift import Local, Simulation, make
from undrift.core.server import step as server
from undrift.core.server.gate import Gate
from undrift.core.server.wire import WireError
from undrift.engine.round.record import report_columns
from undrift.engine.worker.partial_sum import Partial, Visit
from undrift.testing import Clinic, clinic

LOCAL = Local(lr=0.05, batch_size=4)
NAMES = ("fedscam", "fedwmsam", "fedfsa", "feddyn", "fedawa", "q-fedavg")


@pytest.mark.parametrize("name", NAMES)
def test_the_way_through_a_message_changes_no_bit(name: str) -> None:
    algorithm, clients = make(name), [0, 3, 4, 5, 7]
    whole = Simulation(algorithm, clinic(algorithm), LOCAL)
    _, record = whole.round(whole.start(), clients)
    split = Simulation(algorithm, clinic(algorithm), LOCAL)
    broadcast = server.send(algorithm, split.start(), split.job.setting)
    gate, visits = Gate(algorithm, LOCAL, broadcast, clients), list[Visit]()
    total, reported = gate.total(), dict[str, Any]()
    for chunk in ([5, 0], [7], [3, 4]):
        part = split.worker.serve(broadcast, chunk, {}, len(clients)).flatten()
        read = Partial(gate.total()).restore(*part, len(broadcast.params))
        assert gate.merge(read.total, total) is None
        visits += read.visits
    split.close(split.start(), broadcast, total, reported)
    assert report_columns(algorithm, sorted(visits, key=lambda visit: visit.client), reported) == dict(record.reports)
    assert report_columns(algorithm, visits, reported) == dict(record.reports)
    assert record.reports


def test_reports_of_another_machine_are_not_trusted() -> None:
    report = {"drift.client_norm": 1.0, "drift.other": 1.0, "nowhere.client_norm": 1.0, "round": 7.0}
    visits = [Visit(0, 1, 1.0, 1.0, reports=report), Visit(1, 1, 1.0, 1.0, reports={"drift.client_norm": nan})]
    visits.append(Visit(2, 1, 1.0, 1.0, reports={"drift.client_norm": 1e300}))
    assert set(report_columns(make("scaffold"), visits, {})) == {
        f"drift.client_norm{end}" for end in ("", "_std", "_min", "_max")
    }
    plain = Simulation(make("scaffold"), Clinic())
    gate = Gate(make("scaffold"), LOCAL, server.send(make("scaffold"), plain.start(), plain.job.setting), [0])
    for reports in ("[1]", "3", '{"a": "b"}'):
        summary = f'{{"visits": [[0, 1, 1, 1, 1, 1, 1, {reports}]], "rejections": []}}'
        json.loads(summary)
        with pytest.raises(WireError, match="cannot be read"):
            Partial(gate.total()).restore(gate.total().flatten(lambda _: {}), summary, 3)


def test_rounds_without_uploads_and_methods_without_reports_have_no_columns() -> None:
    simulation = Simulation(make("scaffold"), Clinic(), LOCAL)
    assert simulation.round(simulation.start(), [1])[1].reports == {}
    assert next(Simulation(make("fedavg"), Clinic(), LOCAL).rounds(1))[1].reports == {}


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_flower_nodes_send_them_with_their_replies(nodes: int, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from support.flower import LOCAL, grid_of, start, strategy_of, task_of

    for name in ("fedscam", "fedawa"):
        strategy = strategy_of(name, cohort=5)
        result = start(strategy, grid_of(name, nodes, tmp_path / name), 2)
        expected = [
            dict(r.reports) for _, r in Simulation(make(name), task_of(name), LOCAL, cohort=5, seed=3).rounds(2)
        ]
        assert [dict(record.reports) for record in strategy.records] == expected
        assert result.train_metrics_clientapp[2]["aggregation.weight"] == expected[1]["aggregation.weight"]
