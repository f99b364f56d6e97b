"""How a data set may lie on a disk: Parquet, `save_to_disk`, idx, MedMNIST's archive, a plain text."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from undrift.data.dataset import DataError
from undrift.data.images import need, read_idx, read_npz
from undrift.data.sources import DataSource

Columns = Mapping[str, Any]


class Format(NamedTuple):
    """A way to store a data set: the files of a split in a folder (none if it is not there), and how to read them."""

    look: Callable[[Path, str], list[Path]]
    read: Callable[[DataSource, str, list[Path]], Columns]


def _look_parquet(folder: Path, split: str) -> list[Path]:
    """Files whose name has the split as a word of its own, in the folder or its `data`; or a folder of that name.

    It looks no deeper: below a folder of many data sets lie files of others.
    """
    word = re.compile(rf"(?<![a-z]){split}(?![a-z])")
    near = [*folder.glob("*.parquet"), *folder.glob("data/*.parquet")]
    return sorted(path for path in near if word.search(path.stem)) or sorted(folder.glob(f"{split}/*.parquet"))


def _read_parquet(source: DataSource, split: str, files: list[Path]) -> Columns:
    """The columns that are needed, of all files in the order of their names."""
    parquet, arrow = need("pyarrow.parquet"), need("pyarrow")
    names = parquet.read_schema(files[0]).names
    _demand(source, names, split)
    tables = [parquet.read_table(path, columns=list(source.columns)) for path in files]
    table = arrow.concat_tables(tables)
    return {name: table.column(name) for name in source.columns}


def _look_saved(folder: Path, split: str) -> list[Path]:
    """What `save_to_disk` wrote: a folder per split, or the split itself. `load_dataset` would misread it."""
    for inner in (folder / split, folder):
        if (inner / "state.json").is_file() and (inner == folder / split or split == "train"):
            return [inner / "state.json", *sorted(inner.glob("*.arrow"))]
    return []


def _read_saved(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return table(source, need("datasets").load_from_disk(str(files[0].parent)))


def table(source: DataSource, held: Any) -> Columns:
    """The columns of a data set of the `datasets` library, in the order of its rows."""
    _demand(source, held.column_names, str(held.split))
    table = held.select_columns(list(source.columns)).with_format("arrow")[:]
    return {name: table.column(name) for name in source.columns}


def _demand(source: DataSource, names: Sequence[str], split: str) -> None:
    missing = [name for name in source.columns if name not in names]
    if missing:
        raise DataError(f"{source.name}: {split} has no column {missing[0]!r}; found {', '.join(names)}")


def _look_idx(folder: Path, split: str) -> list[Path]:
    """The images and labels of a split in the files of MNIST and its kin, gzipped or not."""
    stem = {"test": "t10k"}.get(split, split)
    matches = [sorted(folder.glob(f"{stem}-{part}-ubyte*"))[:1] for part in ("images-idx3", "labels-idx1")]
    return matches[0] + matches[1] if all(matches) else []


def _read_idx(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return {source.inputs[0]: read_idx(files[0]), source.target: read_idx(files[1])}


def _look_npz(folder: Path, _split: str) -> list[Path]:
    return sorted(folder.glob("*mnist.npz"))[:1]


def _read_npz(source: DataSource, split: str, files: list[Path]) -> Columns:
    part = partial(read_npz, files[0])
    return {source.inputs[0]: part(f"{split}_images"), source.target: part(f"{split}_labels")}


def _look_text(folder: Path, _split: str) -> list[Path]:
    return [path for path in [folder / "input.txt"] if path.is_file()]


def _read_text(source: DataSource, _split: str, files: list[Path]) -> Columns:
    return {source.inputs[0]: files[0].read_text(encoding="utf-8")}


PARQUET = Format(_look_parquet, _read_parquet)
FORMATS = [
    Format(_look_saved, _read_saved),
    PARQUET,
    Format(_look_idx, _read_idx),
    Format(_look_npz, _read_npz),
    Format(_look_text, _read_text),
]
