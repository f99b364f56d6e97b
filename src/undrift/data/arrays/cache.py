"""The cache of decoded arrays: .npy files, memory-mapped when they are read."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from glob import escape
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap, write_array

from undrift.data.arrays.dataset import Arrays
from undrift.util.storage.files import replacing


def root() -> Path:
    """The cache folder: UNDRIFT_CACHE, or a folder in the user's cache."""
    user = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("UNDRIFT_CACHE") or Path(user, "undrift")).expanduser()


def entry(name: str, files: Iterable[tuple[str, Path]], *options: object) -> Path:
    """The cache folder of a data set: its name, a hash of the options, and one of each file's role, size and time too.

    Args:
        name: of the data set.
        files: all files that the content depends on, each with all that its place means: split, domain and class.
        options: everything else that the content depends on.
    """
    known = [repr(options)]
    for role, path in files:
        stat = path.stat()
        known.append(f"{role!r} {stat.st_size} {stat.st_mtime_ns}")
    return root() / f"{name}-{_digest(known[0])[:8]}-{_digest(chr(10).join(known))[:16]}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _remove_earlier(folder: Path) -> None:
    """Remove other entries with the name and options of this one: what was decoded before its files changed."""
    same = folder.name.rpartition("-")[0]
    for other in folder.parent.glob(f"{escape(same)}-*"):
        if other != folder and other.name.rpartition("-")[0] == same:
            shutil.rmtree(other, ignore_errors=True)


def read(folder: Path) -> tuple[Arrays, str] | None:
    """The memory-mapped arrays of an entry, and its note; None if it is missing or damaged.

    Writing copies a page first: the files never change, and processes share the pages they only read.
    """
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        arrays = {name: open_memmap(folder / f"{name}.npy", mode="c") for name in about["arrays"]}
        return arrays, str(about["note"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_or_make(
    folder: Path, make: Callable[[], tuple[Arrays, str]], keep: bool = True, replaces: bool = False
) -> tuple[Arrays, str]:
    """The arrays of an entry and its note, from the cache, or made and stored there.

    Args:
        folder: the entry.
        make: returns both.
        keep: whether the cache is used; otherwise they are made and not stored.
        replaces: whether earlier entries with its name and options are removed; the options then name the files' place.
    """
    held = read(folder) if keep else None
    if held is None:
        made = make()
        held = (keep and write(folder, *made) and read(folder)) or made
        if keep and replaces:
            _remove_earlier(folder)
    return held


def write(folder: Path, arrays: Arrays, note: str) -> bool:
    """Write an entry atomically, unless another process has written it in the meantime.

    Returns:
        whether the entry exists; a folder that cannot be written to is not an error, there is just no cache.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing(folder) as temporary:
            temporary.mkdir(mode=0o700)
            for name, array in arrays.items():
                with open(temporary / f"{name}.npy", "wb") as file:
                    write_array(file, np.ascontiguousarray(array), allow_pickle=False)
            (temporary / "about.json").write_text(json.dumps({"arrays": list(arrays), "note": note}), encoding="utf-8")
            if read(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)  # damaged
    except OSError:
        return read(folder) is not None
    return True
