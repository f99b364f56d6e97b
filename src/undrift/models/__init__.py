"""The models used in the field's papers, by name."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from undrift.models.cnn import CNN5, SmallCNN
from undrift.models.lstm import CharLSTM
from undrift.models.resnet import ResNet, resnet, resnet18
from undrift.models.small_mlp import SmallMLP
from undrift.models.variational import Variational, variational_cnn
from undrift.models.vision import densenet121, vit_tiny
from undrift.util.literals import check_scalars, scalars
from undrift.util.names import suggest

MODELS: dict[str, Callable[..., nn.Module]] = {
    "small-cnn": SmallCNN,
    "cnn": CNN5,
    "resnet8": partial(resnet, 8),
    "resnet20": partial(resnet, 20),
    "resnet56-2": partial(resnet, 56, width=2),
    "resnet18": resnet18,
    "resnet18-bn": partial(resnet18, norm="batch"),
    "resnet18-imagenet": partial(resnet18, stem="imagenet"),
    "resnet18-imagenet-bn": partial(resnet18, norm="batch", stem="imagenet"),
    "small-mlp": SmallMLP,
    "lstm": CharLSTM,
    "variational-cnn": variational_cnn,
    "densenet121": densenet121,
    "vit-tiny": vit_tiny,
}
"""Name -> the function that builds it."""

KINDS: dict[str, str] = {"variational-cnn": "variational"}
"""Name -> the kind of model, for blocks that need one: "variational" has latent units."""

INPUTS: dict[str, str] = {
    name: "text" if "symbols" in signature(make).parameters else "image" for name, make in MODELS.items()
}
"""Name -> the model's input: "image" or "text"."""


_FROM_DATA = ("classes", "channels", "symbols")  # what the data decide; `image` may be repeated and must agree


def arguments(name: str) -> dict[str, Any]:
    """The arguments of a named model that a run file can set, with their types.

    Args:
        name: one of `MODELS`.

    Example:
        >>> arguments("vit-tiny")
        {'image': <class 'int'>, 'patch': <class 'int'>}
    """
    return scalars(_maker(name), *_FROM_DATA)


def build(
    name: str, *, classes: int, channels: int = 3, image: int = 32, symbols: int | None = None, **others: Any
) -> nn.Module:
    """A named model that fits the data.

    Args:
        name: one of `MODELS`.
        classes: how many outputs.
        channels: how many channels the images have.
        image: height and width of the images.
        symbols: size of the alphabet if the data are text; None if they are images.
        others: arguments of the model itself, as `arguments` lists them.

    Example:
        >>> sum(p.numel() for p in build("cnn", classes=10, channels=1, image=28).parameters())
        1258798
        >>> sum(p.numel() for p in build("resnet8", classes=10, width=2).parameters())
        304154
    """
    make = _maker(name)
    check_scalars(others, arguments(name), f"model {name!r}")
    data = "image" if symbols is None else "text"
    if INPUTS[name] != data:
        other = next(model for model, reads in INPUTS.items() if reads == data)
        raise ValueError(f"model {name!r} reads {INPUTS[name]} data and these are {data} data; try {other!r}")
    if classes < 1:
        raise ValueError(f"model {name!r}: classes must be 1 or more, got {classes}")
    given = {"classes": classes, "channels": channels, "image": image, "symbols": symbols}
    return make(**{key: value for key, value in given.items() if key in signature(make).parameters}, **others)


def _maker(name: str) -> Callable[..., nn.Module]:
    """The function that builds a named model."""
    if name not in MODELS:
        raise ValueError(f"no model is named {name!r}; {suggest(name, MODELS)}")
    return MODELS[name]


def head(module: nn.Module) -> tuple[str, ...]:
    """Name patterns of a model's last linear layer, for `Private`.

    Example:
        >>> head(resnet(8))
        ('linear.*',)
    """
    linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(f"head: {type(module).__name__} has no linear layer; name the private tensors yourself")
    return (f"{linear[-1]}.*" if linear[-1] else "*",)


__all__ = [
    "CNN5",
    "INPUTS",
    "KINDS",
    "MODELS",
    "CharLSTM",
    "ResNet",
    "SmallCNN",
    "SmallMLP",
    "Variational",
    "arguments",
    "build",
    "densenet121",
    "head",
    "resnet",
    "resnet18",
    "variational_cnn",
    "vit_tiny",
]
