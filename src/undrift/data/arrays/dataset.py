"""A loaded data set: two splits as tensors in memory, and their properties."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from undrift.core.records.place import Place
from undrift.data.arrays.preprocess import InputColumn, Preprocess, image_scaling

Arrays = Mapping[str, NDArray[Any]]
"""The arrays of a data set: "train-inputs", "train-targets", perhaps "train-owners", and the same of "test"."""

LARGEST = 1024
"""The largest size in pixels that images can be resized to."""


class DataError(FileNotFoundError):
    """A data set is missing or its files are not as expected; the message lists where it was searched."""


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Errors about data that are raised inside begin with the name of the data.

    Args:
        name: what to call them.

    Example:
        >>> with errors_of("rows.csv"):
        ...     raise DataError("it has no rows")
        Traceback (most recent call last):
        undrift.data.arrays.dataset.DataError: rows.csv: it has no rows
    """
    try:
        yield
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


@dataclass(frozen=True, eq=False)
class Split:
    """A list of examples.

    Args:
        inputs: images as uint8 (examples, channels, height, width), tokens (examples, length), or the rows of a table
            as float32 (examples, columns).
        targets: the class of each example, int64; or numbers as float32 (examples,) or (examples, outputs).
        owners: the natural client of each example (writer, role), numbered from 0; None if there is none.
    """

    inputs: Tensor
    targets: Tensor
    owners: Tensor | None = None

    def __post_init__(self) -> None:
        for name, other in (("targets", self.targets), ("owners", self.owners)):
            if other is None:
                continue
            several = name == "targets" and other.is_floating_point()
            if (other.shape[:1] if several else other.shape) != self.inputs.shape[:1]:
                raise ValueError(
                    f"Split: {name} must be one number for each of {len(self.inputs)} inputs, got {list(other.shape)}"
                )

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and the official test set.

    Args:
        name: the name that `load` takes.
        kind: "image", "text" or "table".
        train: the training set, which is distributed over clients.
        test: the official test set.
        classes: how many classes the targets have; 0 if they are numbers, not classes.
        mean: the mean of each channel of the training images, in [0, 1]; or of each column of a table, which has been
            standardised with it; empty for text.
        std: the standard deviation of each channel or column.
        title: the name to print, with a note if the files are not the original ones.
        symbols: for text, how many different tokens there are.
        resize: height and width of the images that models receive; 0 leaves them as they are stored. The images in
            memory keep their size: a task resizes every batch.
        sha256: the hash of the content of data of your own, for the record of a run; empty for known data sets.
        owner: the column that named the owners; empty if there is none.
        labels: the names of the classes; empty if they have none but their numbers.
        targets: the columns that are predicted, if they have names.
        target_mean: the mean of each number to predict, in its own units; empty if targets are not scaled.
        target_std: the standard deviation of each.
        columns: of a table, the columns of the file that became inputs.
        encoding: how texts became numbers, see `Preprocess`.
        statistics: how mean and deviation were computed, see `Preprocess`.
        vocabulary: the characters of the tokens, for text.
        left_out: the columns that are no inputs, each with the reason.
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
    resize: int = 0
    sha256: str = ""
    owner: str = ""
    labels: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    target_mean: tuple[float, ...] = ()
    target_std: tuple[float, ...] = ()
    columns: tuple[InputColumn, ...] = ()
    encoding: str = ""
    statistics: str = ""
    vocabulary: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in ("image", "text", "table"):
            raise ValueError(f'Dataset: kind must be "image", "text" or "table", got {self.kind!r}')
        if not 0 <= self.resize <= LARGEST:
            raise ValueError(f"{self.name}: resize must be 1 to {LARGEST} pixels, or 0 for none, got {self.resize}")
        if self.resize and self.kind != "image":
            raise ValueError(f"{self.name}: only images can be resized, these are {self.kind}; leave out resize")
        for split in (self.train, self.test):
            if self.kind == "image" and (split.inputs.dtype != torch.uint8 or split.inputs.ndim != 4):
                raise ValueError(
                    f"{self.name}: images are uint8 (examples, channels, height, width), 0 to 255, got "
                    f"{split.inputs.dtype} {list(split.inputs.shape)}; convert them"
                )
            numbers = split.targets.is_floating_point()
            if (self.classes == 0) != numbers or not (numbers or split.targets.dtype == torch.int64):
                kind = "numbers (float32)" if self.classes == 0 else "classes (int64)"
                raise ValueError(
                    f"{self.name}: with classes={self.classes} targets are {kind}, got {split.targets.dtype}"
                )
            if (
                self.classes
                and len(split)
                and not 0 <= int(split.targets.min()) <= int(split.targets.max()) < self.classes
            ):
                span = f"{int(split.targets.min())} to {int(split.targets.max())}"
                raise ValueError(f"{self.name}: targets must be in [0, {self.classes}), got {span}")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input as models receive it: (channels, height, width), (length,) or (columns,)."""
        shape = tuple(self.train.inputs.shape[1:])
        return (shape[0], self.resize, self.resize) if self.resize else shape

    @property
    def outputs(self) -> int:
        """How many outputs a model needs: one for each class, or for each number to predict."""
        targets = self.train.targets
        return self.classes or (1 if targets.ndim == 1 else targets.shape[1])

    @property
    def preprocess(self) -> Preprocess:
        """What is done to an example before a model receives it."""
        own = {one.name: getattr(self, one.name) for one in fields(Preprocess) if one.name not in ("shape", "labels")}
        stored = (len(self.columns),) if self.columns else tuple(self.train.inputs.shape[1:])
        return Preprocess(shape=stored, labels=self.labels or tuple(map(str, range(self.classes))), **own)

    def placed(self, place: Place) -> "Dataset":
        """The same data with the training set at a place, or itself if that does not fit there.

        Args:
            place: of a worker.
        """
        train = self.train
        if not place.fits((train.inputs, train.targets)):
            return self
        moved = replace(train, inputs=place.to(train.inputs), targets=place.to(train.targets))
        return replace(self, train=moved)

    def scaling(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Scale and shift of ((x / 255) - mean) / std as one product and one sum, on a device, moved there once.

        Args:
            device: where the images are.
        """
        if device not in self._scalings:
            self._scalings[device] = Place(device).to(
                image_scaling(*torch.tensor([self.mean, self.std], dtype=torch.float64))
            )
        return self._scalings[device]

    @cached_property
    def _scalings(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}


def as_splits(arrays: Arrays) -> tuple[Split, Split]:
    """The training set and the test set of arrays, as tensors, without copying.

    Args:
        arrays: of both.
    """
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    train, test = (
        Split(tensors[f"{split}-inputs"], tensors[f"{split}-targets"], tensors.get(f"{split}-owners"))
        for split in ("train", "test")
    )
    return train, test


def cut(arrays: Arrays, train: NDArray[Any], test: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """A training set and a test set from the examples of a training set, in their order.

    Args:
        arrays: of the training set.
        train: whether each example is for training.
        test: whether it is for the test.
    """
    masks = {"train": train, "test": test}
    parts = [key.removeprefix("train-") for key in arrays]
    return {f"{split}-{part}": arrays[f"train-{part}"][mask] for split, mask in masks.items() for part in parts}
