"""Data of people's own, wherever the name of a data set is taken: a path, or a function of theirs by reference."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_type_hints

from undrift.data import cache
from undrift.data.columns import Made, Reading, dataset, make
from undrift.data.dataset import Dataset
from undrift.data.given import convert
from undrift.data.own_files import find_files
from undrift.data.tables import SUFFIXES
from undrift.util.references import Reference

VERSION = 3
"""Part of every cache key: increase it when files are read in another way."""

_SCALAR = bool | int | float | str | None


def is_path(name: str) -> bool:
    """Whether a name that is not a known data set's is a path: it has a slash or a known suffix, or it exists.

    Example:
        >>> is_path("./mydata"), is_path("houses.csv"), is_path("cifar10")
        (True, True, False)
    """
    return "/" in name or name.lower().endswith(SUFFIXES) or Path(name).exists()


def own_arguments(name: str) -> dict[str, Any]:
    """The arguments of a path or a reference, with their types: those of `Reading`, and those of the function."""
    return get_type_hints(Reading) | function_arguments(name)


def function_arguments(name: str) -> dict[str, Any]:
    """The names of a function's arguments and their types; none for a path.

    Without an annotation any number or text is allowed.
    """
    reference = None if is_path(name) else Reference.parse(name)
    if reference is None:
        return {}
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    function = _function(reference)
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
    return {n: hints.get(n, _SCALAR) for n, p in signature(function).parameters.items() if p.kind in kinds}


def load_own(name: str, arguments: Mapping[str, Any], keep: bool = True) -> Dataset:
    """The data set in a path, or that a function returns.

    Args:
        name: a path, or `package.module:function`.
        arguments: fields of `Reading`, and arguments of the function, which come first.
        keep: store the arrays of files in the cache folder.
    """
    reference = None if is_path(name) else Reference.parse(name)
    if reference is None:
        return _from_files(name, _reading(name, arguments), keep)
    takes = function_arguments(name)
    given = {key: value for key, value in arguments.items() if key in takes}
    reading = _reading(name, {key: value for key, value in arguments.items() if key not in takes})
    found = convert(_function(reference)(**given), name, reading)
    digest = sha256(f"{reference.sha256()} {_content(found)}".encode()).hexdigest()
    return replace(found, name=name, sha256=digest)


def _from_files(name: str, reading: Reading, keep: bool) -> Dataset:
    """The data set in a path, from the cache or read and stored there."""
    found = find_files(name)
    path = found.root.resolve()
    entry = cache.entry(f"own-{path.stem}", found.named(), VERSION, str(path), reading)
    held = cache.read(entry) if keep else None
    if held is None:
        arrays, made = make(found.read(), reading, name)
        note = json.dumps({"made": asdict(made), "sha256": found.sha256()})
        held = (keep and cache.write(entry, arrays, note) and cache.read(entry)) or (arrays, note)
    about = json.loads(held[1])
    return dataset(name, path.name, held[0], Made(**about["made"]), reading.owner, about["sha256"])


def _reading(name: str, arguments: Mapping[str, Any]) -> Reading:
    """How the columns are read; an error names the data."""
    try:
        return Reading(**arguments)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _function(reference: Reference) -> Any:
    """The function of a reference."""
    found = reference.resolve()
    if not callable(found):
        raise ValueError(f"{reference}: data must be a function that returns a data set, got {type(found).__name__}")
    return found


def _content(found: Dataset) -> str:
    """The hash of all tensors."""
    digest = sha256()
    for split in (found.train, found.test):
        for tensor in (split.inputs, split.targets, split.owners):
            if tensor is not None:
                digest.update(f"{tensor.dtype} {list(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
