"""Networks with two convolutions: FedFSA's five layers, and a small network for 28 x 28 images."""

from contextlib import suppress

import torch
from torch import Tensor, nn

FEDFSA = {28: (4, 12, 1024, 1024), 32: (64, 64, 1024, 1024), 64: (32, 32, 512, 1024)}
"""Image size -> channels of the two convolutions and units of the two hidden layers in FedFSA's experiments."""


class CNN5(nn.Module):
    """The five-layer CNN of FedFSA: two 5 x 5 convolutions and three linear layers.

    FedFSA uses a different network for each image size: Fashion-MNIST's 28, CIFAR's 32 and Tiny-ImageNet's 64.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images, 16 at least.
        widths: channels of the convolutions and units of the hidden layers; None takes FedFSA's for this size, and
            those of 32 x 32 for a size that FedFSA does not have.

    Example:
        >>> sum(p.numel() for p in CNN5().parameters())
        2806602
    """

    def __init__(
        self, classes: int = 10, channels: int = 3, image: int = 32, *, widths: tuple[int, int, int, int] | None = None
    ) -> None:
        super().__init__()
        side = _side(image, 4, "CNN5")
        first, second, third, fourth = widths or FEDFSA.get(image, FEDFSA[32])
        self.features = nn.Sequential(
            nn.Conv2d(channels, first, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(second * side * side, third),
            nn.ReLU(),
            nn.Linear(third, fourth),
            nn.ReLU(),
            nn.Linear(fourth, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits


class SmallCNN(nn.Module):
    """Two 3 x 3 convolutions, a hidden layer of 128 and a linear head: the model to start with on 28 x 28 images.

    FedSCAM trains a "SmallCNN" and does not publish its layers. These have 16 and 32 channels: the usual 32 and 64 take
    twice the time on a CPU and were not more accurate on Fashion-MNIST.

    Args:
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images, 4 at least.

    Example:
        >>> sum(p.numel() for p in SmallCNN().parameters())
        206922
    """

    def __init__(self, classes: int = 10, channels: int = 1, image: int = 28) -> None:
        super().__init__()
        side = _side(image, 0, "SmallCNN")
        self.features = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
        )
        self.hidden = nn.Linear(32 * side * side, 128)
        self.head = nn.Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        # Convolutions are faster on a CPU in this memory format; `contiguous` would not change grey images.
        with suppress(RuntimeError):  # under vmap tensors have no memory format
            images = images.to(memory_format=torch.channels_last)
        logits: Tensor = self.head(self.hidden(self.features(images).flatten(1)).relu())
        return logits


def cnn_body(name: str, classes: int, channels: int, image: int) -> tuple[nn.Module, int]:
    """A CNN without its last linear layer, and how many inputs that had.

    The layer is drawn and dropped, so that the others have the weights of the full network of the same seed.

    Args:
        name: "small-cnn" or "cnn".
        classes: how many outputs the layer had.
        channels: how many channels the images have.
        image: height and width of the images.

    Example:
        >>> cnn_body("small-cnn", 10, 1, 28)[1]
        128
    """
    if name not in ("small-cnn", "cnn"):
        raise ValueError(f"cnn_body: body must be 'small-cnn' or 'cnn', got {name!r}")
    encoder: SmallCNN | CNN5 = (SmallCNN if name == "small-cnn" else CNN5)(classes, channels, image)
    within, last = (encoder, "head") if isinstance(encoder, SmallCNN) else (encoder.classifier, "4")
    head = within.get_submodule(last)
    assert isinstance(head, nn.Linear)
    within.register_module(last, nn.Identity())
    return encoder, head.in_features


def _side(image: int, loss: int, model: str) -> int:
    """An image's side after two convolutions that each remove `loss` pixels and are pooled by 2."""
    side = ((image - loss) // 2 - loss) // 2
    if side < 1:
        raise ValueError(f"{model}: image must be {3 * loss + 4} or more, got {image}; try 'resnet8'")
    return side
