"""The Flower engine: the same bits as in one process."""

import logging
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from support.flower import LOCAL, TASK, grid_of, reference, start, state_of, strategy_of, task_of
from support.flower import own_clock as own_clock
from support.flower_grid import StandInGrid
from support.rounds import LATE, Talker
from undrift import Algorithm, Local, Simulation, make
from undrift.algorithms import ALGORITHMS
from undrift.core.method.aggregation import Robust
from undrift.core.server.wire import WireError
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import Job, UndriftStrategy, client_app, host, open_visit
from undrift.testing import fingerprint

# The same bits


@pytest.mark.sweep(every=16)
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in LATE and not make(name).needs.proxy])
def test_every_algorithm_equals_the_local_engine(name: str, tmp_path: Path) -> None:
    expected = fingerprint(reference(name))
    for nodes in (1, 3, 8):
        strategy = strategy_of(name, cohort=5)
        start(strategy, grid_of(name, nodes, tmp_path / str(nodes), seed=nodes), task=task_of(name))
        assert fingerprint(state_of(strategy)) == expected, nodes


@pytest.mark.sweep(every=3)
@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_replies_does_not_matter(seed: int, tmp_path: Path) -> None:
    strategy, grid = strategy_of("feddyn", cohort=5), grid_of("feddyn", 8, tmp_path, seed)
    start(strategy, grid)
    assert fingerprint(state_of(strategy)) == fingerprint(reference("feddyn"))
    assert all(len(keys) == 1 for keys in grid.pulls)


def test_buffers_kept_by_clients_and_all_settings_reach_the_nodes(tmp_path: Path) -> None:
    local = Local(0.05, 0.9, 1e-3, clip=5.0, epochs=2, batch_size=3, buffers="keep")
    strategy = strategy_of("scaffold", cohort=5, local=local, bound=100.0)
    start(strategy, grid_of("scaffold", 3, tmp_path))
    assert fingerprint(state_of(strategy)) == fingerprint(reference("scaffold", local=local))


@dataclass(frozen=True)
class Median(Robust):
    """Needs every upload apart."""

    def gather(self, uploads: Any, ups: Any, view: Any) -> Any:
        return torch.stack([upload.delta for upload in uploads]).median(dim=0).values, None


@pytest.mark.quick
@pytest.mark.parametrize("nodes", [1, 3, 8])
def test_methods_that_gather_or_upload_every_kind_of_field(nodes: int, tmp_path: Path) -> None:
    algorithm = Algorithm(drift=Talker(), aggregation=Median())
    strategy = UndriftStrategy(algorithm, TASK.model(), LOCAL, population=8, cohort=5, seed=3, poll=0.01)
    start(strategy, StandInGrid(client_app(lambda context: Job(algorithm, TASK)), nodes, tmp_path))
    assert fingerprint(state_of(strategy)) == fingerprint(Simulation(algorithm, TASK, LOCAL, cohort=5, seed=3).run(3))


def test_the_result_loads_into_the_users_model(tmp_path: Path) -> None:
    seen = []
    strategy = strategy_of("fedavg", cohort=5)
    result = start(strategy, grid_of("fedavg", 3, tmp_path), 2, evaluate_fn=lambda n, a: seen.append((n, a)))
    model, expected = TASK.model(), Simulation(make("fedavg"), TASK).module(state_of(strategy))
    model.load_state_dict(result.arrays.to_torch_state_dict())
    for name, x in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], x), name
    assert [n for n, _ in seen] == [0, 1, 2] and seen[-1][1] == result.arrays
    assert set(result.train_metrics_clientapp) == {1, 2}
    report = result.train_metrics_clientapp[2]
    record = [r for _, r in Simulation(make("fedavg"), TASK, LOCAL, cohort=5, seed=3).rounds(2)][-1]
    assert report["loss"] == record.loss and report["clients"] == len(record.clients) and report["seconds"] > 0


def test_the_users_model_is_not_changed(tmp_path: Path) -> None:
    model = TASK.model()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    strategy = UndriftStrategy(make("fedavg"), model, LOCAL, population=8, poll=0.01)
    start(strategy, grid_of("fedavg", 2, tmp_path), 1)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_the_strategys_methods_by_hand(tmp_path: Path) -> None:
    strategy, grid = strategy_of("scaffold", cohort=5), grid_of("scaffold", 3, tmp_path)
    arrays = ArrayRecord(TASK.model().state_dict())
    with pytest.raises(RuntimeError, match="call configure_train first"):
        strategy.aggregate_train(1, [])
    for round in (1, 2, 3):
        replies = list(grid.send_and_receive(strategy.configure_train(round, arrays, ConfigRecord(), grid)))
        arrays, metrics = strategy.aggregate_train(round, replies * 2)  # type: ignore[assignment]  # a reply that comes twice counts once
        assert metrics["clients"] >= 4  # type: ignore[index, operator]
    assert fingerprint(state_of(strategy)) == fingerprint(reference("scaffold"))


def test_evaluation_on_the_nodes(tmp_path: Path) -> None:
    app = client_app(Job(make("fedavg"), TASK))

    @app.evaluate()
    def evaluate(message: Message, context: Any) -> Message:
        model = TASK.model()
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        part = context.node_config["partition-id"]
        if part == 2:
            raise ValueError("this node cannot")
        report = MetricRecord({"accuracy": [0.5, 1.0, 0.0][part], "num-examples": part + 1, "bad": float("nan")})
        return Message(RecordDict({"metrics": report}), reply_to=message)

    result = start(strategy_of("fedavg", evaluate=True), StandInGrid(app, 3, tmp_path), 1)
    assert dict(result.evaluate_metrics_clientapp[1]) == {"accuracy": (0.5 + 2 * 1.0) / 3}


