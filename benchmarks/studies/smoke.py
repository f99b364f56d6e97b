"""A smoke test of every method: does it learn with its defaults where FedAvg does?

Fashion-MNIST, 4,000 training examples over 20 clients (Dirichlet 0.3), 10 of them in each of 10 rounds, two epochs, the
small CNN (FedCR: with latent units), one seed. It shows that a method works, not how good it is: `undrift compare` does
that.

    python benchmarks/studies/smoke.py --json > benchmarks/studies/results/smoke.json
"""

import json
import time
from typing import Any

import torch

from shared import each_method, first_examples, personal_accuracy, versions
from undrift import Algorithm, Local, Simulation, make
from undrift.data import Dataset, DataTask, load
from undrift.data.partitions.draw import partition
from undrift.runs.setup.choose_model import default_model, model_maker

LOCAL = Local(lr=0.1, epochs=2, batch_size=50, weight_decay=1e-3, clip=10.0)
ROUNDS, CLIENTS, COHORT = 10, 20, 10


def smoke_task(dataset: Dataset, algorithm: Algorithm) -> DataTask:
    """The task of a method, the same for all except the model; 100 training examples are the server's proxy data."""
    clients = partition("dirichlet:0.3", dataset.train.targets[:4000].numpy(), clients=CLIENTS, seed=0).clients
    make_model = model_maker(default_model(dataset, algorithm), dataset)
    return DataTask(dataset, clients, make_model, reserved=torch.arange(4000, 4100))


def smoke(name: str, dataset: Dataset) -> dict[str, Any]:
    """Train one method and test its global model, and the personal models if it has some."""
    algorithm = make(name)
    task, begun = smoke_task(dataset, algorithm), time.perf_counter()
    simulation = Simulation(algorithm, task, LOCAL, cohort=COHORT)
    state = simulation.run(ROUNDS)
    row: dict[str, Any] = {"name": name, "accuracy": round(task.test(simulation.module(state)).accuracy, 4)}
    if algorithm.personalized:
        row["personal"] = round(personal_accuracy(task, simulation, state), 4)
    return {**row, "seconds": round(time.perf_counter() - begun, 1)}


def main() -> None:
    """Run all methods, or those named."""
    rows, as_json = each_method(__doc__, lambda: first_examples(load("fashion-mnist"), 4100, 1000), smoke)
    if as_json:
        print(json.dumps({"rows": rows, "environment": versions()}, indent=1))


if __name__ == "__main__":
    main()
