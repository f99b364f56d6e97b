"""Files of the user's own data: a table, a folder with tables or images, or the output of `save_to_disk`.

They are read here, because `datasets.load_dataset` reads a file named train_val as both splits, keeps only the
class "test" if images have a class of that name, knows no owners, takes the text "NA" for a missing value, and writes a
second copy to disk.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from undrift.data.arrays.dataset import DataError
from undrift.data.arrays.images import need
from undrift.data.arrays.preprocess import Preprocess
from undrift.data.files.folders import SUFFIXES as IMAGES
from undrift.data.own.tables import ARCHIVE, SUFFIXES, Columns, columns, read_archive, read_tables, suffix

OTHERS = (".bmp", ".gif", ".tif", ".tiff", ".webp")  # images that are not read

TESTS = ("test", "validation", "valid", "val")
"""The names of a test split, in the order of preference."""

_PLACES = ("*", "data/*")  # of tables in a folder
_LIKE_A_SPLIT = re.compile(r"train|test|valid|val(?=s?$|set|data|im|split)", re.IGNORECASE)


@dataclass(frozen=True)
class OwnFiles:
    """The files of a data set.

    Args:
        root: the file or folder that the user named.
        files: all files that the content depends on.
        read: returns the columns of each split.
    """

    root: Path
    files: tuple[Path, ...]
    read: Callable[[], Mapping[str, Columns]]

    def named_files(self) -> list[tuple[str, Path]]:
        """The files, each with its path inside the folder, which decides its split, owner and class."""
        return [(str(path.relative_to(self.root)) if path != self.root else "", path) for path in self.files]

    def sha256(self) -> str:
        """The hash of the content and of the paths inside the folder, read piece by piece."""
        digest = sha256()
        for name, path in self.named_files():
            digest.update(f"{name}\0".encode())
            with open(path, "rb") as file:
                digest.update(file_digest(file, "sha256").digest())
        return digest.hexdigest()


def find_files(name: str) -> OwnFiles:
    """The files in a path; raises if there is no data set.

    Args:
        name: a file or a folder; a relative path is that of the working folder.
    """
    path = Path(name).expanduser()
    if path.is_file():
        if not suffix(path):
            raise DataError(
                f"{name}: files with {', '.join(SUFFIXES)} are read, not {path.suffix or 'without a suffix'}"
            )
        return _tables(path, {"train": [path]})
    if not path.is_dir():
        raise DataError(
            f"{name}: no such file or folder; relative paths start from the working directory, {Path.cwd()}; "
            "give an absolute path, or change to another directory"
        )
    for find in (_find_saved, _find_tables, _find_images):
        if (found := find(path)) is not None:
            return found
    raise DataError(
        f"{name}: no data set was recognised; it may have train and test files ({', '.join(SUFFIXES)}), one such file, "
        "images in train/<class>/ and test/<class>/ or in <class>/, or what datasets.save_to_disk writes"
    )


def _tables(root: Path, files: Mapping[str, list[Path]]) -> OwnFiles:
    """Tables, one or more for each split; an archive may have both splits."""
    every = [path for paths in files.values() for path in paths]
    if any(suffix(path) == ARCHIVE for path in every):
        if len(every) > 1:
            raise DataError(
                f"{root}: give one {ARCHIVE} file, with arrays train_inputs, train_targets, test_inputs, ..., or "
                "tables only"
            )
        return OwnFiles(root, tuple(every), lambda: read_archive(every[0]))
    return OwnFiles(root, tuple(every), lambda: {split: read_tables(paths) for split, paths in files.items()})


def _find_saved(folder: Path) -> OwnFiles | None:
    """What `save_to_disk` wrote: the splits of a `DatasetDict`, or one data set."""
    if not any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        return None
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".arrow", ".json"))
    return OwnFiles(folder, tuple(files), lambda: from_hub(need("datasets").load_from_disk(str(folder)), str(folder)))


def from_hub(held: Any, source: str) -> dict[str, Columns]:
    """The columns of a data set of the `datasets` library, or of the training and the test split of several.

    Args:
        held: a `Dataset`, or a `DatasetDict`.
        source: what to call it in errors.
    """
    parts = dict(held) if isinstance(held, Mapping) else {"train": held}
    test = next((name for name in TESTS if name in parts), None)
    if "train" not in parts:
        raise DataError(f"{source}: there must be a split train, found {', '.join(map(str, parts))}")
    chosen = {"train": parts["train"]} | ({"test": parts[test]} if test else {})
    return {split: columns(part.with_format("arrow")[:]) for split, part in chosen.items()}


def _find_tables(folder: Path) -> OwnFiles | None:
    """Tables with the split as a word in their names, in the folder or else its `data`; or the only table of both."""
    places = [[path for path in sorted(folder.glob(where)) if path.is_file() and suffix(path)] for where in _PLACES]
    for near in places:
        stems: dict[str, Path] = {}
        for path in near:
            other = stems.setdefault(path.name.lower().removesuffix(suffix(path)), path)
            if other is not path:
                raise DataError(
                    f"{folder}: {other.name} and {path.name} would be read as different rows; move one away"
                )
        splits = _by_word(near)
        if "train" in splits:
            return _tables(folder, splits)
    every = [path for near in places for path in near]
    if len(every) > 1:
        names = ", ".join(str(path.relative_to(folder)) for path in every[:5])
        raise DataError(f"{folder}: several data files ({names}); give the path of one, or name them train and test")
    return _tables(folder, {"train": every}) if every else None


def _by_word(paths: Sequence[Path]) -> dict[str, list[Path]]:
    """The files or folders of each split, by a word in their names; of several words for a test the first counts."""
    words: dict[str, list[Path]] = {}
    for path in paths:
        own = [w for w in ("train", *TESTS) if re.search(rf"(?<![a-z]){w}(?![a-z])", path.name, re.IGNORECASE)]
        if len(own) > 1 and own[0] == "train":
            raise DataError(f"{path}: its name has train and {own[1]}; rename it to have one of them")
        for word in own:
            words.setdefault(word, []).append(path)
    test = next((words[word] for word in TESTS if word in words), None)
    return ({"train": words["train"]} if "train" in words else {}) | ({"test": test} if test else {})


def _find_images(folder: Path) -> OwnFiles | None:
    """Images in `train/<class>/` and `test/<class>/`, or in `<class>/`; a folder above the classes names owners."""
    roots = _split_folders(folder)
    images = {split: _images(root) for split, root in roots.items()}
    if not images["train"]:
        return None
    every = tuple(path for paths in images.values() for path in paths)
    other = next((path for path in every if path.suffix.lower() not in IMAGES), None)
    if other is not None:
        raise DataError(f"{other}: images in folders are {', '.join(sorted(IMAGES))} files; convert it or move it away")
    if not images.get("test", True):
        raise DataError(f"{roots['test']}: there are no images; leave the folder out to hold examples of train out")
    return OwnFiles(folder, every, lambda: {split: _image_columns(roots[split], own) for split, own in images.items()})


def _split_folders(folder: Path) -> dict[str, Path]:
    """The folder of each split, by a word in its name, or the whole folder for training.

    Folders with images right in them are classes unless one is for training: "test" may be one, and "valley".
    """
    near = sorted(path for path in folder.glob("*") if path.is_dir() and not path.name.startswith("."))
    found = _by_word(near)
    for split, several in found.items():
        if len(several) > 1 and "train" in found:
            names = " and ".join(path.name for path in several)
            what = "training" if split == "train" else "the test"
            raise DataError(f"{folder}: several folders for {what}, {names}; put their images into one")
    for path in near:
        if not _by_word([path]) and _LIKE_A_SPLIT.match(path.name) and _above_classes(path):
            raise DataError(f"{path}: is this a split? name such folders train and test, or move it away")
    if "train" in found:
        return {split: paths[0] for split, paths in found.items()}
    if "test" in found and _above_classes(found["test"][0]):
        name = found["test"][0].name
        raise DataError(f"{folder}: there is a folder {name} and none for training; name that train, or move it away")
    return {"train": folder}


def _above_classes(folder: Path) -> bool:
    """Whether images are in folders of a folder, as those of a split are in its classes."""
    return any(path.parent != folder for path in _images(folder))


def _images(root: Path) -> list[Path]:
    """The image files below a folder, of formats that are read or not, sorted, without hidden ones."""
    files = (path for path in root.rglob("*") if path.suffix.lower() in (*IMAGES, *OTHERS))
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _image_columns(root: Path, files: list[Path]) -> Columns:
    """The columns `image`, `label` and, if there is a folder above the classes, `folder`."""
    parts = [path.relative_to(root).parts for path in files]
    odd = next((part for part in parts if len(part) not in (2, 3) or len(part) != len(parts[0])), None)
    if odd is not None:
        raise DataError(f"{root / Path(*odd)}: images must be in <class>/, or all of them in <owner>/<class>/")
    out: dict[str, object] = {
        "image": [{"path": str(path)} for path in files],
        "label": np.array([part[-2] for part in parts]),
    }
    return out | ({"folder": np.array([part[0] for part in parts])} if len(parts[0]) == 3 else {})


def read_prepared(name: str) -> Preprocess:
    """How the rows of a table become inputs, from a file preprocess.json.

    Args:
        name: the file, or the folder of a run or of an export that has it.
    """
    path = Path(name).expanduser()
    path = path / "preprocess.json" if path.is_dir() else path
    try:
        made = Preprocess.from_record(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"prepared={name!r}: no preprocess.json of a run can be read there ({error})") from None
    if made.kind != "table" or not made.columns or not made.targets:
        raise DataError(f"prepared={name!r}: it is of {made.kind} data without named columns; a table's is needed")
    return made
