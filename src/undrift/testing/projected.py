"""A small classification task whose model has a projection head, for methods that read features."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from undrift.core.tasks.tensor_task import TensorTask


class Projected(nn.Module):
    """A body, a projection and a head; what the head reads, tanh of the projection, is no layer's output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(5, 6)
        self.projection = nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores of points with five coordinates."""
        scores: Tensor = self.head(torch.tanh(self.projection(torch.tanh(self.body(x)))))
        return scores


def blobs(sizes: Sequence[int] = (4, 9, 3, 7), seed: int = 0) -> TensorTask:
    """Points around three centres in double precision; client i has mostly points of class i mod 3.

    Args:
        sizes: how many examples each client has.
        seed: seed of data and weights.
    """
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, 5, generator=draw, dtype=torch.float64)
    own = torch.cat([torch.full((n,), i % 3) for i, n in enumerate(sizes)])
    labels = torch.where(torch.rand(len(own), generator=draw) < 0.8, own, (own + 1) % 3)
    inputs = centres[labels] + torch.randn(len(own), 5, generator=draw, dtype=torch.float64) / 2
    clients = torch.split(torch.arange(len(own)), list(sizes))
    return TensorTask(_project, inputs, labels, clients, seed=seed)


def _project() -> nn.Module:
    """The model in double precision."""
    return Projected().double()
