"""From columns to a data set: which column is the target, which are inputs, which names the owner."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import Arrays, DataError, Dataset, as_splits, errors_of
from undrift.data.arrays.images import SizeError, channel_statistics, channels_last, decode, is_grey, open_image, rows
from undrift.data.own.labels import Column, is_few_whole, number_classes, number_owners
from undrift.data.own.split import hold_out
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
class About:
    """What is known about the arrays of a data set.

    Args:
        kind: "image", "text" or "table".
        classes: how many classes; 0 if targets are numbers.
        mean: the mean of each channel or column of the training set.
        std: the standard deviation of each.
        notes: what to add to the title.
    """

    kind: str
    classes: int
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def dataset(self, name: str, arrays: Arrays, title: str = "", **others: Any) -> Dataset:
        """The arrays as a data set, without copying.

        Args:
            name: its name, as the user wrote it.
            arrays: of both splits.
            title: its title, without notes; empty if that is the name.
            others: further arguments of `Dataset`.
        """
        title = f"{title or name} ({', '.join(self.notes)})" if self.notes else title or name
        mean, std = tuple(self.mean), tuple(self.std)
        return Dataset(name, self.kind, *as_splits(arrays), self.classes, mean, std, title, **others)


def make_arrays(splits: Mapping[str, Columns], reading: Reading, source: str) -> tuple[Arrays, About]:
    """The arrays of both splits; a test set is held out if there is none.

    Args:
        splits: the columns of "train" and perhaps "test".
        reading: which columns to take.
        source: what to call the data in errors.
    """
    with errors_of(source):
        train = splits["train"]
        targets, inputs, ignored = _choose(train, reading)
        _check_values(splits, [*targets, *([reading.owner] if reading.owner else [])], inputs)
        arrays: dict[str, NDArray[Any]] = {}
        numbers, classes = _targets(splits, targets, reading)
        arrays |= {f"{split}-targets": own for split, own in numbers.items()}
        if reading.owner:
            owners = {split: np.asarray(found[reading.owner]) for split, found in splits.items()}
            arrays |= {f"{split}-owners": own for split, own in number_owners(owners, reading.owner).items()}
        about = About("image" if is_encoded(train[inputs[0]]) else "table", classes)
        if about.kind == "image":
            images, scaled = _images(splits, inputs, reading.side)
            arrays |= images
            about.notes += ["scaled"] * scaled
        else:
            for split, found in splits.items():
                arrays[f"{split}-inputs"] = np.column_stack([_finite(found[n], n, split) for n in inputs])
        about.notes += [f"without {', '.join(ignored)}"] * bool(ignored)
        if "test" not in splits:
            arrays = hold_out(arrays, reading.test)
        if about.kind == "image":
            about.mean, about.std = channel_statistics(arrays["train-inputs"])
        else:
            about.mean, about.std = _standardise(arrays)
        return arrays, about


def _check_values(splits: Mapping[str, Columns], labels: list[str], inputs: list[str]) -> None:
    """Raise if a column that is used is not there, has no value in a row, or cannot be a target or an owner."""
    for split, found in splits.items():
        for name in (*labels, *inputs):
            if name not in found:
                raise DataError(f"{split} has no column {name!r}; found {', '.join(found)}")
            if isinstance(found[name], np.ma.MaskedArray) and (empty := np.flatnonzero(found[name].mask)).size:
                where = f"in row {empty[0]} of {split}"
                raise DataError(f"column {name!r} has no value {where}; fill it or leave such rows out")
    for name in labels:
        if isinstance(splits["train"][name], np.ndarray) and splits["train"][name].dtype.kind == "O":
            raise DataError(f"column {name!r} is neither numbers nor texts; convert it to one of these")


def _choose(train: Columns, reading: Reading) -> tuple[list[str], list[str], list[str]]:
    """The columns of targets and of inputs, and those that are neither and not left out by name."""
    names = list(train)
    targets = _names(reading.target) or _default_targets(names)
    if named := _names(reading.inputs):
        return targets, named, []
    archive = all(re.fullmatch(r"(inputs|targets|owners)\d*", name) for name in names)
    # An index of the rows, as pandas writes it, and the owners of an archive are no inputs
    no_input = r"|__index_level_\d+__|Unnamed: 0(\.\d+)*" + r"|owners\d*" * archive
    others = [name for name in names if re.fullmatch(no_input, name)]
    rest = [name for name in names if name not in (*targets, *others, reading.owner)]
    inputs = [name for name in rest if is_encoded(train[name])]
    if len(inputs) > 1:
        raise DataError(f"several columns have images ({', '.join(inputs)}); name one: inputs={inputs[0]!r}")
    inputs = inputs or [name for name in rest if train[name].dtype.kind in "iufb"]
    if not inputs:
        raise DataError(f"no column of numbers or images is left as input; found {', '.join(names)}")
    ignored = [name for name in (*rest, *others) if name not in inputs and (name != reading.owner or not name)]
    return targets, inputs, [name or "an index" for name in ignored]


def _default_targets(names: list[str]) -> list[str]:
    """The column to predict if none is named; an archive may have several, targets0 and so on."""
    if not names:
        raise DataError("it has no columns; a table has inputs and a column to predict")
    found = [name for name in names if name.lower() in TARGETS]
    several = [name for name in names if re.fullmatch(r"targets\d+", name)]
    if len(found) == 1 or several:
        return found or several
    which = " or ".join(found) if found else f"one of {', '.join(names)}"
    raise DataError(f"name the column to predict, {which}: target={(found or names)[0]!r}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(";") if name.strip()]


def _targets(splits: Mapping[str, Columns], names: list[str], reading: Reading) -> tuple[Column, int]:
    """The targets of each split, and how many classes there are, 0 for numbers."""
    columns = {split: [np.asarray(found[name]) for name in names] for split, found in splits.items()}
    firsts = [own[0] for own in columns.values()]
    floats = all(x.dtype.kind in "iuf" for x in firsts) and any(x.dtype.kind == "f" for x in firsts)
    if reading.classes is None and len(names) == 1 and floats and is_few_whole(np.concatenate(firsts)):
        columns, floats = {split: [own[0].astype(np.int64)] for split, own in columns.items()}, False
    if len(names) > 1 or reading.classes == 0 or (floats and reading.classes is None):
        numbers = {
            split: np.column_stack([_finite(x, n, split) for x, n in zip(own, names, strict=True)]).astype(np.float32)
            for split, own in columns.items()
        }
        return {split: own if len(names) > 1 else own[:, 0].copy() for split, own in numbers.items()}, 0
    return number_classes({split: own[0] for split, own in columns.items()}, names[0], reading.classes)


def _images(splits: Mapping[str, Columns], inputs: list[str], side: int) -> tuple[Arrays, bool]:
    """The decoded images of all splits, grey if all are, else in colour; and whether any was scaled."""
    if len(inputs) > 1:
        raise DataError(f"a column of images is the only input; leave {', '.join(inputs[1:])} out of inputs")
    columns = {split: found[inputs[0]] for split, found in splits.items()}
    channels = max(map(_channels, columns.values()))
    arrays, any_scaled = dict[str, NDArray[Any]](), False
    for split, column in columns.items():
        try:
            arrays[f"{split}-inputs"], _, scaled = decode(column, channels, side)
        except DataError as error:
            advice = "; to scale all images to one size give side=32" if isinstance(error, SizeError) else ""
            raise DataError(f"{split}: {error}{advice}") from None
        any_scaled |= scaled
    shapes = {array.shape[1:] for array in arrays.values()}
    if len(shapes) > 1:
        raise DataError(f"train and test have images of different sizes, {shapes}; give side=32")
    return arrays, any_scaled


def _channels(column: Any) -> int:
    """1 if all images are grey, else 3."""
    if isinstance(column, np.ndarray):
        return int(channels_last(column).shape[3])
    return 1 if all(is_grey(open_image(item, row, whole=False)) for row, item in enumerate(rows(column))) else 3


def _finite(column: Any, name: str, split: str) -> NDArray[np.float64]:
    """A column as numbers; raises if it has texts or a number that is not finite."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb" and column.ndim > 2:
        raise DataError(
            f"{name!r} of {split} is {column.dtype} of shape {list(column.shape)}: images must be uint8, "
            "from 0 to 255, and rows of numbers an array of two axes; convert it"
        )
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "iufb" or column.ndim != 1:
        raise DataError(f"column {name!r} is not a column of numbers; leave it out of inputs and targets")
    numbers = column.astype(np.float64)
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise DataError(f"column {name!r} of {split} has {numbers[row]} in row {row}; fill or drop such rows")
    return numbers


def _standardise(arrays: dict[str, NDArray[Any]]) -> tuple[list[float], list[float]]:
    """Subtract the mean of each column of the training set, and divide by its deviation if it has one; return both."""
    mean, std = arrays["train-inputs"].mean(axis=0), arrays["train-inputs"].std(axis=0)
    std = np.where(std > 1e-12 * np.maximum(np.abs(mean), 1e-300), std, 1.0)  # rounding alone is no deviation
    for split in ("train", "test"):
        arrays[f"{split}-inputs"] = ((arrays[f"{split}-inputs"] - mean) / std).astype(np.float32)
    return mean.tolist(), std.tolist()
