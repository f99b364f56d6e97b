"""Atomic writes: a file or folder is written under a temporary name next to its target and then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


def write(path: Path, data: bytes | str, *, sync: bool = True, mode: int = 0o600) -> None:
    """Write a file atomically.

    Args:
        path: where to write it; an existing file is replaced.
        data: its content; a str is encoded as UTF-8.
        sync: wait until it is on disk, so that it survives a power failure.
        mode: its permissions, before the umask is applied.
    """
    with replacing(path) as temporary:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
    if sync:
        sync_folder(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for a file or folder that replaces another one when the block ends.

    If the block raises an error, or the path cannot be replaced, the temporary file or folder is deleted. A folder does
    not replace a folder that is not empty.

    Args:
        path: the path to replace; its parent folder must exist.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:12]}.new")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Wait until a rename is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
