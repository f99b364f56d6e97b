"""Statistics of columns from sums over clients: no client's rows leave it, and the grouping changes no bit.

A mean takes two questions to every client: the largest magnitude of each column, then the exact sum of the values in
units of the next power of two (`ExactSum`: any order and grouping gives the same bits). A deviation takes two more. A
median is found by halving: 64 times each client counts its values up to a threshold. A mode needs each client's counts
of its different values.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.records.exact_sum import ExactSum

Rows = NDArray[np.float64]
"""A client's rows, one column for each number; NaN where a value is missing."""

_BLOCK = 256  # rows added at once
_SIGN = np.int64(-(2**63))


def exact_mean(clients: Sequence[Rows]) -> Rows:
    """The mean of each column over all clients' values, without those that are missing; 0 where all are.

    Args:
        clients: the rows of each client, with the same columns.

    Example:
        >>> rows = np.array([[0.1, 1e9], [0.2, np.nan], [0.3, 3e9]])
        >>> exact_mean([rows]).tolist() == exact_mean([rows[2:], rows[:1], rows[1:2]]).tolist()
        True
    """
    counts = np.sum([np.isfinite(own).sum(axis=0) for own in clients], axis=0)
    largest = np.max([np.abs(np.nan_to_num(own)).max(axis=0, initial=0.0) for own in clients], axis=0)
    unit = np.ldexp(1.0, np.frexp(largest)[1])
    total = ExactSum(len(unit))
    for own in clients:
        total.merge(_sum_rows(np.nan_to_num(own) / unit))
    return np.asarray(total.value().numpy() * unit / np.maximum(counts, 1), dtype=np.float64)


def exact_deviation(clients: Sequence[Rows], mean: Rows) -> Rows:
    """The standard deviation of each column over all clients' values; 1 where that is rounding alone.

    Args:
        clients: the rows of each client.
        mean: what `exact_mean` returned.

    Example:
        >>> rows = np.array([[1.0, 7.0], [3.0, 7.0]])
        >>> exact_deviation([rows], exact_mean([rows])).tolist()
        [1.0, 1.0]
    """
    std = np.sqrt(exact_mean([np.square(own - mean) for own in clients]))
    return no_rounding(std, mean)


def no_rounding(std: Rows, mean: Rows) -> Rows:
    """Deviations, with 1 in place of what rounding alone gives."""
    return np.where(std > 1e-12 * np.maximum(np.abs(mean), 1e-300), std, 1.0)


def exact_median(clients: Sequence[Rows]) -> Rows:
    """The median of each column over all clients' values, of two in the middle the smaller; 0 where all are missing.

    Args:
        clients: the rows of each client.

    Example:
        >>> exact_median([np.array([[5.0], [1.0]]), np.array([[np.nan], [3.0], [4.0]])]).tolist()
        [3.0]
    """
    keys = [np.where(np.isfinite(own), _to_keys(own), np.iinfo(np.int64).max) for own in clients]
    half = (np.sum([np.isfinite(own).sum(axis=0) for own in clients], axis=0) + 1) // 2
    low, high = (
        np.full(half.shape, bound) for bound in _to_keys(np.array([-np.finfo(float).max, np.finfo(float).max]))
    )
    for _ in range(64):
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, rounded down, without overflow
        enough = np.sum([(own <= middle).sum(axis=0) for own in keys], axis=0) >= half
        low, high = np.where(enough, low, np.minimum(middle + 1, high)), np.where(enough, middle, high)
    return np.where(half > 0, _from_keys(low), 0.0)


def exact_mode(clients: Sequence[Rows]) -> Rows:
    """The most frequent value of each column over all clients, of several the smallest; 0 where all are missing.

    Args:
        clients: the rows of each client.

    Example:
        >>> exact_mode([np.array([[5.0], [1.0]]), np.array([[5.0]])]).tolist()
        [5.0]
    """
    found = []
    for place in range(clients[0].shape[1]):
        counts: Counter[float] = Counter()
        for own in clients:
            values, times = np.unique(own[np.isfinite(own[:, place]), place], return_counts=True)
            counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
        found.append(min(counts, key=lambda value: (-counts[value], value), default=0.0))
    return np.array(found)


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
