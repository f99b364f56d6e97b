"""A multilayer perceptron: for tables, and for images of a few pixels."""

from torch import Tensor, nn


class MLP(nn.Module):
    """Two linear layers with a ReLU between them; an image is read as a row of its pixels.

    Args:
        classes: how many outputs.
        channels: how many channels the images have, or columns the table has.
        image: height and width of the images; 1 for a table.
        hidden: units of the hidden layer; 0 leaves it out, which gives a linear model.

    Example:
        >>> sum(p.numel() for p in MLP(classes=10, channels=1, image=8).parameters())
        9610
    """

    def __init__(self, classes: int = 10, channels: int = 1, image: int = 1, hidden: int = 128) -> None:
        super().__init__()
        if hidden < 0:
            raise ValueError(f"MLP: hidden must be 0 or more, got {hidden}")
        inputs = channels * image * image
        self.hidden = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU()) if hidden else nn.Identity()
        self.head = nn.Linear(hidden or inputs, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits, or the predicted numbers, of a batch."""
        outputs: Tensor = self.head(self.hidden(inputs.flatten(1)))
        return outputs
