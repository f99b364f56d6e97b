"""From columns to a data set: which column is the target, which are inputs, which names the owner."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError, Dataset, Split
from undrift.data.arrays.images import SizeError, channel_statistics, channels_last, decode, is_grey, opened, rows
from undrift.data.own.labels import class_numbers, few_whole, joined, put
from undrift.data.own.split import Arrays, hold_out
from undrift.data.own.tables import Columns, is_encoded

TARGETS = ("label", "target", "class", "y", "labels", "targets")
"""The columns that may be the target if none is named."""


@dataclass(frozen=True)
class Reading:
    """How columns are read.

    Args:
        target: the column to predict; several, joined by ";", are numbers. Default: the one of `TARGETS` that exists.
        inputs: the columns that models receive, joined by ";". Default: the column of images, or else all other
            columns of numbers.
        owner: the column that names each example's client; empty if there is none.
        classes: how many classes there are; 0 if the target is a number to predict. None decides by the column: texts
            and whole numbers are classes, in sorted order, and numbers with a fraction are not.
        side: images are scaled to this height and width; 0 takes them as they are, of one size.
        test: the share of the examples that is held out as the test set if there is none.
    """

    target: str = ""
    inputs: str = ""
    owner: str = ""
    classes: int | None = None
    side: int = 0
    test: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.test < 1:
            raise ValueError(f"test must be a share of the examples between 0 and 1, got {self.test}")
        if self.side < 0 or (self.classes or 0) < 0:
            raise ValueError(f"side and classes must be 0 or more, got {self.side} and {self.classes}")


@dataclass
class Made:
    """Arrays named "train-inputs" and so on, and what is known about them.

    Args:
        kind: "image" or "table".
        classes: how many classes; 0 if targets are numbers.
        mean: the mean of each channel or column of the training set.
        std: the standard deviation of each.
        notes: what to add to the title.
    """

    kind: str
    classes: int
    mean: list[float]
    std: list[float]
    notes: list[str] = field(default_factory=list)


def make(splits: Mapping[str, Columns], reading: Reading, source: str) -> tuple[Arrays, Made]:
    """The arrays of both splits; a test set is held out if there is none.

    Args:
        splits: the columns of "train" and perhaps "test".
        reading: which columns to take.
        source: what to call the data in errors.
    """
    train = splits["train"]
    targets, inputs, ignored = _chosen(train, reading, source)
    needed = [*targets, *inputs, *([reading.owner] if reading.owner else [])]
    for split, found in splits.items():
        missing = next((name for name in needed if name not in found), None)
        if missing is not None:
            raise DataError(f"{source}: {split} has no column {missing!r}; found {', '.join(found)}")
        for name in needed:
            if isinstance(found[name], np.ma.MaskedArray) and (empty := np.flatnonzero(found[name].mask)).size:
                where = f"in row {empty[0]} of {split}"
                raise DataError(f"{source}: column {name!r} has no value {where}; fill it or leave such rows out")
    for name in [*targets, *([reading.owner] if reading.owner else [])]:
        if isinstance(train[name], np.ndarray) and train[name].dtype.kind == "O":
            raise DataError(f"{source}: column {name!r} is neither numbers nor texts; convert it to one of these")
    arrays: Arrays = {}
    classes = _targets(splits, targets, reading, source, arrays)
    if reading.owner:
        owners = {split: np.asarray(found[reading.owner]) for split, found in splits.items()}
        put(arrays, "owners", owners, np.unique(joined(owners, reading.owner, source), return_inverse=True)[1])
    images = is_encoded(train[inputs[0]])
    if images and len(inputs) > 1:
        raise DataError(f"{source}: a column of images is the only input; leave {', '.join(inputs[1:])} out of inputs")
    made = Made("image" if images else "table", classes, [], [])
    if images:
        _images(splits, inputs[0], reading.side, source, arrays, made)
    else:
        for split, found in splits.items():
            arrays[f"{split}-inputs"] = np.column_stack([_finite(found[n], n, split, source) for n in inputs])
    made.notes += [f"without {', '.join(ignored)}"] if ignored else []
    if "test" not in splits:
        arrays = hold_out(arrays, reading.test, source)
    if images:
        made.mean, made.std = channel_statistics(arrays["train-inputs"])
    else:
        _standardise(arrays, made)
    return arrays, made


def dataset(name: str, title: str, arrays: Mapping[str, NDArray[Any]], made: Made, owner: str, digest: str) -> Dataset:
    """The arrays as a data set, without copying.

    Args:
        name: its name, as the user wrote it.
        title: its title, without notes.
        arrays: as `make` returns them.
        made: the same.
        owner: the column of the owners, or an empty text.
        digest: the hash of the content.
    """
    tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
    train, test = (
        Split(tensors[f"{split}-inputs"], tensors[f"{split}-targets"], tensors.get(f"{split}-owners"))
        for split in ("train", "test")
    )
    title = f"{title} ({', '.join(made.notes)})" if made.notes else title
    mean, std = tuple(made.mean), tuple(made.std)
    return Dataset(name, made.kind, train, test, made.classes, mean, std, title, sha256=digest, owner=owner)


def _chosen(train: Columns, reading: Reading, source: str) -> tuple[list[str], list[str], list[str]]:
    """The columns of targets and of inputs, and those that are neither and not left out by name."""
    names = list(train)
    targets = _names(reading.target) or _default_targets(names, source)
    archive = all(re.fullmatch(r"(inputs|targets|owners)\d*", name) for name in names)
    # An index of the rows, as pandas writes it, and the owners of an archive are no inputs
    index = r"|__index_level_\d+__|Unnamed: 0(\.\d+)*"
    no_input = rf"{index}|owners\d*" if archive else index
    others = [name for name in names if re.fullmatch(no_input, name)]
    rest = [name for name in names if name not in (*targets, *others, reading.owner)]
    inputs = _names(reading.inputs) or [name for name in rest if is_encoded(train[name])]
    if not reading.inputs and len(inputs) > 1:
        raise DataError(f"{source}: several columns have images ({', '.join(inputs)}); name one: inputs={inputs[0]!r}")
    if reading.inputs:
        return targets, inputs, []
    inputs = inputs or [name for name in rest if train[name].dtype.kind in "iufb"]
    if not inputs:
        raise DataError(f"{source}: no column of numbers or images is left as input; found {', '.join(names)}")
    ignored = [name for name in (*rest, *others) if name not in inputs and (name != reading.owner or not name)]
    return targets, inputs, [name or "an index" for name in ignored]


def _default_targets(names: list[str], source: str) -> list[str]:
    """The column to predict if none is named; an archive may have several, targets0 and so on."""
    if not names:
        raise DataError(f"{source}: it has no columns; a table has inputs and a column to predict")
    found = [name for name in names if name.lower() in TARGETS]
    several = [name for name in names if re.fullmatch(r"targets\d+", name)]
    if len(found) == 1 or several:
        return found or several
    which = " or ".join(found) if found else f"one of {', '.join(names)}"
    raise DataError(f"{source}: name the column to predict, {which}: target={(found or names)[0]!r}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _targets(splits: Mapping[str, Columns], names: list[str], reading: Reading, source: str, arrays: Arrays) -> int:
    """Put the targets into the arrays; returns how many classes there are, 0 for numbers."""
    columns = {split: [np.asarray(found[name]) for name in names] for split, found in splits.items()}
    firsts = [own[0] for own in columns.values()]
    floats = all(x.dtype.kind in "iuf" for x in firsts) and any(x.dtype.kind == "f" for x in firsts)
    if reading.classes is None and len(names) == 1 and floats and few_whole(np.concatenate(firsts)):
        columns, floats = {split: [own[0].astype(np.int64)] for split, own in columns.items()}, False
    if len(names) > 1 or reading.classes == 0 or (floats and reading.classes is None):
        for split, own in columns.items():
            finite = [_finite(x, n, split, source).astype(np.float32) for x, n in zip(own, names, strict=True)]
            arrays[f"{split}-targets"] = np.column_stack(finite) if len(names) > 1 else finite[0]
        return 0
    single = {split: own[0] for split, own in columns.items()}
    numbers, classes = class_numbers(single, names[0], reading.classes, source)
    put(arrays, "targets", single, numbers)
    return classes


def _images(splits: Mapping[str, Columns], name: str, side: int, source: str, arrays: Arrays, made: Made) -> None:
    """Decode the images of all splits: grey if all are, else in colour."""
    channels = max(_channels(found[name]) for found in splits.values())
    for split, found in splits.items():
        try:
            images, _, scaled = decode(found[name], channels, side)
        except DataError as error:
            advice = "; to scale all images to one size give side=32" if isinstance(error, SizeError) else ""
            raise DataError(f"{source}: {split}: {error}{advice}") from None
        made.notes = ["scaled"] if scaled else made.notes
        arrays[f"{split}-inputs"] = images
    shapes = {array.shape[1:] for key, array in arrays.items() if key.endswith("inputs")}
    if len(shapes) > 1:
        raise DataError(f"{source}: train and test have images of different sizes, {shapes}; give side=32")


def _channels(column: Any) -> int:
    """1 if all images are grey, else 3."""
    if isinstance(column, np.ndarray):
        return int(channels_last(column).shape[3])
    return 1 if all(is_grey(opened(item, row, whole=False)) for row, item in enumerate(rows(column))) else 3


def _finite(column: Any, name: str, split: str, source: str) -> NDArray[np.float64]:
    """A column as numbers; raises if it has texts or a number that is not finite."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb" and column.ndim > 2:
        raise DataError(
            f"{source}: {name!r} of {split} is {column.dtype} of shape {list(column.shape)}: images must be uint8, "
            "from 0 to 255, and rows of numbers an array of two axes; convert it"
        )
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "iufb" or column.ndim != 1:
        raise DataError(f"{source}: column {name!r} is not a column of numbers; leave it out of inputs and targets")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"{source}: column {name!r} of {split} has {numbers[row]} in row {row}; fill or drop such rows")
    return numbers


def _standardise(arrays: Arrays, made: Made) -> None:
    """Subtract the mean of each column of the training set, and divide by its deviation if there is any."""
    mean, std = arrays["train-inputs"].mean(axis=0), arrays["train-inputs"].std(axis=0)
    std = np.where(std > 1e-12 * np.maximum(np.abs(mean), 1e-300), std, 1.0)  # rounding alone is no deviation
    for split in ("train", "test"):
        arrays[f"{split}-inputs"] = ((arrays[f"{split}-inputs"] - mean) / std).astype(np.float32)
    made.mean, made.std = mean.tolist(), std.tolist()
