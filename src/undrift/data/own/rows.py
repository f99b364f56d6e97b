"""Columns of a table as rows of numbers, in training and for predictions.

A text is the position of its category; NaN stands for a missing value, or a text that is no category.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import need
from undrift.data.arrays.preprocess import CODES, ONE_HOT, InputColumn, Inputs, Preprocess
from undrift.data.own.statistics import (
    Ask,
    Rows,
    all_binary,
    exact_deviation,
    exact_mean,
    exact_median,
    exact_mode,
    no_rounding,
)
from undrift.data.own.tables import Columns, is_encoded

CATEGORIES = (ONE_HOT, CODES, "none")
MISSING = ("", "mean", "median", "mode", "drop")
SCALES = ("both", "inputs", "none", "pooled")

MOST = 50
"""A column of texts is an input by default if it has at most so many different ones, each twice on average."""

INDEX = "numbers its rows"
_ROWS = 50  # a column that numbers fewer rows may be an input
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_FILLS = {"mean": exact_mean, "median": exact_median, "mode": exact_mode}


def is_text(column: Any) -> bool:
    """Whether a column has texts."""
    return isinstance(column, np.ndarray) and column.dtype.kind in "US" and column.ndim == 1


def why_left_out(column: Any, reading: Any) -> str:
    """Why a column of a table is no input by default; empty if it is one.

    Args:
        column: its values.
        reading: how the table is read.
    """
    if is_encoded(column) or column.dtype.kind not in "iufbUS":
        return "neither numbers nor texts"
    if is_missing(column).all():
        return "no values"
    if not is_text(column):
        return INDEX if reading.scale != "pooled" and _is_index(column) else ""
    kinds = np.unique(np.asarray(column)).tolist()
    if reading.categories == "none":
        return "texts"
    if len(kinds) <= min(MOST, len(column) // 2):
        return ""
    odd = odd_text(kinds)
    return f"{len(kinds):,} different texts" + (f"; {odd!r} is no number" if odd else "")


def odd_text(texts: Sequence[str]) -> str:
    """The first of some texts that is no number, if most of them are numbers; else empty.

    Args:
        texts: the different texts of a column.

    Example:
        >>> odd_text(["31", "4.5", "?"]), odd_text(["f", "m"]), odd_text(["1", "2"])
        ('?', '', '')
    """
    odd = [text for text in texts if text and not _NUMBER.fullmatch(text.strip())]
    return odd[0] if 2 * len(odd) < len(texts) and odd else ""


def _is_index(column: NDArray[Any]) -> bool:
    """Whether whole numbers grow by one from row to row, as an identifier does; of a few rows that may be chance."""
    values = np.asarray(column)
    return len(values) >= _ROWS and column.dtype.kind in "iu" and bool((np.diff(values) == 1).all())


def input_columns(splits: Mapping[str, Columns], names: Sequence[str], reading: Any) -> tuple[InputColumn, ...]:
    """The columns that models receive, with the categories of texts over all splits.

    Args:
        splits: the columns of each split.
        names: of the inputs, in their order.
        reading: `categories` and `missing`: without a way to fill, an empty text is a category of its own.
    """
    found = []
    for name in names:
        texts = [np.asarray(columns[name]).astype(str) for columns in splits.values() if is_text(columns[name])]
        if reading.categories == "none" or not texts:
            found.append(InputColumn(name))
            continue
        values = np.unique(np.concatenate(texts)).tolist()
        found.append(InputColumn(name, tuple(x for x in values if x or not reading.missing)))
    return tuple(found)


def as_rows(columns: Columns, wanted: Sequence[InputColumn], split: str = "") -> Rows:
    """The wanted columns as rows of numbers: a text is the position of its category, NaN is missing or unknown.

    Args:
        columns: the columns of a table.
        wanted: which of them.
        split: what to call the table in errors.
    """
    of = f" of {split}" if split else ""
    absent = [one.name for one in wanted if one.name not in columns]
    if absent:
        raise DataError(f"the table{of} has no column {absent[0]!r}; found {', '.join(map(str, columns))}")
    numbers = [
        _positions(columns[x.name], x) if x.categories else _numbers(columns[x.name], x.name, of) for x in wanted
    ]
    return np.column_stack(numbers)


def _positions(column: Any, wanted: InputColumn) -> Rows:
    """The position of each text among the categories."""
    values = np.where(is_missing(column), "", np.asarray(column).astype(str))
    order = {text: place for place, text in enumerate(wanted.categories)}
    kinds, inverse = np.unique(values, return_inverse=True)
    return np.array([order.get(text, np.nan) for text in kinds.tolist()], np.float64)[inverse.reshape(-1)]


def _numbers(column: Any, name: str, of: str) -> Rows:
    """A column of numbers, NaN where one is missing."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb" and column.ndim > 2:
        raise DataError(
            f"{name!r}{of} is {column.dtype} of shape {list(column.shape)}: images must be uint8, "
            "from 0 to 255, and rows of numbers an array of two axes; convert it"
        )
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "iufb" or column.ndim != 1:
        raise DataError(f"column {name!r} is not a column of numbers; leave it out of inputs and targets")
    numbers = np.ma.filled(column.astype(np.float64), np.nan)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"column {name!r}{of} has {numbers[row]} in row {row}; fill or drop such rows")
    return numbers


