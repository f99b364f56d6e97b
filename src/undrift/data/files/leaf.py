"""LEAF's JSON files: the examples of each user, as written by its `preprocess.sh`.

    {"users": ["a", ...], "num_samples": [3, ...], "user_data": {"a": {"x": [...], "y": [...]}, ...}}

`x` are texts, or lists of pixels in [0, 1]; `y` are the next characters, or the classes.
"""

import json
from collections.abc import Iterator
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from undrift.data.arrays.dataset import DataError
from undrift.data.files.known import DataSource

SPLITS = (("train", "test"), ("all_data", ""))
"""The splits, in the order of preference: LEAF's own, or else all examples, from which a test set is then split off."""


def find_leaf(folder: Path, split: str) -> list[Path]:
    """The files of a split: `train/*.json` or `train*.json`, in the folder or in its `data`, as in LEAF's own tree."""
    for base in (folder, folder / "data"):
        files = sorted(base.glob(f"{split}/*.json")) or sorted(base.glob(f"{split}*.json"))
        if files:
            return files
    return []


def read_leaf(source: DataSource, _split: str, files: list[Path]) -> dict[str, Any]:
    """The columns of all users' examples, in the order of the files and of their users.

    Pixels become bytes file by file: as Python numbers those of all files would not fit into memory.
    """
    inputs: list[Any] = []
    targets: list[Any] = []
    owners: list[str] = []
    for path in files:
        for user, x, y in _users(path):
            inputs.append(_pixels(path, user, x)) if source.form == "image" else inputs.extend(x)
            targets.extend(y)
            owners.extend([user] * len(y))
    if not owners:
        raise DataError(f"{files[0].parent} has no examples; run LEAF's preprocess.sh again")
    if source.form == "image":
        return {source.inputs[0]: np.concatenate(inputs), source.target: np.asarray(targets), source.owner: owners}
    return {source.inputs[0]: inputs, source.target: targets, source.owner: owners}


def _users(path: Path) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Name, inputs and targets of each user of a file that has examples."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        pairs = [(user, data["user_data"][user]["x"], data["user_data"][user]["y"]) for user in data["users"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not a file of LEAF ({type(error).__name__}: {error}); it must have users and, in user_data, "
            "x and y of each"
        ) from error
    for user, x, y in pairs:
        if len(x) != len(y):
            raise DataError(f"{path}: user {user} has {len(x)} inputs x and {len(y)} targets y; they must be as many")
        if y:
            yield str(user), x, y


def _pixels(path: Path, user: str, x: list[list[float]]) -> NDArray[np.uint8]:
    """Rows of pixels in [0, 1] as square images of bytes, which is what LEAF divided by 255."""
    values = np.asarray(x, dtype=np.float64)
    side = isqrt(values.shape[1]) if values.ndim == 2 else 0
    if not side or side**2 != values.shape[1] or not 0 <= values.min() <= values.max() <= 1:
        raise DataError(
            f"{path}: an image of user {user} must be a list of side x side numbers in [0, 1], "
            f"got shape {list(values.shape[1:])}, {values.min()} to {values.max()}"
        )
    return np.rint(255 * values).astype(np.uint8).reshape(-1, side, side)
