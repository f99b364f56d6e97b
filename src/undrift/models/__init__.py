"""Models by name: those used in the field's papers, those of plug-ins, and your own by reference."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from inspect import signature
from typing import Any

from torch import nn

from undrift.core.model.modules import plain_name
from undrift.models.adapted import AdaptedLinear, add_cores, fold_cores, lora_mlp, open_base
from undrift.models.cnn import CNN5, SmallCNN
from undrift.models.lstm import CharLSTM
from undrift.models.mlp import MLP
from undrift.models.resnet import ResNet, resnet, resnet18
from undrift.models.simplex import Simplex, corners, simplex_cnn
from undrift.models.start import Started, fit, freeze, hash_weights, read_weights
from undrift.models.variational import Variational, variational_cnn
from undrift.models.vision import densenet121, vit_tiny
from undrift.util.naming.binding import check_arguments, is_scalar, literal_types
from undrift.util.naming.names import unknown_name
from undrift.util.naming.plugins import PluginGroup
from undrift.util.naming.references import Reference

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
    "mlp": MLP,
    "lora-mlp": lora_mlp,
    "lora-mlp-open": partial(lora_mlp, base=True),
    "lora-mlp-core": partial(lora_mlp, base=True, heads=1),
    "lora-mlp-heads": partial(lora_mlp, heads=4),
    "lstm": CharLSTM,
    "variational-cnn": variational_cnn,
    "simplex-cnn": simplex_cnn,
    "densenet121": densenet121,
    "vit-tiny": vit_tiny,
}
"""Name -> the function that builds it."""

KINDS: dict[str, str] = {
    "variational-cnn": "variational",
    "simplex-cnn": "simplex",
    "lora-mlp": "adapted",
    "lora-mlp-open": "foldable",
    "lora-mlp-core": "cored",
    "lora-mlp-heads": "headed",
}
"""Name -> the kind of model, for blocks that need one: "variational" has latent units, "simplex" a fixed classifier and
"adapted" low-rank adapters, "foldable" has them on weights that travel, "headed" with cores between the factors, and
"cored" both."""

MAKERS: dict[str, str] = {"variational": "Variational", "simplex": "Simplex"}
"""Kind -> the class here that makes such a model of one's own body."""

_CLASSIFIES = {"variational": "gives log probabilities of classes", "simplex": "has a corner for every class"}

INPUTS: dict[str, str] = {
    name: next((data for key, data in {"symbols": "text", "inputs": "table"}.items() if key in takes), "image")
    for name, takes in ((name, signature(make).parameters) for name, make in MODELS.items())
}
"""Name -> the model's input: "image", "text" or "table"."""

ROWS = ("mlp", *(name for name, kind in KINDS.items() if kind not in MAKERS))
"""Models of tables that also read images, as rows of pixels."""

PLUGINS = PluginGroup("undrift.models", MODELS)
"""The models of plug-ins."""

_FROM_DATA = ("classes", "channels", "symbols", "inputs", "outputs")  # `image` may be repeated and must agree


def arguments(name: str) -> dict[str, Any]:
    """The arguments of a model that a run file can set, with their types; the key "**" stands for any others.

    Args:
        name: one of `MODELS`, a plug-in's, or a reference such as "mypackage.nets:Net".

    Example:
        >>> arguments("vit-tiny")
        {'image': <class 'int'>, 'patch': <class 'int'>}
    """
    if name not in MODELS:
        return literal_types(_maker(name))
    return {key: hint for key, hint in literal_types(MODELS[name], *_FROM_DATA).items() if is_scalar(hint)}