# People's own train functions


@pytest.mark.parametrize("whole", [True, False])
def test_a_train_function_of_ones_own(whole: bool, tmp_path: Path) -> None:
    local = Local(lr=0.05, epochs=2, batch_size=4)
    app = ClientApp()
    host(app)

    @app.train()
    def train(message: Message, context: Any) -> Message:
        visit = open_visit(message, context, make("scaffold"))
        assert visit.config["note"] == "hello" and visit.client == context.node_config["partition-id"]

        def epoch(generator: Any) -> Any:
            return TASK.batches(visit.client, visit.local.batch_size, generator)

        order = visit.generator("batches")
        batches = chain.from_iterable(epoch(order) for _ in range(visit.local.epochs)) if whole else epoch  # type: ignore[arg-type]
        return visit.train(TASK.model(), TASK.loss, batches, TASK.examples(visit.client))

    strategy = strategy_of("scaffold", cohort=5, local=local)
    start(strategy, StandInGrid(app, 8, tmp_path), train_config=ConfigRecord({"note": "hello"}))
    assert fingerprint(state_of(strategy)) == fingerprint(reference("scaffold", local=local))


def test_a_node_of_ones_own_hosts_one_client(tmp_path: Path) -> None:
    grid = grid_of("fedavg", 2, tmp_path)
    arrays = ArrayRecord(TASK.model().state_dict())
    messages = list(strategy_of("fedavg").configure_train(1, arrays, ConfigRecord(), grid))
    with pytest.raises(WireError, match="got an order for 4 clients; a node that hosts many needs client_app"):
        open_visit(messages[0], next(iter(grid.nodes.values())), make("fedavg"))
    with pytest.raises(WireError, match=r"this node runs .*Scaffold.*, the server Algorithm\(\)"):
        open_visit(messages[0], next(iter(grid.nodes.values())), make("scaffold"))


def test_population_and_nodes_that_do_not_match_get_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not a traceback of every round: a node that trains one client refuses to host several."""
    app = ClientApp()
    host(app)
    with caplog.at_level(logging.WARNING, "flwr"), pytest.raises(TooFewNodes, match="0 of 8 clients") as raised:
        start(strategy_of("fedavg"), StandInGrid(app, 3, tmp_path), 1)
    told = "open_visit trains one per node: set population=3 of the strategy, or use client_app(job) on the nodes"
    assert told in str(raised.value)
    assert sum(told in message for message in caplog.messages) == 3  # one sentence for each node, once


def test_a_node_without_clients_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "flwr"):
        start(strategy_of("fedavg"), grid_of("fedavg", 9, tmp_path), 1)
    assert [m for m in caplog.messages if "hosts no client: 8 clients are fewer than the nodes" in m]


@pytest.mark.parametrize("evaluate", [True, False])
def test_an_evaluate_function_that_is_not_called_is_named(
    evaluate: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = client_app(Job(make("fedavg"), TASK))
    app.evaluate()(lambda message, _: Message(RecordDict(), reply_to=message))
    with caplog.at_level(logging.WARNING, "flwr"):
        start(strategy_of("fedavg", evaluate=evaluate), StandInGrid(app, 2, tmp_path), 2)
    named = [m for m in caplog.messages if "evaluate function is not called: give UndriftStrategy evaluate=True" in m]
    assert len(named) == (0 if evaluate else 1)


def test_dependencies_that_a_node_cannot_install_get_a_remedy(tmp_path: Path) -> None:
    """Flower's exit 608, as the server sees it: an error in reply to the first question."""
    app = ClientApp()

    @app.query()
    def query(message: Message, _: object) -> Message:
        reason = "<class 'flwr.supercore.RuntimeDependencyInstallationError'>:<'undrift was not found'>"
        return Message(Error(code=2, reason=reason), reply_to=message)

    with pytest.raises(TooFewNodes, match="without --allow-runtime-dependency-installation"):
        start(strategy_of("fedavg"), StandInGrid(app, 1, tmp_path), 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cohort": 0}, "cohort must be between 1 and the population of 8, got 0; None takes all clients"),
        ({"cohort": 9}, "cohort must be between 1 and the population of 8, got 9"),
        ({"population": 0}, "population must be 1 or more, the number of all clients, got 0"),
    ],
)
def test_numbers_of_clients_that_cannot_be_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        UndriftStrategy(make("fedavg"), TASK.model(), **{"population": 8, **given})


def test_a_strategy_takes_a_methods_name_and_refuses_arguments_in_wrong_places() -> None:
    strategy = UndriftStrategy("scaffold", TASK.model(), LOCAL, population=8)
    assert strategy.algorithm == make("scaffold")
    with pytest.raises(TypeError, match=r"UndriftStrategy: model must be a torch.nn.Module, got Local"):
        UndriftStrategy(make("fedavg"), LOCAL, TASK.model(), population=8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"UndriftStrategy: local must be .* Local\(lr=0.1\), got dict"):
        UndriftStrategy(make("fedavg"), TASK.model(), {"lr": 0.1}, population=8)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'UndriftStrategy: algorithm must be a method, .* "scaffold", got Linear'):
        UndriftStrategy(torch.nn.Linear(1, 1), make("fedavg"), population=8)  # type: ignore[arg-type]
