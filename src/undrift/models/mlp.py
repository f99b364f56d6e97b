"""A multilayer perceptron: for tables, and for images of a few pixels."""

from itertools import pairwise

from torch import Tensor, nn


class MLP(nn.Module):
    """Linear layers with ReLU between them: the model to start with on a table; an image is a row of its pixels.

    Args:
        inputs: how many columns, or channels times pixels.
        outputs: how many outputs: one per class, or one per number to predict.
        width: units of a hidden layer.
        depth: how many hidden layers; 0 is a linear model.

    Example:
        >>> sum(p.numel() for p in MLP(8, 2).parameters())
        1410
    """

    def __init__(self, inputs: int = 8, outputs: int = 1, width: int = 128, depth: int = 1) -> None:
        super().__init__()
        for name, value, least in (
            ("inputs", inputs, 1),
            ("outputs", outputs, 1),
            ("width", width, 1),
            ("depth", depth, 0),
        ):
            if value < least:
                raise ValueError(f"MLP: {name} must be {least} or more, got {value}")
        sizes = [inputs, *[width] * depth]
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        self.hidden = nn.Sequential(*hidden)
        self.head = nn.Linear(sizes[-1], outputs)

    def forward(self, rows: Tensor) -> Tensor:
        """The outputs of a batch of rows."""
        out: Tensor = self.head(self.hidden(rows.flatten(1)))
        return out
