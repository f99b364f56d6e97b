"""A short accuracy curve of every method with its defaults, for the gallery of the docs.

Digits (1,338 images of 8 x 8 for training), 20 clients (Dirichlet 0.1), 10 of them in each of 12 rounds, one epoch of
batches of 10 at rate 0.1 (0.01 for AdamW and Muon on the clients), a small MLP (FedCR: the same with latent units;
FedETF: with a fixed classifier; methods for adapters: its hidden layer is frozen and has one), one seed. Methods with
personal models have the mean accuracy of these on each client's own test; FedAvg has both. Like `smoke.py` it shows
that a method learns, not how good it is.

    python benchmarks/studies/curves.py --json > benchmarks/studies/results/curves.json
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from shared import each_method, personal_accuracy, versions
from undrift import Algorithm, Local, Simulation, make
from undrift.data import Dataset, DataTask, load
from undrift.data import partition as split
from undrift.models import MLP, Simplex, Variational, lora_mlp

LOCAL = Local(lr=0.1, epochs=1, batch_size=10)
SMALL = ("fedadamw", "fedlada", "fedmuon", "fedpac-muon", "fedpac-soap", "fedmuon-cv")
"""Methods whose clients take steps of AdamW's or Muon's length: they have a tenth of the rate."""
ROUNDS, CLIENTS, COHORT, SEEDS = 12, 20, 10, (0,)
PROXY = 100
"""Training examples that no client has: the server's proxy data."""

TEXT = (
    "digits, 20 clients (Dirichlet 0.1), 10 of them in each round, 1 local epoch at rate 0.1 (0.01 for AdamW and Muon "
    "on the clients), MLP, 1 seed"
)


def network(kind: str) -> nn.Module:
    """One hidden layer of 64 units; with latent units, a fixed classifier or an adapter for methods that need them."""
    if kind == "variational":
        return Variational(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU()), 64)
    if kind == "simplex":
        return Simplex(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU()), 64)
    if not kind:
        return MLP(64, 10, width=64)
    heads = {"cored": 1, "headed": 4}.get(kind, 0)
    return lora_mlp(64, 10, width=64, base=kind in ("foldable", "cored"), heads=heads)


def curve_task(dataset: Dataset, algorithm: Algorithm, seed: int) -> DataTask:
    """The task of a method and a seed: the same clients for all methods."""
    labels = dataset.train.targets[:-PROXY].numpy()
    clients = split("dirichlet:0.1", labels, clients=CLIENTS, seed=seed).clients
    model: Callable[[], nn.Module] = partial(network, algorithm.needs.model)
    every = len(dataset.train.targets)
    return DataTask(dataset, clients, model, seed=seed, reserved=torch.arange(every - PROXY, every))


def curve(name: str, dataset: Dataset, seed: int) -> dict[str, list[float]]:
    """The accuracies after every round: of the global model, and of personal models where there are some."""
    algorithm = make(name)
    task = curve_task(dataset, algorithm, seed)
    local = replace(LOCAL, lr=LOCAL.lr / 10) if name in SMALL else LOCAL
    simulation = Simulation(algorithm, task, local, cohort=COHORT, seed=seed)
    both: dict[str, list[float]] = {"accuracy": []}
    for state, _ in simulation.rounds(ROUNDS):
        both["accuracy"].append(task.test(simulation.module(state)).accuracy)
        if algorithm.personalized or name == "fedavg":
            both.setdefault("personal", []).append(personal_accuracy(task, simulation, state))
    return both


def curves(name: str, dataset: Dataset) -> dict[str, Any]:
    """The mean curves of a method over the seeds."""
    found = [curve(name, dataset, seed) for seed in SEEDS]
    means = {
        key: [round(sum(values) / len(SEEDS), 3) for values in zip(*(one[key] for one in found), strict=True)]
        for key in found[0]
    }
    return {"name": name, **means}


def main() -> None:
    """All methods, or those named."""
    rows, as_json = each_method(__doc__, lambda: load("digits"), curves)
    if as_json:
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        head = f'"what": {json.dumps(TEXT)},\n "environment": {json.dumps(versions())}'
        print(f'{{\n {head},\n "rows": [\n{lines}\n ]\n}}')


if __name__ == "__main__":
    main()