def build(
    name: str,
    *,
    classes: int = 0,
    channels: int | None = None,
    image: int | None = None,
    symbols: int | None = None,
    inputs: int | None = None,
    outputs: int | None = None,
    **others: Any,
) -> nn.Module:
    """A model that fits the data.

    Args:
        name: one of `MODELS`, a plug-in's, or a reference such as "mypackage.nets:Net": a class, or a function that
            returns a module. It is called with those of the following arguments that its signature names and the data
            have, and with `others`.
        classes: how many classes; 0 if numbers are predicted.
        channels: how many channels the images have; None takes 3.
        image: height and width of the images; None takes 32.
        symbols: size of the alphabet if the data are text.
        inputs: how many columns if the data are a table.
        outputs: how many outputs; None takes one per class.
        others: arguments of the model itself, as `arguments` lists them.

    Example:
        >>> sum(p.numel() for p in build("cnn", classes=10, channels=1, image=28).parameters())
        1258798
        >>> sum(p.numel() for p in build("resnet8", classes=10, width=2).parameters())
        304154
    """
    make = _maker(name)
    check_arguments(f"model {name!r}", arguments(name), others)
    outputs = classes if outputs is None else outputs
    if outputs < 1:
        raise ValueError(f"model {name!r}: classes must be 1 or more, got {classes}")
    data = "text" if symbols is not None else "table" if inputs is not None else "image"
    if data == "image" and name in ROWS:
        inputs = (channels or 3) * (image or 32) ** 2
    elif INPUTS.get(name, data) != data:
        other = next(model for model, reads in INPUTS.items() if reads == data)
        raise ValueError(f"model {name!r} reads {INPUTS[name]} data and these are {data} data; try {other!r}")
    if (kind := KINDS.get(name, "")) in _CLASSIFIES and not classes:
        raise ValueError(
            f"model {name!r} {_CLASSIFIES[kind]}, and these targets are numbers or several labels; try 'small-cnn', "
            f"with a method that needs no {kind} model"
        )
    if name in MODELS and not classes and "outputs" not in signature(make).parameters:
        classes = outputs  # ours end in a linear layer, which predicts numbers as well
    if data == "image":
        channels, image = channels or 3, image or 32
    given = {"classes": classes or None, "outputs": outputs, "channels": channels, "image": image}
    given |= {"symbols": symbols, "inputs": inputs}
    offered = {key: value for key, value in given.items() if value is not None}
    if name not in MODELS:
        return _build_own(name, make, offered, others)
    return make(**{key: value for key, value in offered.items() if key in signature(make).parameters}, **others)


def _build_own(name: str, make: Callable[..., nn.Module], offered: dict[str, int], others: dict[str, Any]) -> nn.Module:
    """A model from outside the package; arguments in `others` take precedence over those derived from the data."""
    takes = signature(make)
    wanted = {key: value for key, value in offered.items() if key in takes.parameters} | others
    try:
        takes.bind(**wanted)
    except TypeError as error:
        has = ", ".join(f"{key}={value}" for key, value in offered.items())
        raise ValueError(f"model {name!r}: {error}; give it as {name}(...), the data have {has}") from None
    module = make(**wanted)
    if not isinstance(module, nn.Module):
        raise ValueError(f"model {name!r}: it must be an nn.Module or return one, got {module!r:.80}")
    return module


def _maker(name: str) -> Callable[..., nn.Module]:
    """The function or class that builds a model."""
    if name in MODELS:
        return MODELS[name]
    plugin, reference = PLUGINS.find(name), Reference.parse(name)
    if plugin is None and reference is None:
        raise ValueError(unknown_name("model", name, {**MODELS, **PLUGINS.known()}))
    found = plugin.load() if plugin is not None else reference.resolve() if reference is not None else None
    if not callable(found) or isinstance(found, nn.Module):
        raise ValueError(
            f"model {name!r}: it must be a class derived from nn.Module or a function that returns a module, so that "
            f"every client starts with the same weights, got {type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]


def head(module: nn.Module) -> tuple[str, ...]:
    """Name patterns of the linear layer that a model registers last, for `Private`.

    That is the last in the order of its attributes; a model that is not written in the order of its layers needs the
    patterns of its head by hand.

    Args:
        module: the model.

    Example:
        >>> head(resnet(8))
        ('linear.*',)
    """
    linear = [plain_name(name) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(f"head: {type(module).__name__} has no linear layer; name the private tensors yourself")
    pattern = f"{linear[-1]}.*" if linear[-1] else "*"
    names = [plain_name(name) for name, _ in module.named_parameters()]
    if not any(fnmatchcase(name, pattern) for name in names):  # shared with another layer, under whose name it is known
        raise ValueError(f"head: no parameter is named {pattern!r}; name the private ones yourself: {', '.join(names)}")
    return (pattern,)


__all__ = [
    "CNN5",
    "INPUTS",
    "KINDS",
    "MAKERS",
    "MLP",
    "MODELS",
    "PLUGINS",
    "AdaptedLinear",
    "CharLSTM",
    "ResNet",
    "Simplex",
    "SmallCNN",
    "Started",
    "Variational",
    "add_cores",
    "arguments",
    "build",
    "corners",
    "densenet121",
    "fit",
    "fold_cores",
    "freeze",
    "hash_weights",
    "head",
    "lora_mlp",
    "open_base",
    "read_weights",
    "resnet",
    "resnet18",
    "simplex_cnn",
    "variational_cnn",
    "vit_tiny",
]
