"""A model."""

from torch import Tensor, nn


class StripesNet(nn.Module):
    """A hidden layer over the pixels.

    Args:
        classes: how many classes the data have.
        channels: how many channels the images have.
        image: height and width of the images.
        width: units of the hidden layer; the only argument that does not come from the data.
    """

    def __init__(self, classes: int, channels: int, image: int, width: int = 16) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels * image * image, width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        return self.head(self.hidden(images.flatten(1)).relu())
