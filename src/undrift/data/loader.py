"""The loader for every source: it finds the files, decodes them, caches the arrays and returns tensors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from undrift.core.random import derive
from undrift.data import cache, text
from undrift.data.dataset import Dataset, Split
from undrift.data.formats import Columns
from undrift.data.images import decode, rows
from undrift.data.places import Place, Where, fetch, find, folders, missing
from undrift.data.sources import DataSource, find_source

VERSION = 1
"""Part of every cache key: increase it when decoding changes."""

PER_OWNER = 0.9
"""The share of each owner's examples used for training if a source has no test split."""

Made = tuple[dict[str, NDArray[Any]], str]


def load(
    name: str,
    where: Where | None = None,
    *,
    hub: str | None = None,
    stride: int = 1,
    keep: bool = True,
    resize: int = 0,
    mean: float | None = None,
    std: float | None = None,
) -> Dataset:
    """Load a data set by name, offline first: given files, UNDRIFT_DATA, Debian's folder, the hub or its local cache.

    Args:
        name: one of `SOURCES`.
        where: a folder, or the Parquet files of each split; no other place is then searched.
        hub: another repository on the hub with the same columns; no other place is then searched.
        stride: for windows of characters, the distance between their starts; 1 gives all of them.
        keep: store the decoded arrays in the cache folder.
        resize: height and width of the images that models receive; 0 leaves them as they are.
        mean: images are normalised with this mean, in [0, 1], in every channel; None takes that of the data.
        std: the same for the standard deviation.
    """
    source = find_source(name)
    if where is not None and hub is not None:
        raise ValueError(f"load: give where or hub, not both, got {where!r} and {hub!r}")
    if stride != 1 and source.kind != "text":
        raise ValueError(f"load: stride is for windows of characters, {name} has images; leave it out")
    if hub is not None:
        source = replace(source, hub=hub)
    place = None if hub is not None else find(source, where)
    if place is None and isinstance(where, str | Path):
        raise missing(source, folders(source, where))
    if place is None:
        place = fetch(source, [] if hub is not None else folders(source))
    dataset = _dataset(source, *_stored(source, place, stride, keep))
    return replace(_normalised(dataset, mean, std), resize=resize)


def _normalised(dataset: Dataset, mean: float | None, std: float | None) -> Dataset:
    """The data with another mean or standard deviation of all channels."""
    if dataset.kind != "image" and not mean is std is None:
        raise ValueError(
            f"{dataset.name}: only images are normalised, these are {dataset.kind}; leave out mean and std"
        )
    if mean is not None and not 0 <= mean <= 1:
        raise ValueError(f"{dataset.name}: mean must be in [0, 1], where 1 is white, got {mean}")
    if std is not None and not 0 < std < float("inf"):
        raise ValueError(f"{dataset.name}: std must be above 0 and finite, got {std}")
    means, stds = (
        own if given is None else (float(given),) * len(own)
        for given, own in ((mean, dataset.mean), (std, dataset.std))
    )
    return replace(dataset, mean=means, std=stds)


def _stored(source: DataSource, place: Place, stride: int, keep: bool) -> tuple[cache.Arrays, str]:
    """The arrays from the cache, or decoded and stored there."""
    entry = cache.entry(source.name, place.files, VERSION, source, stride)
    held = cache.read(entry) if keep else None
    if held is None:
        arrays, note = _FORMS[source.form](source, place, stride)
        held = (keep and cache.write(entry, arrays, note) and cache.read(entry)) or (arrays, note)
    return held


def _dataset(source: DataSource, arrays: cache.Arrays, note: str) -> Dataset:
    """The arrays as tensors, without copying."""
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    train, test = (
        Split(tensors[f"{split}-inputs"], tensors[f"{split}-targets"], tensors.get(f"{split}-owners"))
        for split in ("train", "test")
    )
    title = f"{source.title} ({note})" if note else source.title
    classes, symbols = source.classes, source.symbols
    return Dataset(source.name, source.kind, train, test, classes, source.mean, source.std, title, symbols)


def _images(source: DataSource, place: Place, _stride: int) -> Made:
    """Decoded images of every split; the note says how they differ from the original."""
    notes: list[str] = []

    def inputs(columns: Columns) -> NDArray[Any]:
        images, coding, scaled = decode(columns[source.inputs[0]], len(source.mean), source.side)
        notes.extend(["JPEG"] * (source.lossless and coding == "JPEG") + ["scaled"] * scaled)
        return images

    arrays = _splits(source, place, inputs)
    return arrays, ", ".join(dict.fromkeys(notes))


def _words(source: DataSource, place: Place, _stride: int) -> Made:
    """Hashed words of every split."""

    def inputs(columns: Columns) -> NDArray[Any]:
        texts = zip(*(rows(columns[name]) for name in source.inputs), strict=True)
        return text.words(texts, len(columns[source.target]), source.symbols, source.length)

    return _splits(source, place, inputs), ""


def _roles(source: DataSource, place: Place, stride: int) -> Made:
    """Windows of characters with their roles."""
    return text.windows(place.read("train")[source.inputs[0]], stride, source.length), ""


_FORMS: dict[str, Callable[[DataSource, Place, int], Made]] = {"image": _images, "words": _words, "roles": _roles}


def _splits(source: DataSource, place: Place, inputs: Callable[[Columns], NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inputs, targets and owners of the splits, named "train-inputs" and so on."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, split in zip(("train", "test"), source.splits, strict=True):
        if split:
            columns = place.read(split)
            arrays[f"{name}-inputs"] = inputs(columns)
            arrays[f"{name}-targets"] = _numbers(columns[source.target])
            if source.owner:
                arrays[f"{name}-owners"] = _owners(columns[source.owner])
    return arrays if source.splits[1] else _cut(arrays)


def _numbers(column: Any) -> NDArray[np.int64]:
    """The classes; each may be a list with one element."""
    values = column if isinstance(column, np.ndarray) else list(rows(column))
    return np.asarray(values, dtype=np.int64).reshape(-1)


def _owners(column: Any) -> NDArray[np.int64]:
    """The owners, numbered from 0 in the order of their names."""
    return np.unique(np.asarray(list(rows(column))), return_inverse=True)[1].astype(np.int64).reshape(-1)


def _cut(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Split a test set off the training set: a tenth of each owner's examples, the same every time."""
    owners = arrays["train-owners"]
    mixed = np.random.default_rng(derive(0, "per owner")).permutation(len(owners))
    order = mixed[np.argsort(owners[mixed], kind="stable")]
    counts = np.bincount(owners)
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    train = rank < np.maximum(1, (PER_OWNER * counts).astype(np.int64))[owners[order]]
    chosen = {"train": np.sort(order[train]), "test": np.sort(order[~train])}
    return {f"{s}-{p}": arrays[f"train-{p}"][chosen[s]] for s in chosen for p in ("inputs", "targets", "owners")}
