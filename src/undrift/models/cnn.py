"""The five-layer CNN of FedFSA."""

from torch import Tensor, nn


class CNN5(nn.Module):
    """Two convolutions and three linear layers, for 32 x 32 images.

    Args:
        classes: how many outputs.
        channels: how many colours.

    Example:
        >>> sum(p.numel() for p in CNN5().parameters())
        2806602
    """

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(64 * 5 * 5, 1024),
            nn.ReLU(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Linear(1024, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits
