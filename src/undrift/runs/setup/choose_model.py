"""The model of a run: by default one that fits the data, built by name on every worker, tried before the run."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Protocol, runtime_checkable

import torch

from undrift.core.method.algorithm import Algorithm
from undrift.data import Dataset, DataTask
from undrift.data.arrays.preprocess import Preprocess
from undrift.models import INPUTS, KINDS, MAKERS, MODELS, ROWS, Variational, build
from undrift.runs.settings.config import Config
from undrift.runs.settings.named_arguments import parts
from undrift.runs.settings.schema import ConfigError

TINY = 16
"""Images smaller than this are read by an `mlp` by default: a convolution has nothing to pool."""


def default_model(dataset: Dataset, algorithm: Algorithm) -> str:
    """The default model for a data set: small enough for a CPU, and of the kind that the method needs.

    Args:
        dataset: the data.
        algorithm: the method.
    """
    if dataset.kind == "text":
        return "lstm"
    if algorithm.needs.model:
        return next(name for name, kind in KINDS.items() if kind == algorithm.needs.model)
    if dataset.kind == "table" or dataset.shape[1] < TINY:
        return "mlp"
    return "small-cnn" if dataset.shape[1] <= 28 else "cnn"


def model_maker(model: str, dataset: Dataset) -> Callable[[], torch.nn.Module]:
    """A function that builds a model for a data set; it is sent to the workers, so it holds no data.

    Args:
        model: its name or a reference, with arguments as in "vit-tiny(patch=16)"; workers import a reference by name.
        dataset: the data; its images have the size of `image` of one of our models, if that is given.
    """
    name, arguments = build_arguments(model, dataset.preprocess, dataset.name)
    return partial(build, name, **arguments)


def build_arguments(model: str, made: Preprocess, source: str = "the data") -> tuple[str, dict[str, Any]]:
    """The name of a model and the arguments with which `undrift.models.build` makes it for a data set.

    Args:
        model: as for `model_maker`.
        made: what the data's examples are when a model receives them.
        source: what to call the data in errors.

    Example:
        >>> build_arguments("mlp", Preprocess("table", (7,), 2, ("no", "yes")))
        ('mlp', {'classes': 2, 'outputs': None, 'inputs': 7})
    """
    name, arguments = parts(model)
    classes = len(made.labels)
    call = {"classes": classes, "outputs": None if classes else made.outputs}
    if made.kind == "text":
        return name, {**call, "symbols": made.symbols, **arguments}
    if made.kind == "table":
        return name, {**call, "inputs": made.input_shape[0], **arguments}
    channels, side, width = made.input_shape
    if width != side and name in ROWS:
        return name, {**call, "inputs": prod(made.input_shape), **arguments}
    if name in MODELS and arguments.pop("image", side) != side:
        raise ValueError(f"{model}: the images of {source} have {side} pixels; resize them: [data] resize = ...")
    return name, {**call, "channels": channels, "image": side, **arguments}


@runtime_checkable
class ChecksModel(Protocol):
    """A block that refuses models of another kind than it needs."""

    def check_model(self, module: torch.nn.Module) -> None:
        """Raise an error if a model is not of that kind."""


def check_kind(config: Config, make: Callable[[], torch.nn.Module], dataset: Dataset) -> None:
    """Build the model of a run once, and raise a `ConfigError` if it is not of the kind that the method needs.

    Args:
        config: the settings, with a model.
        make: builds the model; it raises an error for data that the model does not read.
        dataset: the data.
    """
    algorithm, model = config.algorithm(), str(config.model)
    kind, name = algorithm.needs.model, parts(model)[0]
    known = [one for one in KINDS if KINDS[one] == kind]
    fitting = [one for one in known if INPUTS[one] == dataset.kind or (one in ROWS and dataset.kind == "image")]
    if kind and name in MODELS and name not in fitting:
        why = f"{model!r} reads no {dataset.kind} data" if name in known else f"{model!r} is none"
        own = f"give your own, undrift.models.{MAKERS.get(kind, '')}(body, ...), as in --model mypackage.nets:make"
        advice = f"use model {fitting[0]!r}" if fitting else own
        raise ConfigError(f"model: {config.method} needs a {kind} model, and {why}; for {dataset.kind} data {advice}")
    module = make()
    for _, block in algorithm.slots():
        if isinstance(block, ChecksModel):
            try:
                block.check_model(module)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"model: {error}") from None
    classes = algorithm.needs.arguments.get("classes")
    if isinstance(module, Variational) and classes not in (None, count := module.head.out_features):
        raise ConfigError(f"model: it has {count} classes, {config.method} has {classes}; write classes={count}")


def check_fit(model: str, task: DataTask) -> None:
    """Raise a `ConfigError` if a model does not take the data: tries two examples, in evaluation mode.

    Args:
        model: its name, for errors.
        task: has the model, the data and the loss.
    """
    train = task.dataset.train
    inputs, targets = task.prepare(train.inputs[:2]), train.targets[:2]
    module = task.model().eval()
    try:
        with torch.no_grad():
            outputs = module(inputs)
            few = isinstance(outputs, torch.Tensor) and outputs.ndim == 2 and outputs.shape[1] < task.dataset.classes
            if few:
                raise ValueError(f"it has {outputs.shape[1]} outputs for {task.dataset.classes} classes")
            task.loss(module, (inputs, targets))
    except Exception as error:
        shape, why = tuple(inputs.shape), str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model {model!r} does not fit {task.dataset.name}: with inputs of shape {shape} it failed with "
            f"{type(error).__name__}: {why}{_not_square(task.dataset)}"
        ) from error


def _not_square(dataset: Dataset) -> str:
    """What to do about images that are not square, which most models take."""
    if dataset.kind != "image" or dataset.shape[1] == dataset.shape[2]:
        return ""
    height, width = dataset.shape[1:]
    return (
        f"; the images are {height} x {width}: make them square, [data] resize = {height}, or use model resnet8 or mlp"
    )
