"""The work that every contender does: data, partition, models and cohorts; only numpy and torch are imported.

A setting fixes everything a round costs: clients, examples, cohort, batches and model. Every client has two shards of
one label each, so that all have the same number of examples and FedAvg's weights are equal.
"""

import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

DEBIAN = "/usr/share/datasets"
CLIENTS = 100


@dataclass(frozen=True)
class Setting:
    """What is trained in a round.

    Args:
        model: a key of `MODELS`.
        examples: of each client.
        cohort: clients in a round, of 100.
        batch: examples in a batch.
        lr: the clients' learning rate.
    """

    model: str
    examples: int
    cohort: int
    batch: int
    lr: float

    @property
    def steps(self) -> int:
        """Local steps of a client in a round; the clients train for one epoch."""
        return -(-self.examples // self.batch)


SETTINGS = {
    "cnn": Setting("cnn", examples=600, cohort=10, batch=50, lr=0.05),
    "mlp": Setting("mlp", examples=60, cohort=100, batch=20, lr=0.02),
    "logistic": Setting("logistic", examples=60, cohort=100, batch=20, lr=0.02),
}
METHODS = ("fedavg", "scaffold")


def cnn() -> nn.Module:
    """Two convolutions and a linear layer; 18,378 parameters."""
    first = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(first, second, nn.Flatten(), nn.Linear(512, 10))


def mlp() -> nn.Module:
    """One hidden layer; 59,635 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 75), nn.ReLU(), nn.Linear(75, 10))


def logistic() -> nn.Module:
    """Logistic regression; 7,850 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


MODELS = {"cnn": cnn, "mlp": mlp, "logistic": logistic}


def initial(setting: Setting) -> nn.Module:
    """The initial model, the same for every contender.

    Args:
        setting: the setting.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[setting.model]()


def folder() -> Path | None:
    """The folder of Fashion-MNIST: in one of UNDRIFT_DATA's folders or Debian's; None if there is none."""
    places = [*os.environ.get("UNDRIFT_DATA", "").split(os.pathsep), DEBIAN]
    found = [Path(place) / "fashion-mnist" for place in places if place]
    return next((path for path in found if (path / "train-images-idx3-ubyte.gz").is_file()), None)


@dataclass(frozen=True)
class Data:
    """The examples in tensors, and the indices of each client.

    Args:
        inputs: training images, scaled to [-1, 1].
        targets: their labels.
        clients: the indices of each client.
        test: held-out images and labels.
    """

    inputs: Tensor
    targets: Tensor
    clients: Sequence[Tensor]
    test: tuple[Tensor, Tensor]

    def own(self, client: int) -> tuple[Tensor, Tensor]:
        """A client's images and labels.

        Args:
            client: its number.
        """
        return self.inputs[self.clients[client]], self.targets[self.clients[client]]


def load(setting: Setting) -> Data:
    """Fashion-MNIST, partitioned by shards of one label.

    Args:
        setting: the setting.
    """
    where = folder()
    if where is None:
        raise FileNotFoundError(
            "Fashion-MNIST was not found: install Debian's package dataset-fashion-mnist, "
            "or put its four files into the folder fashion-mnist of a folder in UNDRIFT_DATA"
        )
    inputs, targets = _split(where, "train")
    draw = np.random.default_rng(0)
    kept = draw.permutation(len(targets))[: CLIENTS * setting.examples]
    shards = kept[np.argsort(targets.numpy()[kept], kind="stable")].reshape(2 * CLIENTS, -1)
    pairs = draw.permutation(2 * CLIENTS).reshape(CLIENTS, 2)
    clients = [torch.from_numpy(draw.permutation(shards[pair].ravel())) for pair in pairs]
    return Data(inputs, targets, clients, _split(where, "t10k"))


def _split(where: Path, name: str) -> tuple[Tensor, Tensor]:
    """The images and labels of one split."""
    with gzip.open(where / f"{name}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    with gzip.open(where / f"{name}-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(), np.uint8, offset=16).astype(np.float32)
    scaled = torch.from_numpy(images).div_(127.5).sub_(1.0)
    return scaled.reshape(-1, 1, 28, 28), torch.from_numpy(labels)


def cohort(setting: Setting, round: int) -> list[int]:
    """The clients of a round, sorted; the same for every contender that takes a list of them.

    Args:
        setting: the setting.
        round: its number, from 0.
    """
    drawn = np.random.default_rng([1, round]).choice(CLIENTS, setting.cohort, replace=False)
    return sorted(int(client) for client in drawn)


def order(round: int, client: int) -> torch.Generator:
    """What shuffles a client's data in a round, for peers that leave it to their users.

    Args:
        round: its number.
        client: its number.
    """
    return torch.Generator().manual_seed(CLIENTS * round + client)


def loader(
    own: tuple[Tensor, Tensor], batch: int, shuffle: bool, generator: torch.Generator | None = None
) -> DataLoader[tuple[Tensor, Tensor]]:
    """A torch loader that takes whole batches out of tensors, for peers that ask for a loader.

    Args:
        own: a client's images and labels.
        batch: examples in a batch.
        shuffle: whether the order is new in each epoch.
        generator: fixes the order; None takes torch's own.
    """
    dataset = TensorDataset(*own)
    order = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    return DataLoader(dataset, sampler=BatchSampler(order, batch, drop_last=False), batch_size=None)


def accuracy(model: nn.Module, data: Data) -> float:
    """The share of test examples that the model gets right.

    Args:
        model: the model.
        data: the data.
    """
    model.eval()
    with torch.no_grad():
        hits = [(model(x).argmax(1) == y).sum() for x, y in zip(*(part.split(1000) for part in data.test), strict=True)]
    model.train()
    return float(sum(hits)) / len(data.test[1])
