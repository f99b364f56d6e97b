"""The models of the field's papers, by name."""

from collections.abc import Callable
from functools import partial
from inspect import signature

from torch import nn

from undrift.models.cnn import CNN5, SmallCNN
from undrift.models.lstm import CharLSTM
from undrift.models.resnet import ResNet, resnet, resnet18
from undrift.models.variational import Variational, variational_cnn
from undrift.models.vision import densenet121, vit_tiny
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
    "lstm": CharLSTM,
    "variational-cnn": variational_cnn,
    "densenet121": densenet121,
    "vit-tiny": vit_tiny,
}
"""Name -> the function that makes it."""

KINDS: dict[str, str] = {"variational-cnn": "variational"}
"""Name -> the kind of model, for blocks that need one: "variational" has latent units."""

INPUTS: dict[str, str] = {
    name: "text" if "symbols" in signature(make).parameters else "image" for name, make in MODELS.items()
}
"""Name -> what the model reads: "image" or "text"."""


def build(name: str, *, classes: int, channels: int = 3, image: int = 32, symbols: int | None = None) -> nn.Module:
    """A named model that fits the data.

    Args:
        name: one of `MODELS`.
        classes: how many outputs.
        channels: how many colours the images have.
        image: height and width of the images.
        symbols: size of the alphabet if the data are text; None if they are images.

    Example:
        >>> sum(p.numel() for p in build("cnn", classes=10, channels=1, image=28).parameters())
        1258798
    """
    if name not in MODELS:
        raise ValueError(f"no model is named {name!r}; {suggest(name, MODELS)}")
    data = "image" if symbols is None else "text"
    if INPUTS[name] != data:
        other = next(model for model, reads in INPUTS.items() if reads == data)
        raise ValueError(f"model {name!r} reads {INPUTS[name]} data and these are {data} data; try {other!r}")
    if classes < 1:
        raise ValueError(f"model {name!r}: classes must be 1 or more, got {classes}")
    make = MODELS[name]
    given = {"classes": classes, "channels": channels, "image": image, "symbols": symbols}
    return make(**{key: value for key, value in given.items() if key in signature(make).parameters})


def head(module: nn.Module) -> tuple[str, ...]:
    """Name patterns of a model's last linear layer, as `Private` takes them.

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
    "Variational",
    "build",
    "densenet121",
    "head",
    "resnet",
    "resnet18",
    "variational_cnn",
    "vit_tiny",
]
