"""Flower: its FedAvg in its own simulation, one node for each client."""

from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from turns import Turns
from work import CLIENTS, SETTINGS, Data, Setting, initial, load, loader, order


@lru_cache
def shards(setting: Setting) -> list[tuple[Tensor, Tensor]]:
    """The clients' data, kept by each process of Flower's simulation.

    Args:
        setting: the setting.
    """
    torch.set_num_threads(1)
    data = load(setting)
    return [data.own(client) for client in range(CLIENTS)]


def fit(message: Message, context: Any, setting: Setting, shuffle: bool) -> Message:
    """A client's training, as Flower's guide for PyTorch writes it.

    Args:
        message: from the server.
        context: the node's.
        setting: the setting.
        shuffle: whether clients shuffle their data.
    """
    client = int(context.node_config["partition-id"])
    own = shards(setting)[client]
    model = initial(setting)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=setting.lr)
    draw = order(message.content["config"]["server-round"], client)
    for inputs, targets in loader(own, setting.batch, shuffle, draw):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(own[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


def run(turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool) -> None:  # noqa: ARG001
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: not used: each process of the simulation loads its own.
        method: "fedavg": Flower's strategies have no SCAFFOLD.
        workers: processors given to the simulation, one for each client that is trained.
        shuffle: whether clients shuffle their data.
    """
    if method != "fedavg":
        raise ValueError("Flower's strategies have no SCAFFOLD: method must be fedavg")
    name = next(key for key, value in SETTINGS.items() if value == setting)
    client, main, model = ClientApp(), ServerApp(), initial(setting)

    @client.train()
    def train(message: Message, context: Any) -> Message:
        return fit(message, context, SETTINGS[name], shuffle)

    @main.main()
    def serve(grid: Any, _: Any) -> None:
        def pause(_: int, arrays: ArrayRecord) -> None:
            def current() -> nn.Module:
                model.load_state_dict(arrays.to_torch_state_dict())
                return model

            if not turns.pause(current):
                raise SystemExit

        strategy = FedAvg(
            fraction_train=setting.cohort / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=setting.cohort,
            min_available_nodes=CLIENTS,
        )
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=10**6, evaluate_fn=pause)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": workers}}
    run_simulation(main, client, num_supernodes=CLIENTS, backend_config=resources)
