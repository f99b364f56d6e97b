"""Statistics of columns from sums over clients: no client's rows leave it, and the grouping changes no bit.

A mean takes two questions to every client: the largest magnitude of each column, then the exact sum of the values in
units of the next power of two (`ExactSum`: any order and grouping gives the same bits). A deviation takes two more. A
median takes eight: 256 times for each column a client counts its values up to a threshold. A mode needs each client's
counts of its different values.

`answer` is what a client computes. The statistics take the rows of clients that are here, or an `Ask`, which puts the
questions to clients elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.records.exact_sum import ExactSum

Rows: TypeAlias = NDArray[np.float64]
"""A client's rows, one column for each number; NaN where a value is missing."""

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

Ask: TypeAlias = Callable[[str, Arrays], Sequence[Arrays]]
"""Puts a question to every client, and returns their answers."""

_BLOCK = 256  # rows added at once
_SIGN = np.int64(-(2**63))
_DIGITS = 256  # thresholds of a question of a median


def answer(rows: Rows, question: str, given: Arrays) -> dict[str, NDArray[Any]]:
    """A client's answer to a question of a statistic.

    Args:
        rows: the client's.
        question: "range", "sum", "below" or "values"; or "binary", whether all values are 0 or 1.
        given: arrays that belong to the question; with `centre` it is about the squared distances from it.

    Example:
        >>> answer(np.array([[1.0], [-3.0]]), "range", {})["largest"].tolist()
        [3.0]
    """
    if question not in _ANSWERS:
        raise ValueError(f"question {question!r:.50} is not one of {', '.join(_ANSWERS)}")
    if "centre" in given:
        rows = np.square(rows - given["centre"])
    return _ANSWERS[question](rows, given)


def ask_here(clients: Sequence[Rows], question: str, given: Arrays) -> list[Arrays]:
    """The answers of clients whose rows are here.

    Args:
        clients: the rows of each.
        question: as `answer` takes it.
        given: arrays that belong to it.
    """
    return [answer(own, question, given) for own in clients]


def exact_mean(clients: Sequence[Rows] | Ask, centre: Rows | None = None) -> Rows:
    """The mean of each column over all clients' values, without those that are missing; 0 where all are.

    Args:
        clients: the rows of each client, with the same columns, or how to ask them.
        centre: if given, the mean of the squared distances from it.

    Example:
        >>> rows = np.array([[0.1, 1e9], [0.2, np.nan], [0.3, 3e9]])
        >>> exact_mean([rows]).tolist() == exact_mean([rows[2:], rows[:1], rows[1:2]]).tolist()
        True
    """
    ask, about = _asked(clients), {} if centre is None else {"centre": centre}
    ranges = ask("range", about)
    counts = np.sum([one["counts"] for one in ranges], axis=0)
    unit = np.ldexp(1.0, np.frexp(np.max([one["largest"] for one in ranges], axis=0))[1])
    total = ExactSum(len(unit))
    for one in ask("sum", {**about, "unit": unit}):
        total.merge(ExactSum.of(*(torch.from_numpy(one[part]) for part in ("coarse", "fine"))))
    return np.asarray(total.value().numpy() * unit / np.maximum(counts, 1), dtype=np.float64)


def exact_deviation(clients: Sequence[Rows] | Ask, mean: Rows) -> Rows:
    """The standard deviation of each column over all clients' values; 1 where that is rounding alone.

    Args:
        clients: the rows of each client, or how to ask them.
        mean: what `exact_mean` returned.

    Example:
        >>> rows = np.array([[1.0, 7.0], [3.0, 7.0]])
        >>> exact_deviation([rows], exact_mean([rows])).tolist()
        [1.0, 1.0]
    """
    return no_rounding(np.sqrt(exact_mean(clients, centre=mean)), mean)


def no_rounding(std: Rows, mean: Rows) -> Rows:
    """Deviations, with 1 in place of what rounding alone gives."""
    return np.where(std > 1e-12 * np.maximum(np.abs(mean), 1e-300), std, 1.0)


