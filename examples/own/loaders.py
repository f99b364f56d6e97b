"""A DataLoader for each client, with a random transform; BatchNorm and dropout; Adam on the clients."""

import torch
from command_line import given
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from undrift import LoaderTask, Local
from undrift.runs import start


def make() -> nn.Module:
    """A perceptron with running statistics and dropout."""
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 10))


def noisy(examples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """A batch with noise; what is drawn depends only on the run's seed, the round and the client."""
    inputs, targets = (torch.stack(column) for column in zip(*examples, strict=True))
    return inputs + 0.1 * torch.randn(inputs.shape), targets


def task() -> LoaderTask:
    """Ten clients of 150 digits, with three classes or so each."""
    x, y = (torch.tensor(data) for data in load_digits(return_X_y=True))
    data = TensorDataset(x.float() / 16, y)
    shards = y[:1500].argsort(stable=True).view(30, 50)
    parts = [Subset(data, shards[client::10].flatten().tolist()) for client in range(10)]
    clients = [DataLoader(part, batch_size=30, shuffle=True, collate_fn=noisy) for part in parts]
    test = DataLoader(Subset(data, range(1500, len(data))), batch_size=99)
    return LoaderTask(make, clients, test=test, metrics=["accuracy"])


if __name__ == "__main__":
    method, local = "fedavg + local-adam", Local(lr=0.01, batch_size=30)
    run = start(**given(__doc__), task=task(), method=method, cohort=5, local=local, resume=True)
    print(run.sha256, f"accuracy {run.summary['accuracy']:.2%}")
