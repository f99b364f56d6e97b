"""Files of tables as columns: CSV, Parquet, Arrow and NumPy archives, and data sets of the `datasets` library."""

import gzip
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import need, read_npz

Columns = Mapping[str, Any]
"""Name -> an array of numbers or texts, or encoded images as `undrift.data.arrays.images.decode` takes them."""

_ALIASES = {"x": "inputs", "images": "inputs", "y": "targets", "labels": "targets", "label": "targets"}


def read_tables(files: Sequence[Path]) -> Columns:
    """The columns of files with the same columns, one below the other."""
    arrow = need("pyarrow")
    tables = [_read(path) for path in files]
    names = tables[0].column_names
    for path, table in zip(files, tables, strict=True):
        if sorted(table.column_names) != sorted(names):
            raise DataError(
                f"{path}: its columns are {', '.join(table.column_names)}; {files[0]} has {', '.join(names)}"
            )
    try:
        whole = arrow.concat_tables([table.select(names) for table in tables], promote_options="permissive")
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise DataError(f"{files[0]} and the files beside it have columns of different types: {error}") from None
    if not whole.num_rows:
        raise DataError(f"{files[0]}: it has no rows; a table has one for each example")
    return columns(whole)


def _read(path: Path) -> Any:
    """The table of a file."""
    try:
        table = _READERS[suffix(path)](path)
        names = Counter(table.column_names)
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many kinds
        reason = str(error).partition("\n")[0][:200]
        raise DataError(f"{path}: it cannot be read as a {suffix(path)} file: {reason}") from None
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise DataError(f"{path}: the column {twice[0]!r} is there more than once; rename one of them")
    return table


def read_archive(path: Path) -> dict[str, Columns]:
    """The splits of a NumPy archive with arrays `inputs`, `targets` and perhaps `owners`, or `train_inputs` and so on.

    `x` and `images` stand for inputs, `y` and `labels` for targets; `x_train` is the same as `train_x`. A float array
    of inputs has one row for each example, an image is bytes.
    """
    splits: dict[str, dict[str, Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: it cannot be read as a {ARCHIVE} file: {error}") from None
    for name in names:
        words = name.split("_")
        split = next((word for word in words if word in ("train", "test")), "train")
        part = "_".join(word for word in words if word != split)
        part, found = _ALIASES.get(part, part), splits.setdefault(split, {})
        if part in found:
            raise DataError(f"{path}: {name} and another array both are the {part} of {split}; leave one out")
        found[part] = read_npz(path, name)
    for found in splits.values():
        if not {"inputs", "targets"} <= set(found) or set(found) - {"inputs", "targets", "owners"}:
            raise DataError(
                f"{path}: an archive has arrays inputs and targets, or x and y, and perhaps owners, of train and test; "
                f"found {', '.join(names)}"
            )
    if "train" not in splits:
        raise DataError(f"{path}: it has no training set; name its arrays train_inputs and train_targets")
    for split, found in splits.items():
        check_lengths(found, f"{path}: {split}")
    spread = {split: _spread(arrays) for split, arrays in splits.items()}
    wanted, *others = ({name for name in own if not name.startswith("owners")} for own in spread.values())
    if any(own != wanted for own in others):
        shapes = " and ".join(f"{list(own['inputs'].shape)}, {list(own['targets'].shape)}" for own in splits.values())
        raise DataError(f"{path}: inputs and targets must have the same columns in train and test, got shapes {shapes}")
    return spread


def check_lengths(arrays: Mapping[str, Any], source: str) -> None:
    """Raise unless every array of a split has the same number of examples, and some.

    Args:
        arrays: inputs, targets and perhaps owners.
        source: what to call the split in errors.
    """
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise DataError(f"{source} must have as many inputs as targets and owners, got {found}")
    if not all(lengths.values()):
        raise DataError(f"{source} has no examples; give some, or no test set")


def _spread(arrays: dict[str, Any]) -> Columns:
    """Rows of numbers as one column for each, and lists of targets likewise; images stay as they are."""
    out: dict[str, Any] = {}
    for name, array in arrays.items():
        flat = array.reshape(-1) if name == "targets" and array.ndim == 2 and array.shape[1] == 1 else array
        if flat.ndim == 2:
            out |= {f"{name}{number}": flat[:, number] for number in range(flat.shape[1])}
        else:
            out[name] = flat
    return out


def columns(table: Any) -> Columns:
    """The columns of an Arrow table as arrays; encoded images stay as they are, other types are empty objects.

    A column with missing values is a masked array: it is refused where it is used.

    Args:
        table: the table.
    """
    arrow, found = need("pyarrow"), dict[str, Any]()
    for name in table.column_names:
        column = table.column(name)
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if str(column.type) == "string_view":  # which few functions of Arrow take
            column = arrow.chunked_array([arrow.array(column.to_pylist(), "string")])
        elif arrow.types.is_decimal(column.type) or arrow.types.is_null(column.type):
            column = column.cast("float64")
        found[name] = column if is_encoded(column) else _array(column, arrow.types)
    return found


def is_encoded(column: Any) -> bool:
    """Whether a column has images: encoded, alone or with a path; files; or arrays of bytes."""
    if isinstance(column, np.ndarray):
        return column.dtype == np.uint8 and column.ndim >= 3
    if isinstance(column, list):
        return bool(column) and isinstance(column[0], dict | bytes)
    types, kind = need("pyarrow").types, column.type
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or (types.is_struct(kind) and "bytes" in [kind.field(i).name for i in range(kind.num_fields)])
    )


def _array(column: Any, types: Any) -> NDArray[Any]:
    """A column as an array, masked where values are missing."""
    kind = column.type
    text, boolean = types.is_string(kind) or types.is_large_string(kind), types.is_boolean(kind)
    if not (text or boolean or types.is_integer(kind) or types.is_floating(kind)):
        return np.empty(len(column), dtype=object)  # dates, lists: neither inputs nor targets
    filled = column.fill_null("" if text else False if boolean else 0) if column.null_count else column
    array: NDArray[Any] = np.asarray(filled.to_numpy(), dtype=str) if text else filled.to_numpy()
    return np.ma.MaskedArray(array, column.is_null().to_numpy()) if column.null_count else array


def suffix(path: Path) -> str:
    """The suffix by which a file's format is known; empty if it is not."""
    return next((ending for ending in SUFFIXES if path.name.lower().endswith(ending)), "")


def _csv(path: Path, delimiter: str = ",") -> Any:
    csv = need("pyarrow.csv")
    try:
        table = csv.read_csv(path, parse_options=csv.ParseOptions(delimiter=delimiter))
    except ValueError as error:
        _check_separator(path, delimiter)
        raise DataError(f"{path}: not a table whose first line has the column names ({error})") from error
    if len(table.column_names) == 1:
        _check_separator(path, delimiter)
    binary = next((field.name for field in table.schema if str(field.type) == "binary"), None)
    if binary is not None:
        raise DataError(f"{path}: column {binary!r} is not UTF-8; save the file as UTF-8")
    return table.rename_columns([name.strip() for name in table.column_names])


def _check_separator(path: Path, delimiter: str) -> None:
    """Raise if the first line has no separator but one of those that are not read."""
    with (gzip.open if path.name.lower().endswith(".gz") else open)(path, "rb") as file:
        first = file.readline().decode("utf-8-sig", "replace").strip()
    if delimiter in first or not any(sign in first for sign in ",;\t|"):
        return
    right, numbers = ("tabs", "") if delimiter == "\t" else ("commas", ", and write numbers as 20.5")
    raise DataError(f"{path}: its columns must be separated by {right}; its first line is {first!r:.80}{numbers}")


def _arrow(path: Path) -> Any:
    """An IPC file, which Feather's second version is, or a stream, as the `datasets` library writes it."""
    ipc, invalid = need("pyarrow.ipc"), need("pyarrow").ArrowInvalid
    try:
        return ipc.open_file(path).read_all()
    except invalid:
        with open(path, "rb") as file:
            return ipc.open_stream(file).read_all()


_READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _csv,
    ".csv.gz": _csv,
    ".tsv": lambda path: _csv(path, "\t"),
    ".parquet": lambda path: need("pyarrow.parquet").read_table(path),
    ".arrow": _arrow,
    ".feather": _arrow,
}

ARCHIVE = ".npz"
SUFFIXES = (*_READERS, ARCHIVE)
"""The suffixes of files that are read."""
