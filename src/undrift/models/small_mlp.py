"""A multilayer perceptron for images of a few pixels."""

from torch import Tensor, nn


class SmallMLP(nn.Module):
    """Two linear layers with a ReLU between them; the model to start with on images below 16 x 16.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images.
        hidden: units of the hidden layer; 0 leaves it out, which gives a linear model.

    Example:
        >>> sum(p.numel() for p in SmallMLP(classes=10, channels=1, image=8).parameters())
        9610
    """

    def __init__(self, classes: int = 10, channels: int = 1, image: int = 8, hidden: int = 128) -> None:
        super().__init__()
        if hidden < 0:
            raise ValueError(f"SmallMLP: hidden must be 0 or more, got {hidden}")
        inputs = channels * image * image
        self.hidden = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU()) if hidden else nn.Identity()
        self.head = nn.Linear(hidden or inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.head(self.hidden(images.flatten(1)))
        return logits
