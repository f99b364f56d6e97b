"""The norms and stems that the networks share."""

from collections.abc import Callable

from torch import nn


def norm(kind: str, groups: int) -> Callable[[int], nn.Module]:
    """The norm of a network, as a function of the number of channels.

    Args:
        kind: "group" or "batch". Batch statistics suffer when clients differ, and they are buffers:
            `Local.buffers` sets whether they are averaged.
        groups: groups of every group norm; batch norm has none.
    """
    if kind not in ("group", "batch"):
        raise ValueError(f"norm must be 'group' or 'batch', got {kind!r}")
    if groups < 1:
        raise ValueError(f"norm: groups must be 1 or more, got {groups}")

    def group(channels: int) -> nn.Module:
        if channels % groups:
            raise ValueError(f"norm: {channels} channels cannot be split into {groups} groups; choose a divisor")
        return nn.GroupNorm(groups, channels)

    return group if kind == "group" else nn.BatchNorm2d


def stem(kind: str, channels: int, width: int) -> tuple[nn.Conv2d, nn.Module]:
    """The first convolution of a network, and the pooling after its norm and its ReLU.

    Args:
        kind: "cifar", 3 x 3 at the size of the image, or "imagenet", 7 x 7 and pooling, which divide the size by four.
        channels: how many channels the images have.
        width: how many output channels.
    """
    if kind == "cifar":
        return nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.Identity()
    if kind == "imagenet":
        return nn.Conv2d(channels, width, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, 1)
    raise ValueError(f"stem must be 'cifar' or 'imagenet', got {kind!r}")
