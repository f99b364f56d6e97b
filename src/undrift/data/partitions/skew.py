"""How the clients' data differ: in labels, in amounts, in inputs. Cheap probes, no model is trained.

Each number is 0 if the clients' data are random draws from one pool, and at most 1. Sampling alone makes small clients
differ, so what chance explains is subtracted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undrift.core.model.random import derive
from undrift.data.arrays.dataset import Dataset
from undrift.data.partitions.schemes import Indices

Numbers = NDArray[np.float64]

CLIENTS, EXAMPLES, PROJECTIONS, SHUFFLES = 50, 200, 8, 20
"""Limits of the probe of inputs: clients, examples of each, random projections, and shuffles that show chance."""


@dataclass(frozen=True)
class DataSkew:
    """How the clients' data differ.

    Args:
        label: the mean distance (total variation) of a client's class shares from the pool's, beyond chance; None if
            targets are not classes.
        quantity: the Gini coefficient of the clients' sizes: 0 if all are equal, near 1 if few have nearly everything.
        feature: the share of the inputs' variance within a class that lies between clients, beyond chance, for the
            statistic of the inputs in which it is largest; None if inputs are tokens.
        clients: how many clients there are.
    """

    label: float | None
    quantity: float
    feature: float | None
    clients: int


def measure_skew(dataset: Dataset, clients: Sequence[Indices], seed: int = 0) -> DataSkew:
    """Measure how the clients' data differ.

    Args:
        dataset: the data, as clients have them.
        clients: the indices of each client's training examples.
        seed: of the random projections and of the choice of clients and examples.
    """
    held = [np.asarray(own) for own in clients if len(own)]
    labels = dataset.train.targets.numpy() if dataset.classes > 1 else None
    sizes = np.array([len(own) for own in held], np.float64)
    label = (
        None
        if labels is None
        else label_skew(np.stack([np.bincount(labels[own], minlength=dataset.classes) for own in held]))
    )
    if dataset.kind == "text":
        return DataSkew(label, gini(sizes), None, len(held))
    draw = np.random.default_rng(derive(seed, "skew"))
    chosen = [held[i] for i in sorted(draw.permutation(len(held))[:CLIENTS])]
    chosen = [draw.permutation(own)[:EXAMPLES] for own in chosen]
    every = np.concatenate(chosen)
    owners = np.repeat(np.arange(len(chosen)), [len(own) for own in chosen])
    groups = np.zeros(len(every), np.int64) if labels is None else labels[every]
    found = statistics_of(dataset.train.inputs[torch.from_numpy(every)], draw)
    return DataSkew(label, gini(sizes), feature_skew(found, owners, groups, draw), len(held))


def label_skew(histogram: NDArray[np.integer]) -> float:
    """The mean total variation distance of the clients' class shares from the pool's, beyond chance.

    A client of n random examples has the expected distance sum_c sqrt(p_c (1 - p_c) / (2 pi n)), the half of the mean
    absolute deviations. It is subtracted, and the rest is measured in units of the largest possible rest.

    Args:
        histogram: how many examples of each class (column) each client (row) has.
    """
    sizes = histogram.sum(axis=1, keepdims=True)
    pool = histogram.sum(axis=0) / histogram.sum()
    distance = class_distances(histogram)
    chance = np.sqrt(pool * (1 - pool) / (2 * pi * sizes)).sum(axis=1)
    rest = np.mean(distance - chance) / max(1e-12, 1 - float(np.mean(chance)))
    return float(np.clip(rest, 0, 1))


def class_distances(histogram: NDArray[np.integer]) -> Numbers:
    """The distance (total variation) of each client's class shares from the pool's.

    Args:
        histogram: how many examples of each class (column) each client (row) has; no client is empty.
    """
    pool = histogram.sum(axis=0) / histogram.sum()
    distances: Numbers = np.abs(histogram / histogram.sum(axis=1, keepdims=True) - pool).sum(axis=1) / 2
    return distances


def gini(sizes: Numbers) -> float:
    """The Gini coefficient of positive numbers.

    Example:
        >>> gini(np.array([1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 6.0]))
        (0.0, 0.6666666666666666)
    """
    ranks = np.arange(1, len(sizes) + 1)
    total = sizes.sum()
    return float((2 * (ranks * np.sort(sizes)).sum() / total - len(sizes) - 1) / len(sizes))


def statistics_of(inputs: Tensor, draw: np.random.Generator) -> Numbers:
    """A few numbers of every input: of images the mean, spread and roughness of the channels; random projections.

    Roughness is the mean absolute difference of neighbouring pixels: noise raises it, blur lowers it.

    Args:
        inputs: images or rows of a table.
        draw: draws the projections.
    """
    x = inputs.to(torch.float32).numpy().astype(np.float64)
    flat = x.reshape(len(x), -1)
    parts = [flat @ draw.standard_normal((flat.shape[1], PROJECTIONS)) / flat.shape[1] ** 0.5]
    if x.ndim == 4:
        rough = [np.abs(np.diff(x, axis=axis)).mean(axis=(2, 3)) for axis in (2, 3)]
        parts += [x.mean(axis=(2, 3)), x.std(axis=(2, 3)), *rough]
    elif flat.shape[1] <= 64:
        parts.append(flat)
    return np.concatenate(parts, axis=1)


def feature_skew(values: Numbers, owners: Indices, groups: Indices, draw: np.random.Generator) -> float:
    """The share of the variance within groups that lies between clients, beyond chance, in the largest column.

    Chance is the same with clients' numbers shuffled within each group, the largest of `SHUFFLES` times.

    Args:
        values: statistics (columns) of examples (rows).
        owners: the client of each example, from 0.
        groups: the class of each example: clients with other classes differ in inputs for that reason alone.
        draw: shuffles.
    """
    order = np.argsort(groups, kind="stable")
    values, owners, groups = values[order], owners[order], groups[order]
    chance = 0.0
    for _ in range(SHUFFLES):
        mixed = owners.copy()
        for start, end in _spans(groups):
            mixed[start:end] = draw.permutation(mixed[start:end])
        chance = max(chance, float(_between(values, mixed, groups).max()))
    return max(0.0, (float(_between(values, owners, groups).max()) - chance) / max(1e-12, 1 - chance))


def _between(values: Numbers, owners: Indices, groups: Indices) -> Numbers:
    """The share of each column's variance within groups that clients' means explain."""
    places = np.unique(groups * (owners.max() + 1) + owners, return_inverse=True)[1]
    deviations = values - _means(values, groups - groups.min())
    explained = _means(deviations, places.reshape(-1))
    total = (deviations**2).sum(axis=0)
    shares: Numbers = np.divide((explained**2).sum(axis=0), total, out=np.zeros_like(total), where=total > 1e-12)
    return shares


def _means(values: Numbers, places: Indices) -> Numbers:
    """The mean of all rows with the same place, for every row."""
    sums = np.zeros((int(places.max()) + 1, values.shape[1]))
    np.add.at(sums, places, values)
    counts = np.bincount(places, minlength=len(sums))[:, None]
    means: Numbers = (sums / np.maximum(counts, 1))[places]
    return means


def _spans(groups: Indices) -> list[tuple[int, int]]:
    """The first and the last place of every group in a sorted list."""
    ends = np.flatnonzero(np.diff(groups, append=groups[-1] + 1)) + 1
    return list(zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True))
