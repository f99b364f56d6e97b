"""Names for completion and help, without the modules that define them: those import torch. A test compares them."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from undrift.util.naming.names import normalize_name, unknown_name
from undrift.util.naming.plugins import plugins

DATA = (
    "digits",
    "fashion-mnist",
    "cifar10",
    "cifar100",
    "cifar100-coarse",
    "tiny-imagenet",
    "femnist",
    "office-home",
    "bloodmnist",
    "shakespeare",
    "leaf-shakespeare",
    "yahoo-answers",
)
MODELS = (
    "small-cnn",
    "cnn",
    "resnet8",
    "resnet20",
    "resnet56-2",
    "resnet18",
    "resnet18-bn",
    "resnet18-imagenet",
    "resnet18-imagenet-bn",
    "mlp",
    "lora-mlp",
    "lora-mlp-open",
    "lora-mlp-core",
    "lora-mlp-heads",
    "lstm",
    "variational-cnn",
    "simplex-cnn",
    "densenet121",
    "vit-tiny",
)
ENGINES = ("local", "ray", "flower")
DEVICES = ("auto", "cpu", "cuda", "mps")
# fmt: off
SETTINGS = (
    "method", "arguments", "data", "partition", "clients", "cohort", "probability", "schedule", "durations",
    "availability", "sampling", "failures", "rounds", "stop_after", "seed", "model", "init", "frozen", "weights",
    "augment", "holdout", "proxy", "task", "loss", "metrics", "goal", "target", "bound", "quarantine", "epsilon",
    "delta", "secure", "local", "engine", "output",
)
# fmt: on
PARTITIONS = ("iid", "dirichlet:0.1", "classes:2", "natural")


def methods() -> list[str]:
    """The algorithms, ours, each of which is a file, and those of plug-ins."""
    found = (Path(__file__).parents[1] / "algorithms").glob("[!_]*.py")
    return sorted(path.stem.replace("_", "-") for path in found) + _plugin_names("undrift.methods")


def models() -> list[str]:
    """The models, ours and those of plug-ins."""
    return [*MODELS, *_plugin_names("undrift.models")]


def data_sets() -> list[str]:
    """The data sets, ours and those of plug-ins."""
    return [*DATA, *_plugin_names("undrift.data")]


def has_plugins() -> bool:
    """Whether a package adds methods, blocks, models or data."""
    return any(plugins(f"undrift.{kind}") for kind in ("methods", "blocks", "models", "data"))


def _plugin_names(group: str) -> list[str]:
    """The names of plug-ins, which are not imported."""
    return [plugin.name for plugin in plugins(group)]


def check_spelling(method: str | None = None, data: str | None = None, model: str | None = None) -> None:
    """Refuse a misspelt name at once, before torch is imported; what is not a single word is left to its parser.

    Args:
        method: an algorithm or a composition.
        data: a data set, a path or a reference.
        model: a model or a reference.
    """
    if method is not None and method.endswith(".toml"):
        raise ValueError(f"{method} is a file, not a method; write --config {method}")
    for word, what, setting, known in (
        (method, "algorithm", "", methods),
        (data, "data set", "data: ", data_sets),
        (model, "model", "model: ", models),
    ):
        if word is None or not re.fullmatch(r"[A-Za-z][\w-]*", word) or os.path.exists(word):
            continue
        names = known()
        if normalize_name(word) not in map(normalize_name, names):
            raise ValueError(f"{setting}{unknown_name(what, word, names)}")


def completion(names: Sequence[str] | Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """A function for `autocompletion=` that offers these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in (names() if callable(names) else names) if name.startswith(incomplete)]

    return complete
