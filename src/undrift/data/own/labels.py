"""Classes and owners as numbers from 0, in the order of their sorted values over all splits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError
from undrift.data.own.split import Arrays

MANY = 20
"""With more different whole numbers than this, and fewer than two examples of each, a target is hardly a class."""


def class_numbers(
    splits: Mapping[str, NDArray[Any]], name: str, classes: int | None, source: str
) -> tuple[NDArray[np.int64], int]:
    """The classes of all splits, one after the other, and how many there are.

    Args:
        splits: the targets of each split: texts or whole numbers.
        name: what to call them in errors.
        classes: how many there are; None counts the different values. Whole numbers from 0 below it stay as they are.
        source: what to call the data in errors.

    Example:
        >>> class_numbers({"train": np.array([7, 5, 7]), "test": np.array([5])}, "y", None, "")
        (array([1, 0, 1, 0]), 2)
    """
    whole = joined(splits, name, source)
    if classes and whole.dtype.kind == "f" and (whole == np.rint(whole)).all():
        whole = whole.astype(np.int64)
    kinds, numbers = np.unique(whole, return_inverse=True)
    numbers, found = numbers.reshape(-1).astype(np.int64), len(kinds)
    if not classes:
        if whole.dtype.kind in "iu" and found > max(MANY, len(whole) // 2):
            raise DataError(
                f"{source}: column {name!r} has {found} different whole numbers in {len(whole)} rows; to predict a "
                f"number give classes=0, to have that many classes give classes={found}"
            )
        return numbers, found
    if whole.dtype.kind in "iu" and 0 <= whole.min() <= whole.max() < classes:
        return whole.astype(np.int64), classes
    if found != classes or whole.dtype.kind == "f":
        advice = "give classes=0 to predict numbers" if whole.dtype.kind == "f" else f"give classes={found}"
        raise DataError(
            f"{source}: with classes={classes} column {name!r} must have whole numbers in [0, {classes}), found "
            f"{kinds[0]} to {kinds[-1]}, {found} different values; {advice}"
        )
    return numbers, found


def joined(splits: Mapping[str, NDArray[Any]], name: str, source: str) -> NDArray[Any]:
    """A column of classes or owners of all splits; raises if it is not of one type, or a value is missing.

    Args:
        splits: the column of each split.
        name: its name.
        source: what to call the data in errors.
    """
    for split, column in splits.items():
        absent = np.isnan(column) if column.dtype.kind == "f" else _blank(column)
        if (empty := np.flatnonzero(absent)).size:
            raise DataError(f"{source}: column {name!r} of {split} has no value in row {empty[0]}; fill it")
    if len({"i" if column.dtype.kind in "iu" else column.dtype.kind for column in splits.values()}) > 1:
        found = " and ".join(f"{column.dtype} in {split}" for split, column in splits.items())
        raise DataError(f"{source}: column {name!r} has different types, {found}; write it alike, as x1 instead of 1")
    return np.concatenate(list(splits.values()))


def _blank(column: NDArray[Any]) -> Any:
    """Whether each value is an empty text; numbers are not."""
    return column == (b"" if column.dtype.kind == "S" else "") if column.dtype.kind in "US" else np.zeros(len(column))


def few_whole(column: NDArray[Any]) -> bool:
    """Whether numbers are a few whole numbers only: classes, as pandas writes them after a missing value.

    Args:
        column: the numbers.

    Example:
        >>> few_whole(np.array([0.0, 1.0, 0.0, 1.0])), few_whole(np.array([0.0, 0.5]))
        (True, False)
    """
    if not np.isfinite(column).all() or not (column == np.rint(column)).all():
        return False
    return len(np.unique(column)) <= min(MANY, len(column) // 2)


def put(arrays: Arrays, part: str, splits: Mapping[str, NDArray[Any]], numbers: NDArray[Any]) -> None:
    """Cut numbers of all splits, one after the other, at the splits' lengths, and put them into the arrays.

    Args:
        arrays: where to put them.
        part: "targets" or "owners".
        splits: arrays with the length of each split.
        numbers: of all splits.
    """
    ends = np.cumsum([len(own) for own in splits.values()])[:-1]
    for split, own in zip(splits, np.split(numbers.reshape(-1).astype(np.int64), ends), strict=True):
        arrays[f"{split}-{part}"] = own
