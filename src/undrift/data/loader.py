"""The loader for every source: it finds the files, decodes them, caches the arrays and returns tensors."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.core.model.random import derive
from undrift.data.arrays import cache, text
from undrift.data.arrays.dataset import Arrays, Dataset, as_splits, cut, errors_of
from undrift.data.arrays.images import decode, rows
from undrift.data.files.find import Location, Where, fetch, find, folders, missing_error
from undrift.data.files.formats import Columns
from undrift.data.files.known import LABELS, DataSource, find_source
from undrift.data.own.labels import number_owners
from undrift.data.own.resolve import function_arguments, is_path, load_own, own_arguments
from undrift.data.partitions.schemes import ranks
from undrift.util.naming.binding import check_arguments
from undrift.util.naming.references import Reference

VERSION = 1
"""Part of every cache key: increase it when decoding changes."""

PER_OWNER = 0.9
"""The share of each owner's examples used for training if a source has no test split."""

_SHOWN: dict[str, Any] = {"resize": int, "mean": float | None, "std": float | None}
"""How images are given to models."""

_Column = Callable[[Columns], NDArray[Any]]
_Cut = Callable[[Arrays], Arrays]


def load(
    name: str, where: Where | None = None, *, hub: str | None = None, keep: bool = True, **arguments: Any
) -> Dataset:
    """Load a data set by name, offline first: given files, UNDRIFT_DATA, Debian's folder, the hub or its local cache.

    Or data of your own: a path, or a function by reference. A known name always stands for the known data set; write
    "./name" for a folder of that name.

    Args:
        name: one of `SOURCES`; a file or a folder; or `package.module:function`.
        where: for a known data set, a folder, or the Parquet files of each split; no other place is then searched.
        hub: another repository on the hub with the same columns; no other place is then searched.
        keep: store the decoded arrays in the cache folder.
        arguments: those that `arguments(name)` lists. Of images: `resize`, the height and width that models receive
            (0 leaves them as they are), `mean` in [0, 1] and `std`, for every channel, instead of those of the data.
            Of the windows of `shakespeare`: `stride`, the distance between their starts. Of your own data: the fields
            of `Reading`, such as `target` and `owner`; and the arguments of a function.

    Example:
        >>> digits = load("digits", resize=16)
        >>> digits.shape, len(digits.train), len(digits.test)
        ((1, 16, 16), 1438, 359)
    """
    named: dict[str, Any] = {
        key: ";".join(x) if isinstance(x, list | tuple) and all(isinstance(part, str) for part in x) else x
        for key, x in arguments.items()
    }
    check_arguments(f"load: {name!r}", argument_types(name), named)
    source = known_source(name)
    theirs = function_arguments(name) if source is None else {}
    shown = {key: named.pop(key) for key in _SHOWN if key in named and key not in theirs}
    if source is not None:
        dataset = _load_known(source, where, hub, keep, **named)
    elif where is not None or hub is not None:
        raise ValueError(f"load: where and hub are for known data sets, {name!r} is data of your own; leave them out")
    else:
        dataset = load_own(name, named, keep)
    dataset = _normalise(dataset, shown.get("mean"), shown.get("std"))
    return replace(dataset, resize=shown["resize"]) if "resize" in shown else dataset


def argument_types(name: str) -> dict[str, Any]:
    """The arguments that a data set, a path or a reference takes, with their types.

    Args:
        name: as `load` takes it.

    Example:
        >>> list(argument_types("cifar10")), list(argument_types("houses.csv"))[:3]
        (['stride', 'resize', 'mean', 'std'], ['resize', 'mean', 'std'])
    """
    if known_source(name) is not None:
        return {"stride": int, **_SHOWN}
    if is_path(name) or Reference.parse(name) is not None:
        return _SHOWN | own_arguments(name)
    find_source(name)  # raises
    return {}


def known_source(name: str) -> DataSource | None:
    """The source of a known data set; None if the name stands for data of the user, or for nothing."""
    try:
        return find_source(name)
    except ValueError:
        return None


def _load_known(source: DataSource, where: Where | None, hub: str | None, keep: bool, stride: int = 1) -> Dataset:
    """A known data set."""
    if where is not None and hub is not None:
        raise ValueError(f"load: give where or hub, not both, got {where!r} and {hub!r}")
    if source.make is not None:  # a plug-in
        if not isinstance(made := source.make(), Dataset):
            raise ValueError(f"{source.name}: the plug-in must return a Dataset, got {made!r:.80}")
        return made
    if stride != 1 and source.kind != "text":
        raise ValueError(f"load: stride is for windows of characters, {source.name} has images; leave it out")
    if hub is not None:
        source = replace(source, hub=hub)
    place = None if hub is not None else find(source, where)
    if place is None and isinstance(where, str | Path):
        raise missing_error(source, folders(source, where))
    if place is None:
        place = fetch(source, [] if hub is not None else folders(source))
    entry = cache.entry(source.name, place.named_files(), VERSION, source, stride)
    with errors_of(source.name):
        arrays, note = cache.read_or_make(entry, lambda: _FORMS[source.form](source, place, stride), keep)
    title = f"{source.title} ({note})" if note else source.title
    train, test = as_splits(arrays)
    about = (source.classes, source.mean, source.std, title, source.symbols)
    encoding = {"words": "words", "characters": "characters", "roles": "characters"}.get(source.form, "")
    vocabulary = text.ALPHABET if encoding == "characters" else ""
    more: dict[str, Any] = {"labels": LABELS.get(source.name, ()), "encoding": encoding, "vocabulary": vocabulary}
    return Dataset(source.name, source.kind, train, test, *about, owner=source.owner, **more)


