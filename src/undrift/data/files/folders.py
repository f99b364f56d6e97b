"""Image files in folders: domain/class/image, as in Office-Home, and the folders of Tiny-ImageNet."""

from pathlib import Path
from typing import Any

import numpy as np

from undrift.data.arrays.dataset import DataError
from undrift.data.files.known import DataSource

SUFFIXES = {".jpg", ".jpeg", ".png"}
TINY = (("train", "val"),)
"""Tiny-ImageNet's splits: its test images have no labels."""


def find_domains(folder: Path, _split: str) -> list[Path]:
    """The image files two folders down, sorted by domain, class and name; other files are ignored."""
    return _images(folder, "*/*/*")


def read_domains(source: DataSource, _split: str, files: list[Path]) -> dict[str, Any]:
    """Paths, classes and domains; classes are numbered in the order of the folders' names, over all domains."""
    domains = [path.parents[1].name for path in files]
    return _columns(source, files, [path.parent.name for path in files]) | {source.owner: domains}


def find_tiny(folder: Path, split: str) -> list[Path]:
    """The image files of a split of Tiny-ImageNet, after the list of the validation images' classes."""
    for base in (folder, folder / "tiny-imagenet-200"):
        listed = base / "val/val_annotations.txt"
        if listed.is_file():
            return [listed, *_images(base, "train/*/images/*" if split == "train" else "val/images/*")]
    return []


def read_tiny(source: DataSource, split: str, files: list[Path]) -> dict[str, Any]:
    """Paths and classes: a training image's is its folder's name, a validation image's is in the list."""
    listed, *images = files
    if split == "train":
        return _columns(source, images, [path.parents[1].name for path in images])
    classes = dict(line.split("\t")[:2] for line in listed.read_text(encoding="utf-8").splitlines())
    unlisted = next((path.name for path in images if path.name not in classes), None)
    if unlisted is not None:
        raise DataError(f"{listed} does not list {unlisted}; unpack the archive again")
    return _columns(source, images, [classes[path.name] for path in images])


def _images(folder: Path, pattern: str) -> list[Path]:
    """The image files that match, sorted, without hidden ones."""
    files = (path for path in folder.glob(pattern) if not path.name.startswith("."))
    return sorted(path for path in files if path.suffix.lower() in SUFFIXES)


def _columns(source: DataSource, images: list[Path], classes: list[str]) -> dict[str, Any]:
    """Paths and classes, numbered in the order of their names."""
    names, targets = np.unique(classes, return_inverse=True)
    if len(names) != source.classes:
        found = f"{len(names)}, from {names[0]} to {names[-1]}" if len(names) else "no images"
        raise DataError(
            f"there must be images of {source.classes} classes in its folders, found {found}; unpack the archive again"
        )
    return {source.inputs[0]: [{"path": str(path)} for path in images], source.target: targets}
