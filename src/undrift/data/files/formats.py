"""The file formats of data sets: Parquet, `save_to_disk`, idx, MedMNIST's archive, a text file, LEAF, folders."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import need, read_idx, read_npz
from undrift.data.files.folders import TINY, find_domains, find_tiny, read_domains, read_tiny
from undrift.data.files.known import DataSource
from undrift.data.files.leaf import SPLITS, find_leaf, read_leaf

Columns = Mapping[str, Any]


class Format(NamedTuple):
    """A file format: `find` returns the files of a split in a folder (empty if there are none), `read` reads them.

    `splits` are the names of its splits, in the order of preference, if they are not the source's.
    """

    find: Callable[[Path, str], list[Path]]
    read: Callable[[DataSource, str, list[Path]], Columns]
    splits: tuple[tuple[str, str], ...] = ()


def _find_parquet(folder: Path, split: str) -> list[Path]:
    """Files with the split as a separate word in their name, in the folder or its `data`; or a folder of that name.

    Deeper folders are not searched: they may contain files of other data sets.
    """
    word = re.compile(rf"(?<![a-z]){split}(?![a-z])")
    near = [*folder.glob("*.parquet"), *folder.glob("data/*.parquet")]
    return sorted(path for path in near if word.search(path.stem)) or sorted(folder.glob(f"{split}/*.parquet"))


def _read_parquet(source: DataSource, split: str, files: list[Path]) -> Columns:
    """The columns that are needed, from all files in the order of their names."""
    parquet, arrow = need("pyarrow.parquet"), need("pyarrow")
    names = parquet.read_schema(files[0]).names
    _check_columns(source, names, split)
    tables = [parquet.read_table(path, columns=list(source.columns)) for path in files]
    table = arrow.concat_tables(tables)
    return {name: table.column(name) for name in source.columns}


def _find_saved(folder: Path, split: str) -> list[Path]:
    """Files written by `save_to_disk`: a folder per split, or the split itself. `load_dataset` does not read these."""
    for inner in (folder / split, folder):
        if (inner / "state.json").is_file() and (inner == folder / split or split == "train"):
            return [inner / "state.json", *sorted(inner.glob("*.arrow"))]
    return []


def _read_saved(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return table(source, need("datasets").load_from_disk(str(files[0].parent)))


def table(source: DataSource, held: Any) -> Columns:
    """The columns of a data set of the `datasets` library, in the order of its rows."""
    _check_columns(source, held.column_names, str(held.split))
    table = held.select_columns(list(source.columns)).with_format("arrow")[:]
    return {name: table.column(name) for name in source.columns}


def _check_columns(source: DataSource, names: Sequence[str], split: str) -> None:
    missing = [name for name in source.columns if name not in names]
    if missing:
        raise DataError(f"{split} has no column {missing[0]!r}; found {', '.join(names)}")


def _find_idx(folder: Path, split: str) -> list[Path]:
    """The images and labels of a split in MNIST-style files, gzipped or not."""
    stem = {"test": "t10k"}.get(split, split)
    matches = [sorted(folder.glob(f"{stem}-{part}-ubyte*"))[:1] for part in ("images-idx3", "labels-idx1")]
    return matches[0] + matches[1] if all(matches) else []


def _read_idx(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return {source.inputs[0]: read_idx(files[0]), source.target: read_idx(files[1])}


def _find_npz(folder: Path, _split: str) -> list[Path]:
    return sorted(folder.glob("*mnist.npz"))[:1]


def _read_npz(source: DataSource, split: str, files: list[Path]) -> Columns:
    part = partial(read_npz, files[0])
    return {source.inputs[0]: part(f"{split}_images"), source.target: part(f"{split}_labels")}


def _find_text(folder: Path, _split: str) -> list[Path]:
    return [path for path in [folder / "input.txt"] if path.is_file()]


def _read_text(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return {source.inputs[0]: files[0].read_text(encoding="utf-8")}


PARQUET = Format(_find_parquet, _read_parquet)
FORMATS = [
    Format(_find_saved, _read_saved),
    PARQUET,
    Format(_find_idx, _read_idx),
    Format(_find_npz, _read_npz),
    Format(_find_text, _read_text),
    Format(find_tiny, read_tiny, TINY),
]
OWNED = [Format(find_leaf, read_leaf, SPLITS), Format(find_domains, read_domains)]


def formats(source: DataSource) -> list[Format]:
    """The formats that a data set may have, in the order of preference; some need owners."""
    return [*FORMATS, *OWNED] if source.owner else FORMATS
