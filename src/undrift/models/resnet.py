"""The ResNets of He et al. for CIFAR, with group norm: batch statistics do not survive clients that differ."""

from itertools import pairwise

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; the shortcut is a 1 x 1 convolution where the shape changes."""

    def __init__(self, inner: int, outer: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outer)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.append(nn.Conv2d(inner, outer, 1, stride, bias=False))
            self.shortcut.append(nn.GroupNorm(groups, outer))

    def forward(self, x: Tensor) -> Tensor:
        """The block on a batch."""
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        out: Tensor = self.relu(y + self.shortcut(x))
        return out


class ResNet(nn.Module):
    """Three stages of basic blocks after a 3 x 3 stem, then the mean over the image and a linear layer.

    Args:
        blocks: basic blocks per stage.
        widths: channels of the stem and of the three stages.
        classes: how many outputs.
        groups: groups of every norm.
        channels: how many colours.
    """

    def __init__(
        self, blocks: int, widths: tuple[int, int, int, int], classes: int, groups: int, channels: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False), nn.GroupNorm(groups, widths[0]), nn.ReLU(inplace=True)
        )
        self.stages = nn.Sequential()
        for stage, (inner, outer) in enumerate(pairwise(widths)):
            first = BasicBlock(inner, outer, 2 if stage else 1, groups)
            rest = [BasicBlock(outer, outer, 1, groups) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(first, *rest))
        self.linear = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """The logits of a batch of images."""
        logits: Tensor = self.linear(self.stages(self.stem(images)).mean(dim=(2, 3)))
        return logits


def resnet(depth: int = 20, classes: int = 10, groups: int = 2, *, width: int = 1, channels: int = 3) -> ResNet:
    """A ResNet for 32 x 32 images: 3 stages of (depth - 2) / 6 basic blocks, 16, 32 and 64 channels wide.

    Args:
        depth: layers with weights on the main path: 8, 14, 20, 32, 56, ...
        classes: how many outputs.
        groups: groups of every group norm.
        width: factor on the channels of the stages; the stem keeps its 16.
        channels: how many colours.

    Example:
        >>> sum(p.numel() for p in resnet(20).parameters())
        272474
    """
    if depth < 8 or (depth - 2) % 6:
        raise ValueError(f"resnet: depth must be 6 n + 2 with n of 1 or more, got {depth}")
    if width < 1:
        raise ValueError(f"resnet: width must be 1 or more, got {width}")
    return ResNet((depth - 2) // 6, (16, 16 * width, 32 * width, 64 * width), classes, groups, channels)
