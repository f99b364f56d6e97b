"""Tables whose rows lie at Flower nodes: prepared alike by `prepare_tables`, refused where a node did it alone."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("flwr")
pytest.importorskip("pyarrow")

from flwr.app import ArrayRecord, Context
from flwr.clientapp import ClientApp

from support.flower_grid import StandInGrid
from undrift import Local, Simulation, make
from undrift.data import DataTask, load
from undrift.engine.flower.server.receive import TooFewNodes
from undrift.flower import Job, UndriftStrategy, client_app, host_table, prepare_tables, prepared_file

LOCAL = Local(lr=0.1, batch_size=8)
HEAD = "age,sex,stay"


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDRIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for node in range(3):
        rows = [
            f"{20 + 9 * node + n % 11},{'fmx'[(n + node) % 3 if node else 0]},{2 + node + n % 5}.5" for n in range(30)
        ]
        for split, own in (("train", rows[:24]), ("test", rows[24:])):
            Path(f"node{node}").mkdir(exist_ok=True)
            Path(f"node{node}/{split}.csv").write_text("\n".join([HEAD, *own]) + "\n")
            Path("all").mkdir(exist_ok=True)
            with open(f"all/{split}.csv", "a") as file:
                file.write("\n".join([*([] if node else [HEAD]), *own]) + "\n")


def table(context: Context) -> str:
    return f"node{context.node_config['partition-id']}"


def network(inputs: int) -> nn.Module:
    return nn.Linear(inputs, 1)


def task(data: object, client: int) -> DataTask:
    """A node's rows as those of its client."""
    rows = torch.arange(len(data.train))  # type: ignore[attr-defined]
    clients = [rows if number == client else rows[:0] for number in range(3)]
    return DataTask(data, clients, partial(network, data.shape[0]))  # type: ignore[attr-defined, arg-type]


def app(prepared: bool = True) -> ClientApp:
    def job(context: Context) -> Job:
        how = {"prepared": str(prepared_file(context, "first"))} if prepared else {"target": "stay", "classes": 0}
        return Job(make("scaffold"), task(load(table(context), **how), int(context.node_config["partition-id"])))

    made = client_app(job)
    host_table(made, table)
    return made


def strategy() -> UndriftStrategy:
    model = network(4)
    nn.init.zeros_(model.weight)  # type: ignore[arg-type]
    nn.init.zeros_(model.bias)  # type: ignore[arg-type]
    return UndriftStrategy(
        make("scaffold"), model, LOCAL, population=3, nodes=3, seed=5, wait=2.0, poll=0.01, deadline=30.0, patience=1
    )


def test_nodes_train_on_what_a_single_table_would_give(tmp_path: Path) -> None:
    grid = StandInGrid(app(), 3, tmp_path / "state")
    made = prepare_tables(grid, "first", "stay", "age;sex", file="table.json", nodes=3, poll=0.01, classes=0)
    whole = load("all", target="stay", inputs="age;sex", classes=0)
    assert made == whole.preprocess and made.columns[1].categories == ("f", "m", "x")
    server = strategy()
    server.start(grid, server.arrays() if server.state else ArrayRecord(server._model.module.state_dict()), 3)
    clients = [torch.arange(24 * n, 24 * (n + 1)) for n in range(3)]

    def same() -> nn.Module:
        out: nn.Module = nn.utils.skip_init(nn.Linear, 4, 1)
        return out

    simulation = Simulation(make("scaffold"), DataTask(whole, clients, same), LOCAL, seed=5)
    first = simulation.start()
    first.params.zero_()
    assert server.state is not None
    assert torch.equal(simulation.run(3, state=first).params, server.state.params)


def test_the_result_is_kept_and_sent_again(tmp_path: Path) -> None:
    grid = StandInGrid(app(), 3, tmp_path / "state")
    ask = partial(prepare_tables, grid, "first", "stay", "age;sex", file="table.json", nodes=3, poll=0.01, classes=0)
    made, before = ask(), next(grid.keys)
    kept = prepared_file(grid.nodes[grid.node_of(1)], "first")
    kept.unlink()
    assert ask() == made and kept.is_file()
    assert before > 12 and next(grid.keys) == before + 4  # the second time each node gets one message


def test_a_node_that_prepared_its_table_alone_is_refused(tmp_path: Path) -> None:
    server = strategy()
    grid = StandInGrid(app(prepared=False), 3, tmp_path / "state")
    with pytest.raises(TooFewNodes, match=r"this node's table was prepared from its own rows.*call prepare_tables"):
        server.start(grid, ArrayRecord(server._model.module.state_dict()), 1)


def test_a_node_without_a_table_is_named(tmp_path: Path) -> None:
    grid = StandInGrid(client_app(lambda _: None), 3, tmp_path / "state")  # type: ignore[arg-type, return-value]
    with pytest.raises(TooFewNodes, match=r"node \d+ gave no answer about its table: .*call host_table"):
        prepare_tables(grid, "first", "stay", "age;sex", file="table.json", nodes=3, poll=0.01)
    assert not Path("table.json").exists()


def test_the_text_of_an_error_stays_on_the_node(tmp_path: Path) -> None:
    grid = StandInGrid(app(), 3, tmp_path / "state")
    with pytest.raises(
        TooFewNodes, match=r"gave no answer about its table: refused: DataError; its text is in the node"
    ):
        prepare_tables(grid, "first", "stay", "age;weight", file="table.json", nodes=3, poll=0.01)
