"""Names for completion and help, without the modules that define them: those import torch. A test compares them."""

from collections.abc import Callable, Sequence
from pathlib import Path

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
    "small-mlp",
    "lstm",
    "variational-cnn",
    "densenet121",
    "vit-tiny",
)
FAMILIES = ("sharpness", "spectral", "drift", "server", "weights", "robust", "personal")
ENGINES = ("local", "ray", "flower")
PARTITIONS = ("iid", "dirichlet:0.1", "classes:2", "natural")


def methods() -> list[str]:
    """The algorithms, each of which is a file."""
    found = (Path(__file__).parents[1] / "algorithms").glob("[!_]*.py")
    return sorted(path.stem.replace("_", "-") for path in found)


def completing(names: Sequence[str] | Callable[[], Sequence[str]]) -> Callable[[str], list[str]]:
    """A function for `autocompletion=` that offers these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in (names() if callable(names) else names) if name.startswith(incomplete)]

    return complete