def _normalise(dataset: Dataset, mean: float | None, std: float | None) -> Dataset:
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


def _images(source: DataSource, place: Location, _stride: int) -> tuple[Arrays, str]:
    """Decoded images of every split, and a note on how they differ from the original."""
    notes: list[str] = []

    def inputs(columns: Columns) -> NDArray[Any]:
        images, coding, scaled = decode(columns[source.inputs[0]], len(source.mean), source.side)
        notes.extend(["JPEG"] * (source.lossless and coding == "JPEG") + ["scaled"] * scaled)
        return images

    arrays = _splits(source, place, inputs)
    return arrays, ", ".join(dict.fromkeys(notes))


def _words(source: DataSource, place: Location, _stride: int) -> tuple[Arrays, str]:
    """Hashed words of every split."""

    def inputs(columns: Columns) -> NDArray[Any]:
        texts = zip(*(rows(columns[name]) for name in source.inputs), strict=True)
        return text.words(texts, len(columns[source.target]), source.symbols, source.length)

    return _splits(source, place, inputs), ""


def _characters(source: DataSource, place: Location, stride: int) -> tuple[Arrays, str]:
    """Texts of one length with the next character; a test set is split off in time, as in `text.windows`."""
    if stride != 1:
        raise ValueError(f"{source.name}: its windows are those of the files; leave out stride, got {stride}")

    def symbols(columns: Columns, name: str, length: int) -> NDArray[Any]:
        return text.characters(rows(columns[name]), len(columns[name]), length)

    arrays = _splits(
        source,
        place,
        lambda columns: symbols(columns, source.inputs[0], source.length),
        lambda columns: symbols(columns, source.target, 1).reshape(-1).astype(np.int64),
        partial(_hold_out_last, length=source.length),
    )
    return arrays, ""


def _roles(source: DataSource, place: Location, stride: int) -> tuple[Arrays, str]:
    """Windows of characters with their roles."""
    return text.windows(place.read("train")[source.inputs[0]], stride, source.length), ""


_FORMS: dict[str, Callable[[DataSource, Location, int], tuple[Arrays, str]]] = {
    "image": _images,
    "words": _words,
    "characters": _characters,
    "roles": _roles,
}


def _splits(
    source: DataSource, place: Location, inputs: _Column, targets: _Column | None = None, hold_out: _Cut | None = None
) -> Arrays:
    """Inputs, targets and owners of the splits, named "train-inputs" and so on.

    Args:
        source: the data set.
        place: where it is.
        inputs: the inputs of the columns of a split.
        targets: the same for the targets; None takes the numbers in the column.
        hold_out: splits a test set off the training set if there is none; None takes a tenth of each owner's examples.
    """
    arrays: dict[str, NDArray[Any]] = {}
    owners: dict[str, NDArray[Any]] = {}
    for name, split in zip(("train", "test"), place.splits, strict=True):
        if split:
            columns = place.read(split)
            arrays[f"{name}-inputs"] = inputs(columns)
            arrays[f"{name}-targets"] = targets(columns) if targets else _numbers(columns[source.target])
            if source.owner:
                owners[name] = np.asarray(list(rows(columns[source.owner])))
    if owners:
        arrays |= {f"{name}-owners": numbers for name, numbers in number_owners(owners, source.owner).items()}
    return arrays if place.splits[1] else (hold_out or _hold_out)(arrays)


def _numbers(column: Any) -> NDArray[np.int64]:
    """The classes; each may be a list with one element."""
    values = column if isinstance(column, np.ndarray) else list(rows(column))
    return np.asarray(values, dtype=np.int64).reshape(-1)


def _hold_out(arrays: Arrays) -> Arrays:
    """Split a test set off the training set: a tenth of each owner's examples, the same every time."""
    owners = arrays["train-owners"]
    rank = ranks(owners, np.random.default_rng(derive(0, "per owner")))
    train = rank < np.maximum(1, (PER_OWNER * np.bincount(owners)).astype(np.int64))[owners]
    return cut(arrays, train, ~train)


def _hold_out_last(arrays: Arrays, length: int) -> Arrays:
    """Split a test set off the training set: each owner's last windows, without a character of a training input.

    An owner with few windows has no test examples, but one window at least for training.
    """
    owners = arrays["train-owners"]
    rank = ranks(owners)
    bounds = np.array([text.window_bounds(max(int(count), 2), 1, length) for count in np.bincount(owners)])
    if not (test := rank >= bounds[owners, 1]).any():
        raise ValueError(
            f"no user has enough windows of {length} characters to be tested; use more users or LEAF's split"
        )
    return cut(arrays, rank < bounds[owners, 0], test)
