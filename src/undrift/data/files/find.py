"""Finds a data set: in the package, in given files, the folders of UNDRIFT_DATA, Debian's folder, then on the hub."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import need
from undrift.data.files import digits
from undrift.data.files.formats import PARQUET, Columns, Format, formats, table
from undrift.data.files.known import INCLUDED, SOURCES, DataSource

DEBIAN = Path("/usr/share/datasets")

Where = str | Path | Mapping[str, str | Path | Sequence[str | Path]]


@dataclass(frozen=True)
class Location:
    """Where a data set is found.

    Args:
        where: its name to print.
        files: the files of each split, on which the content depends.
        read: returns the columns of a split.
        splits: the names of its training and its test split; the latter is empty if it has none.
    """

    where: str
    files: Mapping[str, Sequence[Path]]
    read: Callable[[str], Columns]
    splits: tuple[str, str]

    def named_files(self) -> list[tuple[str, Path]]:
        """The files, each with its split and the last three names of its path: those of an image's domain and class."""
        pairs = ((split, path) for split, paths in self.files.items() for path in paths)
        return [(f"{split} {'/'.join(path.parts[-3:])}", path) for split, path in pairs]


class Availability(NamedTuple):
    """Whether a data set can be loaded without a network, from where, and how to get it."""

    name: str
    available: bool
    where: str
    how_to_get: str


def find(source: DataSource, where: Where | None = None) -> Location | None:
    """The first place that has every split, without the hub; None if there is none.

    Args:
        source: the data set.
        where: a folder, or the Parquet files of each split; no other place is then searched.
    """
    if isinstance(where, Mapping):
        return _given_files(source, where)
    if source.name == INCLUDED and where is None:
        return Location("in the package", {"": [digits.FILE]}, digits.read_digits, source.splits)
    for folder in folders(source, where):
        for format in formats(source):
            for splits in format.splits or [source.splits]:
                files = {split: format.find(folder, split) for split in splits if split}
                if all(files.values()):
                    return _place(source, format, str(folder), files, splits)
    return None


def folders(source: DataSource, where: str | Path | None = None) -> list[Path]:
    """The folders to search, in this order."""
    if where is not None:
        return [Path(where) / source.place, Path(where)]
    named = [Path(part) for part in os.environ.get("UNDRIFT_DATA", "").split(os.pathsep) if part]
    return [folder / source.place for folder in [*named, DEBIAN]]


def fetch(source: DataSource, looked: Sequence[str | Path] = ()) -> Location:
    """The data set from the hub or its local cache.

    Args:
        source: the data set.
        looked: the places searched before, for the error.
    """
    if not source.hub:
        raise missing_error(source, looked)
    try:
        library = need("datasets")
        held = {split: library.load_dataset(source.hub, split=split) for split in source.splits if split}
    except (ImportError, OSError, ValueError, RuntimeError) as error:  # without a network the hub raises any of these
        raise missing_error(source, [*looked, f"hub {source.hub} ({type(error).__name__}: {error})"]) from error
    files = {name: [Path(part["filename"]) for part in split.cache_files] for name, split in held.items()}
    return Location(f"hub {source.hub}", files, lambda split: table(source, held[split]), source.splits)


def missing_error(source: DataSource, looked: Sequence[str | Path]) -> DataError:
    """The error for a missing data set."""
    unset = "" if os.environ.get("UNDRIFT_DATA") else " (UNDRIFT_DATA is not set)"
    places = "; ".join(str(place) for place in looked)
    return DataError(f"{source.name} was not found. Looked in: {places}{unset}. To get it: {source.how}")


def available() -> list[Availability]:
    """Every known data set and whether it is on this machine; nothing is loaded."""
    out = []
    for source in SOURCES.values():
        place = find(source)
        where = place.where if place else next((str(folder) for folder in _hub_folders(source) if folder.is_dir()), "")
        out.append(Availability(source.name, bool(where), where, source.how))
    return out


def _hub_folders(source: DataSource) -> Iterator[Path]:
    """The cache folders of the hub's libraries."""
    if source.hub:
        home = Path(os.environ.get("HF_HOME", Path("~/.cache/huggingface").expanduser()))
        yield Path(os.environ.get("HF_DATASETS_CACHE", home / "datasets")) / source.hub.replace("/", "___")
        yield Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / ("datasets--" + source.hub.replace("/", "--"))


def _place(
    source: DataSource, format: Format, where: str, files: Mapping[str, list[Path]], splits: tuple[str, str]
) -> Location:
    """A location on this machine."""
    return Location(where, files, lambda split: format.read(source, split, files[split]), splits)


def _given_files(source: DataSource, where: Mapping[str, Any]) -> Location:
    """Parquet files named by the caller."""
    wanted = [split for split in source.splits if split]
    if set(where) != set(wanted):
        raise ValueError(
            f"{source.name}: files must be given for {', '.join(wanted)}, got {', '.join(where) or 'none'}"
        )
    files = {
        split: [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
        for split, paths in where.items()
    }
    for path in (path for paths in files.values() for path in paths):
        if not path.is_file():
            raise DataError(f"{source.name}: {path} is not a file; give the path of one")
    names = ", ".join(str(path) for paths in files.values() for path in paths)
    return _place(source, PARQUET, names, files, source.splits)
