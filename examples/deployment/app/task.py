"""The task: twelve clients with points of mostly two of four classes, and a small network.

Replace it with your own: on a real node `data` reads a client's examples from that node's disk, and on the server
`test_set` those that are held out, if there are any.
"""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from undrift import TensorTask

CLIENTS, CLASSES, FEATURES = 12, 4, 8


def network() -> nn.Module:
    """A network with one hidden layer."""
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, CLASSES))


def data(client: int) -> tuple[Tensor, Tensor]:
    """The examples of one client: 20 to 35 points, most of them of its own two classes."""
    odds = torch.full((CLASSES,), 0.05)
    odds[client % CLASSES] += 0.6
    odds[(client + 1) % CLASSES] += 0.2
    return _points(odds, 20 + 5 * (client % 4), 1 + client)


def test_set() -> tuple[Tensor, Tensor]:
    """The server's held-out examples: points of all classes."""
    return _points(torch.ones(CLASSES), 400, 10_000)


def _points(odds: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Points around the centres of their classes."""
    centres = 2.0 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    targets = torch.multinomial(odds, count, replacement=True, generator=draw)
    return centres[targets] + torch.randn(len(targets), FEATURES, generator=draw), targets


def task(hosted: Collection[int] = range(CLIENTS), test: tuple[Tensor, Tensor] | None = None) -> TensorTask:
    """The task on one node, with only the data of the clients that it hosts; on the server with a test set."""
    empty = torch.empty(0, FEATURES), torch.empty(0, dtype=torch.int64)
    parts = [data(client) if client in hosted else empty for client in range(CLIENTS)]
    inputs, targets = (torch.cat(column) for column in zip(*parts, strict=True))
    own = torch.arange(len(targets)).split([len(y) for _, y in parts])
    return TensorTask(network, inputs, targets, own, test=test)