def exact_median(clients: Sequence[Rows] | Ask) -> Rows:
    """The median of each column over all clients' values, of two in the middle the smaller; 0 where all are missing.

    Args:
        clients: the rows of each client, or how to ask them.

    Example:
        >>> exact_median([np.array([[5.0], [1.0]]), np.array([[np.nan], [3.0], [4.0]])]).tolist()
        [3.0]
    """
    ask = _asked(clients)
    half = (np.sum([one["counts"] for one in ask("range", {})], axis=0) + 1) // 2
    found = np.zeros(half.shape, np.uint64)  # the key of the median, in the order of unsigned numbers, digit by digit
    for place in range(56, -8, -8):
        digits = np.arange(_DIGITS, dtype=np.uint64)[:, None] << np.uint64(place)
        last = np.uint64((1 << place) - 1)
        keys = (found | digits | last).view(np.int64) ^ _SIGN
        enough = np.sum([one["counts"] for one in ask("below", {"keys": keys})], axis=0) >= half
        found |= np.argmax(enough, axis=0).astype(np.uint64) << np.uint64(place)
    return np.where(half > 0, _from_keys(found.view(np.int64) ^ _SIGN), 0.0)


def exact_mode(clients: Sequence[Rows] | Ask) -> Rows:
    """The most frequent value of each column over all clients, of several the smallest; 0 where all are missing.

    Args:
        clients: the rows of each client, or how to ask them.

    Example:
        >>> exact_mode([np.array([[5.0], [1.0]]), np.array([[5.0]])]).tolist()
        [5.0]
    """
    answers = _asked(clients)("values", {})
    counts = [Counter[float]() for _ in answers[0]["widths"]]
    for one in answers:
        ends = np.cumsum(one["widths"])[:-1]
        parts = zip(np.split(one["values"], ends), np.split(one["counts"], ends), strict=True)
        for held, (values, times) in zip(counts, parts, strict=True):
            held.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
    return np.array([min(held, key=lambda value: (-held[value], value), default=0.0) for held in counts])


def all_binary(clients: Sequence[Rows] | Ask) -> bool:
    """Whether all values of all clients are 0 or 1.

    Args:
        clients: the rows of each client, or how to ask them.
    """
    return all(bool(one["binary"].all()) for one in _asked(clients)("binary", {}))


def _asked(clients: Sequence[Rows] | Ask) -> Ask:
    return clients if callable(clients) else partial(ask_here, clients)


def _range(rows: Rows, _given: Arrays) -> dict[str, NDArray[Any]]:
    """How many values each column has, and the largest magnitude."""
    largest = np.abs(np.nan_to_num(rows)).max(axis=0, initial=0.0)
    return {"counts": np.isfinite(rows).sum(axis=0).astype(np.int64), "largest": largest}


def _sum(rows: Rows, given: Arrays) -> dict[str, NDArray[Any]]:
    """The exact sum of each column in given units."""
    total = _sum_rows(np.nan_to_num(rows) / given["unit"])
    return {"coarse": total.coarse.numpy(), "fine": total.fine.numpy()}


def _below(rows: Rows, given: Arrays) -> dict[str, NDArray[Any]]:
    """How many values of each column are at most each threshold."""
    columns = zip(rows.T, given["keys"].T, strict=True)
    counts = [np.searchsorted(np.sort(_to_keys(own[np.isfinite(own)])), keys, "right") for own, keys in columns]
    return {"counts": np.stack(counts, axis=1).astype(np.int64)}


def _values(rows: Rows, _given: Arrays) -> dict[str, NDArray[Any]]:
    """The different values of each column, one column after the other, and how often each is there."""
    found = [np.unique(own[np.isfinite(own)], return_counts=True) for own in rows.T]
    values, counts = (np.concatenate(part) for part in zip(*found, strict=True))
    widths = np.array([len(own) for own, _ in found])
    return {"values": values, "counts": counts.astype(np.int64), "widths": widths}


def _binary(rows: Rows, _given: Arrays) -> dict[str, NDArray[Any]]:
    return {"binary": np.isin(rows, (0, 1)).all(keepdims=True).reshape(1)}


_ANSWERS = {"range": _range, "sum": _sum, "below": _below, "values": _values, "binary": _binary}


def _sum_rows(rows: Rows) -> ExactSum:
    """The exact sum of the rows of one client."""
    wide = ExactSum(_BLOCK * rows.shape[1])
    for start in range(0, len(rows), _BLOCK):
        block = np.zeros((_BLOCK, rows.shape[1]))
        block[: len(rows) - start] = rows[start : start + _BLOCK]
        wide.add(torch.from_numpy(block.reshape(-1)))
    wide.carry()
    total = ExactSum(rows.shape[1])
    for coarse, fine in wide.parts(rows.shape[1]):
        total.merge(ExactSum.of(coarse, fine))
    return total


def _to_keys(values: Any) -> NDArray[np.int64]:
    """Whole numbers in the order of floats."""
    bits = np.asarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, _SIGN - bits, bits)


def _from_keys(keys: NDArray[np.int64]) -> Rows:
    return np.where(keys < 0, _SIGN - keys, keys).view(np.float64)
