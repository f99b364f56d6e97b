"""The server's half of the app."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fashion import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by the run's configuration, and print the accuracy after every round."""
    config = context.run_config
    nodes, rounds = int(config["num-nodes"]), int(config["num-rounds"])
    lr, epochs, size = float(config["lr"]), int(config["epochs"]), int(config["batch-size"])
    settings = ConfigRecord({"lr": lr, "epochs": epochs, "batch-size": size})
    torch.manual_seed(0)
    model = task.Net()
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy.start(grid, ArrayRecord(model.state_dict()), rounds, train_config=settings, evaluate_fn=evaluate)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """The accuracy of the global model on the test images."""
    model = task.Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    accuracy = task.test(model)
    print(f"round {server_round}: accuracy {accuracy:.4f}", flush=True)
    return MetricRecord({"accuracy": accuracy})
