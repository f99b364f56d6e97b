"""The network, the data, and plain PyTorch functions that train and test."""

import gzip
import os
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DEBIAN = "/usr/share/datasets/fashion-mnist"  # apt install dataset-fashion-mnist


class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 5)
        self.conv2 = nn.Conv2d(16, 32, 5)
        self.head = nn.Linear(32 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        """The ten scores of every image."""
        x = functional.max_pool2d(self.conv1(x).relu(), 2)
        x = functional.max_pool2d(self.conv2(x).relu(), 2)
        return self.head(x.flatten(1))


@cache
def read(split: str) -> TensorDataset:
    """All images and labels of "train" or "t10k", from UNDRIFT_DATA/fashion-mnist or else Debian's folder."""
    given, content = filter(None, os.environ.get("UNDRIFT_DATA", "").split(os.pathsep)), []
    folders = [*(Path(part, "fashion-mnist") for part in given), Path(DEBIAN)]
    for name, header in ((f"{split}-images-idx3-ubyte.gz", 16), (f"{split}-labels-idx1-ubyte.gz", 8)):
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is None:
            places = ", ".join(map(str, folders))
            raise FileNotFoundError(f"no {name} in {places}: apt install dataset-fashion-mnist, or set UNDRIFT_DATA")
        content.append(np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header))
    images = torch.from_numpy(content[0].reshape(-1, 1, 28, 28).astype(np.float32) / 255.0)
    return TensorDataset((images - 0.286) / 0.353, torch.from_numpy(content[1].astype(np.int64)))


def partition(labels: np.ndarray, parts: int, alpha: float = 0.1, least: int = 10) -> list[np.ndarray]:
    """The examples of every part: each class is dealt out by shares drawn from Dirichlet(alpha)."""
    random = np.random.default_rng(0)
    while True:  # until every part has a few examples
        pieces = []
        for label in np.unique(labels):
            own = random.permutation(np.flatnonzero(labels == label))
            cuts = random.dirichlet(np.full(parts, alpha)).cumsum()[:-1] * len(own)
            pieces.append(np.split(own, cuts.astype(int)))
        out = [np.concatenate(piece) for piece in zip(*pieces, strict=True)]
        if min(map(len, out)) >= least:
            return out


def load_data(partition_id: int, num_partitions: int, batch_size: int) -> DataLoader:
    """The training data of one node."""
    images, labels = read("train").tensors
    own = torch.from_numpy(partition(labels.numpy(), num_partitions)[partition_id])
    return DataLoader(TensorDataset(images[own], labels[own]), batch_size, shuffle=True)


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """The mean loss of a batch."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def train(model: nn.Module, loader: DataLoader, epochs: int, lr: float) -> float:
    """Train by plain SGD; the mean loss."""
    optimizer, total = torch.optim.SGD(model.parameters(), lr), 0.0
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            value = loss(model, batch)
            value.backward()
            optimizer.step()
            total += value.item()
    return total / (epochs * len(loader))


@torch.no_grad()
def test(model: nn.Module) -> float:
    """The accuracy on the test images."""
    images, labels = read("t10k").tensors
    scores = torch.cat([model(part) for part in images.split(500)])
    return (scores.argmax(dim=1) == labels).float().mean().item()
