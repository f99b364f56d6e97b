"""The user's own data: a path, or a reference to a function, in place of the name of a known data set."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from hashlib import sha256
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from undrift.core.model.flat_model import bytes_of
from undrift.data.arrays import cache
from undrift.data.arrays.dataset import Arrays, DataError, Dataset, errors_of
from undrift.data.arrays.images import MODES, channel_statistics, check_depth, is_grey
from undrift.data.own.columns import BEFORE, About, Reading, make_arrays
from undrift.data.own.files import find_files, from_hub, read_prepared
from undrift.data.own.labels import number_classes, number_owners
from undrift.data.own.split import hold_out
from undrift.data.own.tables import SUFFIXES, check_lengths
from undrift.util.naming.binding import ANY, literal_types
from undrift.util.naming.references import Reference

FORMS = (
    "a Dataset, a DatasetDict, arrays (inputs, targets) or (inputs, targets, owners), or a pair (train, test) of such "
    "arrays or of torch datasets"
)

DEFAULT = Reading()


def convert(found: Any, name: str, reading: Reading = DEFAULT) -> Dataset:
    """A data set from any of `FORMS`.

    Images are bytes, or numbers from 0 to 1, which become bytes; rows of numbers and tokens are taken as they are.

    Args:
        found: what a function returned.
        name: what to call it.
        reading: which columns of a `DatasetDict` to take, and the share of the test set to hold out.

    Example:
        >>> inputs, targets = np.ones((20, 3)), np.arange(20) % 2
        >>> made = convert((inputs, targets), "mine")
        >>> made.kind, made.classes, len(made.train), len(made.test)
        ('table', 2, 18, 2)
    """
    if hasattr(found, "with_format") or (isinstance(found, Mapping) and any(map(_is_hub, found.values()))):
        arrays, about = make_arrays(from_hub(found, name), reading, name)
        return about.dataset(name, arrays, owner=reading.owner)
    with errors_of(name):
        if isinstance(found, Dataset):
            _check_idle(found, reading)
            return found
        if isinstance(found, tuple | list) and len(found) in (2, 3) and all(map(_is_array, found)):
            return _from_arrays({"train": _triple(found, "train")}, name, reading)
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise DataError(f"the function must return {FORMS}, got {type(found).__name__}")
        parts = zip(("train", "test"), found, strict=True)
        return _from_arrays({split: _triple(part, split) for split, part in parts}, name, reading)


def _check_idle(found: Dataset, reading: Reading) -> None:
    """Raise if a setting would have no effect on a data set."""
    effective = replace(reading, owner="" if reading.owner == found.owner else reading.owner)
    idle = [
        x.name
        for x in fields(Reading)
        if getattr(effective, x.name) not in (getattr(DEFAULT, x.name), BEFORE.get(x.name))
    ]
    if idle:
        raise DataError(
            f"the function returns a Dataset, on which {', '.join(idle)} has no effect; leave it out, and let the "
            "function make the data so"
        )


def _is_hub(value: Any) -> bool:
    return hasattr(value, "with_format")


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _triple(part: Any, split: str) -> dict[str, NDArray[Any]]:
    """Inputs, targets and perhaps owners of one split."""
    if hasattr(part, "tensors"):  # a TensorDataset
        part = part.tensors
    if isinstance(part, tuple | list) and 2 <= len(part) <= 3 and all(map(_is_array, part)):
        return {key: _as_writable(array) for key, array in zip(("inputs", "targets", "owners"), part, strict=False)}
    if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")) or isinstance(part, str | Mapping):
        raise DataError(f"{split}: {type(part).__name__} is none of: {FORMS}")
    rows = [part[i] for i in range(len(part))]
    odd = next((row for row in rows if not isinstance(row, tuple | list) or len(row) != 2), None)
    if odd is not None or not rows:
        raise DataError(f"{split}: an example must be a pair (input, target), got {type(odd).__name__}")
    try:
        return {key: _stack([row[i] for row in rows], split) for i, key in enumerate(("inputs", "targets"))}
    except ValueError as error:
        raise DataError(f"{split}: all inputs must have one shape ({error})") from None


def _as_writable(array: Tensor | NDArray[Any]) -> NDArray[Any]:
    """An array that may be written to: those of pandas are often views that may not, and are copied."""
    made = np.asarray(array)
    return made if made.flags.writeable else made.copy()


def _stack(values: list[Any], split: str) -> NDArray[Any]:
    """Inputs or targets as one array; pictures of Pillow are grey if all of them are, else in colour."""
    if not all(hasattr(value, "getbands") for value in values):
        return np.stack([np.asarray(value) for value in values])
    for number, picture in enumerate(values):
        check_depth(picture, f"{split}: picture {number}")
    channels = 1 if all(map(is_grey, values)) else 3
    arrays = [np.asarray(picture.convert(MODES[channels])) for picture in values]
    return np.stack(arrays if channels == 1 else [array.transpose(2, 0, 1) for array in arrays])


def _from_arrays(splits: dict[str, dict[str, NDArray[Any]]], name: str, reading: Reading) -> Dataset:
    """Arrays with their kind: by the shape and the type of the inputs."""
    for setting in ("target", "inputs", "side", "categories", "missing", "scale", "prepared"):
        if getattr(reading, setting) not in (getattr(DEFAULT, setting), BEFORE.get(setting)):
            raise DataError(f"{setting} is a setting of tables and image files, not of arrays; leave it out")
    if reading.owner:
        raise DataError(
            f"arrays have no column {reading.owner!r}; return the owners as (inputs, targets, owners), leave out "
            "owner and use the partition natural"
        )
    arrays: dict[str, NDArray[Any]] = {}
    for split, own in splits.items():
        check_lengths(own, split)
        arrays[f"{split}-inputs"] = _as_inputs(own["inputs"])
        try:
            arrays[f"{split}-targets"] = _as_targets(own["targets"], reading.classes)
        except (ValueError, TypeError) as error:
            raise DataError(f"targets of {split} must be numbers or texts ({error}); convert them") from None
        if "owners" in own:
            arrays[f"{split}-owners"] = own["owners"]
    _check(arrays)
    owners, targets = (
        {split: arrays[f"{split}-{part}"] for split in splits if f"{split}-{part}" in arrays}
        for part in ("owners", "targets")
    )
    if owners:
        arrays |= {f"{split}-owners": own for split, own in number_owners(owners, "owners").items()}
    labels: tuple[str, ...] = ()
    if targets["train"].dtype.kind != "f":
        numbers, labels = number_classes(targets, "targets", reading.classes)
        arrays |= {f"{split}-targets": own for split, own in numbers.items()}
    if "test" not in splits:
        arrays = hold_out(arrays, reading.test)
    train = arrays["train-inputs"]
    if train.ndim == 4:
        return About("image", labels, *channel_statistics(train)).dataset(name, arrays)
    if train.dtype.kind == "f":
        return About("table", labels).dataset(name, arrays)
    symbols = 1 + max(int(arrays[f"{split}-inputs"].max()) for split in ("train", "test"))
    return About("text", labels).dataset(name, arrays, symbols=symbols, encoding="tokens")


def _check(arrays: Arrays) -> None:
    """Raise if numbers are not finite, tokens are negative, or train and test differ in shape or type."""
    for key, array in arrays.items():
        split, _, part = key.partition("-")
        if part == "owners":
            continue
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise DataError(f"{part} of {split} are not finite in example {row}; fill or drop such examples")
        if part == "inputs" and array.dtype == np.int64 and array.min() < 0:
            raise DataError(f"tokens must be 0 or more, got {array.min()} in {split}; rows of numbers must be floats")
        first = arrays[f"train-{part}"]
        kinds = [x.dtype.kind if x.dtype.kind not in "US" else "text" for x in (first, array)]
        if array.shape[1:] != first.shape[1:] or kinds[0] != kinds[1]:
            raise DataError(
                f"{part} must be alike in train and test, got {first.dtype} {list(first.shape)} and {array.dtype} "
                f"{list(array.shape)}; convert one of them"
            )


def _as_targets(targets: NDArray[Any], classes: int | None = None) -> NDArray[Any]:
    """Classes as int64 or texts, or numbers as float32; `classes` as `Reading` has it decides which."""
    if targets.ndim == 2 and targets.shape[1] == 1 and targets.dtype.kind in "iuUS":
        targets = targets.reshape(-1)
    if targets.dtype.kind in "US" and targets.ndim == 1 and classes != 0:
        return targets
    if classes and targets.dtype.kind == "f" and targets.ndim == 1 and (targets == np.rint(targets)).all():
        return targets.astype(np.int64)
    if classes == 0 or targets.dtype.kind == "f" or targets.ndim > 1:
        return targets.astype(np.float32)
    return targets.astype(np.int64)


def _as_inputs(inputs: NDArray[Any]) -> NDArray[Any]:
    """Images as bytes (examples, channels, height, width), rows as float32, tokens as int64."""
    images = inputs.ndim == 4 or (inputs.ndim == 3 and inputs.dtype == np.uint8)
    if images:
        inputs = inputs if inputs.ndim == 4 else inputs[:, None]
        if inputs.dtype.kind == "f":
            if not 0 <= inputs.min() <= inputs.max() <= 1:
                span = f"{inputs.min():.3g} to {inputs.max():.3g}"
                raise DataError(f"images must be bytes or numbers from 0 to 1, got {span}; leave out Normalize")
            inputs = np.rint(255 * inputs)
        elif inputs.dtype != np.uint8 and inputs.size and not 0 <= inputs.min() <= inputs.max() <= 255:
            span = f"{inputs.min()} to {inputs.max()}"
            raise DataError(f"images of whole numbers must be in 0 to 255, got {span}; scale them to 0 to 1")
        if inputs.shape[1] not in (1, 3) and inputs.shape[3] in (1, 3):
            inputs = inputs.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(inputs.astype(np.uint8))
    if inputs.ndim == 2 and inputs.dtype.kind in "iu":
        return inputs.astype(np.int64)
    if inputs.ndim == 2 and inputs.dtype.kind == "f":
        return inputs.astype(np.float32)
    raise DataError(
        f"inputs must be images (examples, channels, height, width), rows of numbers or tokens (examples, "
        f"length), got {inputs.dtype} of shape {list(inputs.shape)}"
    )


VERSION = 4
"""Part of every cache key: increase it when files are read in another way."""


_SCALAR = bool | int | float | str | None


def is_path(name: str) -> bool:
    """Whether a name that is not a known data set's is a path: it has a slash or a known suffix, or it exists.

    Example:
        >>> is_path("./mydata"), is_path("houses.csv"), is_path("cifar10")
        (True, True, False)
    """
    return "/" in name or name.lower().endswith(SUFFIXES) or os.path.exists(name)


def own_arguments(name: str) -> dict[str, Any]:
    """The arguments of a path or a reference, with their types: those of `Reading`, and those of the function."""
    return get_type_hints(Reading) | function_arguments(name)


def function_arguments(name: str) -> dict[str, Any]:
    """The names of a function's arguments and their types, any number or text without one; none for a path."""
    reference = None if is_path(name) else Reference.parse(name)
    known = {} if reference is None else literal_types(_resolve_function(reference))
    return {key: _SCALAR if hint is Any else hint for key, hint in known.items() if key != ANY}