def is_missing(column: Any) -> NDArray[np.bool_]:
    """Where a column has no value: masked, NaN or an empty text."""
    if not isinstance(column, np.ndarray) or column.ndim != 1:
        return np.zeros(len(column), bool)
    values, kind = np.ma.getdata(column), column.dtype.kind
    empty = np.isnan(values) if kind == "f" else values == values.dtype.type() if kind in "US" else np.False_
    return np.asarray(np.ma.getmaskarray(column) | empty)


def drop_rows(columns: Columns, names: Sequence[str], split: str) -> Columns:
    """The columns without the rows in which one of some columns has no value; raises if none is left.

    Args:
        columns: of a split.
        names: the columns that are used.
        split: what to call it in errors.
    """
    kept = ~np.any([is_missing(columns[name]) for name in names if name in columns], axis=0)
    if kept.all():
        return columns
    if not kept.any():
        raise DataError(f"every row of {split} has a missing value in {', '.join(names)}; give missing='mean'")
    return {name: _take(column, kept) for name, column in columns.items()}


def _take(column: Any, kept: NDArray[np.bool_]) -> Any:
    if isinstance(column, np.ndarray):
        return column[kept]
    return list(compress(column, kept)) if isinstance(column, list) else column.filter(need("pyarrow").array(kept))


def fit(clients: Sequence[Rows] | Ask, columns: tuple[InputColumn, ...], reading: Any) -> Preprocess:
    """How rows become a model's inputs: fill values, mean and deviation, from the training set.

    Mean and deviation are those of the values that are there; inputs that are 0 or 1 for a category stay so.

    Args:
        clients: the rows of each client's training set, as `as_rows` gives them, or how to ask them.
        columns: of the rows.
        reading: how the table is read.
    """
    if reading.missing in _FILLS:
        numbers, modes = _FILLS[reading.missing](clients), exact_mode(clients)
        columns = tuple(
            replace(one, fill=float(modes[place] if one.categories else numbers[place]))
            for place, one in enumerate(columns)
        )
    plain = Preprocess("table", (len(columns),), columns=columns, encoding=reading.categories)
    if reading.scale == "none":
        return plain
    if reading.scale == "pooled":
        (rows,) = cast(Sequence[Rows], clients)
        mean, std = rows.mean(axis=0), rows.std(axis=0)
        std = no_rounding(std, mean)
    else:
        mean = exact_mean(clients)
        std = exact_deviation(clients, mean)
    means, stds = list[float](), list[float]()
    for place, one in enumerate(columns):
        width = len(one.categories) if reading.categories == ONE_HOT else 0
        means += [0.0] * width or [float(mean[place])]
        stds += [1.0] * width or [float(std[place])]
    statistics = "pooled" if reading.scale == "pooled" else "exact"
    return replace(plain, mean=tuple(means), std=tuple(stds), statistics=statistics)


def apply(preprocess: Preprocess, rows: Rows) -> NDArray[np.float32]:
    """Rows as a model takes them.

    Args:
        preprocess: what `fit` returned.
        rows: as `as_rows` gives them.
    """
    found: NDArray[np.float32] = Inputs(preprocess)(torch.from_numpy(np.ascontiguousarray(rows))).numpy()
    return found


def fit_targets(clients: Sequence[Rows] | Ask) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the numbers to predict; none of targets that are all 0 or 1, which are labels.

    Args:
        clients: the targets of each client's training set, one column for each, or how to ask for them.
    """
    if all_binary(clients):
        return (), ()
    mean = exact_mean(clients)
    return tuple(mean.tolist()), tuple(exact_deviation(clients, mean).tolist())


def target_rows(targets: NDArray[Any]) -> Rows:
    """Numbers to predict as rows with one column for each."""
    return targets.astype(np.float64).reshape(len(targets), -1)


def scale_targets(arrays: dict[str, NDArray[Any]], mean: Sequence[float], std: Sequence[float]) -> None:
    """Subtract the mean of numbers to predict and divide by their deviation, in place.

    Args:
        arrays: of both splits, with numbers as targets.
        mean: of each; empty if they are not scaled.
        std: of each.
    """
    for key in ("train-targets", "test-targets") if mean else ():
        scaled = (target_rows(arrays[key]) - np.array(mean)) / np.array(std)
        arrays[key] = scaled.astype(np.float32).reshape(arrays[key].shape)
