"""Classes and owners as numbers from 0, in the order of their sorted values over all splits."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError

Column = Mapping[str, NDArray[Any]]
"""The values of a column in each split."""

MANY = 20
"""With more different whole numbers than this, and fewer than two examples of each, a target is hardly a class."""


def number_classes(
    column: Column, name: str, classes: int | None
) -> tuple[dict[str, NDArray[np.int64]], tuple[str, ...]]:
    """The classes of each split, and their names.

    Args:
        column: the targets: texts or whole numbers.
        name: what to call them in errors.
        classes: how many there are; None counts the different values. Whole numbers from 0 below it stay as they are.

    Example:
        >>> number_classes({"train": np.array([7, 5, 7]), "test": np.array([5])}, "y", None)
        ({'train': array([1, 0, 1]), 'test': array([0])}, ('5', '7'))
    """
    whole = _join(column, name)
    if classes and whole.dtype.kind == "f" and (whole == np.rint(whole)).all():
        whole = whole.astype(np.int64)
    kinds, numbers = np.unique(whole, return_inverse=True)
    found = len(kinds)
    if not classes and whole.dtype.kind in "iu" and found > max(MANY, len(whole) // 2):
        raise DataError(
            f"column {name!r} has {found} different whole numbers in {len(whole)} rows; to predict a number give "
            f'classes=0, as in "data.csv(target={name!r}, classes=0)", to have that many classes give classes={found}'
        )
    if classes and whole.dtype.kind in "iu" and 0 <= whole.min() <= whole.max() < classes:
        return _per_split(whole, column), tuple(map(str, range(classes)))
    if classes and (found != classes or whole.dtype.kind == "f"):
        advice = "give classes=0 to predict numbers" if whole.dtype.kind == "f" else f"give classes={found}"
        raise DataError(
            f"with classes={classes} column {name!r} must have whole numbers in [0, {classes}), found {kinds[0]} to "
            f"{kinds[-1]}, {found} different values; {advice}"
        )
    return _per_split(numbers, column), tuple(map(str, kinds.astype(str).tolist()))


def find_classes(column: Column, name: str, labels: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """The classes of each split as their positions among classes that are known.

    Args:
        column: the targets: texts or whole numbers.
        name: what to call them in errors.
        labels: the names of the classes.

    Example:
        >>> find_classes({"train": np.array([7.0, 5.0])}, "y", ("5", "6", "7"))
        {'train': array([2, 0])}
    """
    whole = _join(column, name)
    if whole.dtype.kind == "f" and (whole == np.rint(whole)).all():
        whole = whole.astype(np.int64)
    order = {label: place for place, label in enumerate(labels)}
    kinds, numbers = np.unique(whole.astype(str), return_inverse=True)
    if unknown := [kind for kind in kinds.tolist() if kind not in order]:
        raise DataError(f"column {name!r} has {unknown[0]!r}, which is no class: these are {', '.join(labels)}")
    return _per_split(np.array([order[kind] for kind in kinds.tolist()])[numbers.reshape(-1)], column)


def number_owners(column: Column, name: str) -> dict[str, NDArray[np.int64]]:
    """The owners of each split.

    Args:
        column: their names: texts or numbers.
        name: what to call them in errors.

    Example:
        >>> number_owners({"train": np.array(["rome", "bonn"]), "test": np.array(["rome"])}, "site")
        {'train': array([1, 0]), 'test': array([1])}
    """
    return _per_split(np.unique(_join(column, name), return_inverse=True)[1], column)


def is_few_whole(column: NDArray[Any]) -> bool:
    """Whether numbers are a few whole numbers only: classes, as pandas writes them after a missing value.

    Args:
        column: the numbers.

    Example:
        >>> is_few_whole(np.array([0.0, 1.0, 0.0, 1.0])), is_few_whole(np.array([0.0, 0.5]))
        (True, False)
    """
    if not np.isfinite(column).all() or not (column == np.rint(column)).all():
        return False
    return len(np.unique(column)) <= min(MANY, len(column) // 2)


def _join(column: Column, name: str) -> NDArray[Any]:
    """The values of all splits, one after the other; raises if they are not of one type, or one is missing."""
    for split, values in column.items():
        kind = values.dtype.kind
        absent = np.isnan(values) if kind == "f" else values == values.dtype.type() if kind in "US" else []
        if (empty := np.flatnonzero(absent)).size:
            raise DataError(f"column {name!r} of {split} has no value in row {empty[0]}; fill it")
    if len({"i" if values.dtype.kind in "iu" else values.dtype.kind for values in column.values()}) > 1:
        found = " and ".join(f"{values.dtype} in {split}" for split, values in column.items())
        raise DataError(f"column {name!r} has different types, {found}; write it alike, as x1 instead of 1")
    return np.concatenate(list(column.values()))


def _per_split(numbers: NDArray[Any], column: Column) -> dict[str, NDArray[np.int64]]:
    """The numbers of all splits, cut at the splits' lengths."""
    ends = np.cumsum([len(values) for values in column.values()])[:-1]
    return dict(zip(column, np.split(numbers.reshape(-1).astype(np.int64), ends), strict=True))
