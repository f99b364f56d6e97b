"""A network with a fixed classifier: the corners of a regular simplex, on features of length one."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from undrift.blocks.corners import corners
from undrift.models.cnn import cnn_body


class Projection(nn.Linear):
    """A linear layer to features. Its rows belong to no class, unlike those of a linear classifier."""


class Simplex(nn.Module):
    """A body, a linear layer to features, and logits by their angles to the fixed corners of a simplex.

        f = head(body(x));   output = s V^T f / ||f||,   V the corners, s a parameter

    V does not train and is not sent: every copy of the model computes it from the seed. s is part of the model.

    Args:
        body: returns what the linear layer reads, (batch, features).
        features: how many of these there are.
        classes: how many outputs, 2 or more.
        dimension: of f, at least `classes`; 0 takes as many as classes.
        scale: s at the start.
        seed: of the corners.

    Example:
        >>> Simplex(nn.Flatten(), 16, classes=3)(torch.zeros(2, 4, 4)).shape
        torch.Size([2, 3])
    """

    vertices: Tensor

    def __init__(
        self,
        body: nn.Module,
        features: int,
        classes: int = 10,
        dimension: int = 0,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not 0 < scale < float("inf"):
            raise ValueError(f"Simplex: scale must be positive and finite, got {scale}")
        fixed = corners(classes, dimension or classes, seed)
        self.scale = nn.Parameter(torch.full((1,), float(scale)))
        self.body = body
        self.head = Projection(features, dimension or classes)
        self.register_buffer("vertices", fixed.to(self.scale), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of a batch, between -s and s."""
        logits: Tensor = self.scale * (normalize(self.head(self.body(x)), dim=1) @ self.vertices)
        return logits


def simplex_cnn(
    classes: int = 10,
    channels: int = 1,
    image: int = 28,
    *,
    dimension: int = 0,
    scale: float = 1.0,
    body: str = "small-cnn",
) -> Simplex:
    """A CNN up to its last hidden layer, then features of length one and the corners of a simplex.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images, 4 at least.
        dimension: of the features, at least `classes`; 0 takes as many as classes.
        scale: the factor of the logits at the start.
        body: "small-cnn", or "cnn", FedFSA's layers.

    Example:
        >>> sum(p.numel() for p in simplex_cnn().parameters())
        206923
    """
    encoder, features = cnn_body(body, classes, channels, image)
    return Simplex(encoder, features, classes, dimension, scale)
