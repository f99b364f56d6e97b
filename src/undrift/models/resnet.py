"""The ResNets of He et al., with group norm: batch statistics suffer when clients differ."""

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from undrift.models import layers


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = norm(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = norm(outer)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.append(nn.Conv2d(inner, outer, 1, stride, bias=False))
            self.shortcut.append(norm(outer))

    def forward(self, x: Tensor) -> Tensor:
        """The block on a batch."""
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class ResNet(nn.Module):
    """Stages of basic blocks after a stem, then the mean over the image and a linear layer; images of any size.

    Args:
        blocks: basic blocks per stage.
        widths: channels of the stem and of each stage.
        classes: how many outputs.
        norm: builds the norm for a number of channels.
        channels: how many channels the images have.
        stem: "cifar" or "imagenet".
    """

    def __init__(
        self,
        blocks: int,
        widths: tuple[int, ...],
        classes: int,
        norm: Callable[[int], nn.Module],
        channels: int = 3,
        stem: str = "cifar",
    ) -> None:
        super().__init__()
        conv, pool = layers.stem(stem, channels, widths[0])
        self.stem = nn.Sequential(conv, norm(widths[0]), nn.ReLU(inplace=True), pool)
        self.stages = nn.Sequential()
        for stage, (inner, outer) in enumerate(pairwise(widths)):
            first = BasicBlock(inner, outer, 2 if stage else 1, norm)
            rest = [BasicBlock(outer, outer, 1, norm) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(first, *rest))
        self.linear = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.linear(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


def resnet(
    depth: int = 20, classes: int = 10, groups: int = 2, *, width: int = 1, channels: int = 3, norm: str = "group"
) -> ResNet:
    """A ResNet for 32 x 32 images: 3 stages of (depth - 2) / 6 basic blocks, 16, 32 and 64 channels wide.

    Args:
        depth: layers with weights on the main path: 8, 14, 20, 32, 56, ...
        classes: how many outputs.
        groups: groups of every group norm.
        width: factor on the channels of the stages; the stem keeps its 16.
        channels: how many channels the images have.
        norm: "group" or "batch".

    Example:
        >>> sum(p.numel() for p in resnet(20).parameters())
        272474
    """
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"resnet: depth must be 6 n + 2 with n of 1 or more, got {depth}")
    if width < 1:
        raise ValueError(f"resnet: width must be 1 or more, got {width}")
    widths = (16, 16 * width, 32 * width, 64 * width)
    return ResNet((depth - 2) // 6, widths, classes, layers.norm(norm, groups), channels)


def resnet18(
    classes: int = 10, groups: int = 2, *, channels: int = 3, norm: str = "group", stem: str = "cifar"
) -> ResNet:
    """ResNet-18: 4 stages of 2 basic blocks, 64, 128, 256 and 512 channels wide.

    The numbers of FedFFT, FedLESAM and FedWMSAM come from the ImageNet stem with group norm on 32 x 32 images, those
    of FedFSA and FedSCAM from batch norm.

    Args:
        classes: how many outputs.
        groups: groups of every group norm.
        channels: how many channels the images have.
        norm: "group" or "batch".
        stem: "cifar", 3 x 3 without pooling, or "imagenet", 7 x 7 with stride 2 and max pooling.

    Note:
        After the ImageNet stem a 32 x 32 image ends as one pixel, and batch norm rejects a batch of one example.

    Example:
        >>> sum(p.numel() for p in resnet18(stem="imagenet").parameters())
        11181642
    """
    return ResNet(2, (64, 64, 128, 256, 512), classes, layers.norm(norm, groups), channels, stem)
