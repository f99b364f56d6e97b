"""What a loaded data set is: two splits of resident tensors, and what is known about them."""

from dataclasses import dataclass

from torch import Tensor


class DataError(FileNotFoundError):
    """A data set is missing or its files do not fit; the message says where was looked and how to get it."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples in a row.

    Args:
        inputs: images as uint8 (examples, channels, height, width), or tokens (examples, length).
        targets: the class of each example, int64.
        owners: the natural client of each example (writer, role), numbered from 0; None if there is none.
    """

    inputs: Tensor
    targets: Tensor
    owners: Tensor | None = None

    def __post_init__(self) -> None:
        for name, other in (("targets", self.targets), ("owners", self.owners)):
            if other is not None and other.shape != self.inputs.shape[:1]:
                raise ValueError(
                    f"Split: {name} must be one number for each of {len(self.inputs)} inputs, got {list(other.shape)}"
                )

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and the official test set.

    Args:
        name: as `load` takes it.
        kind: "image" or "text".
        train: what is dealt out to clients.
        test: the official test set.
        classes: how many classes the targets have.
        mean: of each channel of the training images, in [0, 1]; empty for text.
        std: the same for the standard deviation.
        title: what to print beside a figure; it says if the files are not the original ones.
        symbols: for text, how many different tokens there are.
    """

    name: str
    kind: str
    train: Split
    test: Split
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    title: str
    symbols: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("image", "text"):
            raise ValueError(f'Dataset: kind must be "image" or "text", got {self.kind!r}')
        for split in (self.train, self.test):
            if len(split) and not 0 <= int(split.targets.min()) <= int(split.targets.max()) < self.classes:
                span = f"{int(split.targets.min())} to {int(split.targets.max())}"
                raise ValueError(f"{self.name}: targets must be in [0, {self.classes}), got {span}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (channels, height, width) or (length,)."""
        return tuple(self.train.inputs.shape[1:])