def load_own(name: str, arguments: Mapping[str, Any], keep: bool = True) -> Dataset:
    """The data set in a path, or that a function returns.

    Args:
        name: a path, or `package.module:function`.
        arguments: fields of `Reading`, and arguments of the function, which come first.
        keep: store the arrays of files in the cache folder.
    """
    reference = None if is_path(name) else Reference.parse(name)
    if reference is None:
        return _from_files(name, _make_reading(name, arguments), keep)
    takes = function_arguments(name)
    given = {key: value for key, value in arguments.items() if key in takes}
    reading = _make_reading(name, {key: value for key, value in arguments.items() if key not in takes})
    found = convert(_resolve_function(reference)(**given), name, reading)
    digest = sha256(f"{reference.sha256()} {_hash_content(found)}".encode()).hexdigest()
    return replace(found, name=name, sha256=digest)


def _from_files(name: str, reading: Reading, keep: bool) -> Dataset:
    """The data set in a path, from the cache or read and stored there."""
    found = find_files(name)
    path = found.root.resolve()
    made = read_prepared(reading.prepared) if reading.prepared else None
    entry = cache.entry(f"own-{path.stem}", found.named_files(), VERSION, str(path), reading, *([made] if made else []))

    def read() -> tuple[Arrays, str]:
        arrays, about = make_arrays(found.read(), reading, name, made)
        digest = found.sha256() if made is None else sha256(f"{found.sha256()} {made}".encode()).hexdigest()
        return arrays, json.dumps({"made": asdict(about), "sha256": digest})

    arrays, note = cache.read_or_make(entry, read, keep, replaces=True)
    known = json.loads(note)
    return About(**known["made"]).dataset(name, arrays, path.name, owner=reading.owner, sha256=known["sha256"])


def _make_reading(name: str, arguments: Mapping[str, Any]) -> Reading:
    """How the columns are read; an error names the data."""
    try:
        return Reading(**arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _resolve_function(reference: Reference) -> Any:
    """The function of a reference."""
    found = reference.resolve()
    if not callable(found):
        raise ValueError(f"{reference}: data must be a function that returns a data set, got {type(found).__name__}")
    return found


def _hash_content(found: Dataset) -> str:
    """The hash of all tensors."""
    digest = sha256()
    for split in (found.train, found.test):
        for tensor in (split.inputs, split.targets, split.owners):
            if tensor is not None:
                digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
                digest.update(bytes_of(tensor))
    return digest.hexdigest()
