"""Atomic writing: a file or folder is made under a temporary name beside its place and then renamed."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


def write(path: Path, data: bytes | str, *, sync: bool = True, mode: int = 0o600) -> None:
    """Write a file atomically.

    Args:
        path: where to write it; a file that is there is replaced.
        data: its content; texts are written as UTF-8.
        sync: wait until it is on the disk, so that it survives a loss of power.
        mode: its permissions, less those that the umask takes away.
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
    """A temporary path, to be made a file or a folder, that takes the place of another when the block ends.

    If the block raises an error, or the path cannot be replaced, what was made is deleted. A folder replaces no folder
    that has anything in it.

    Args:
        path: the path that is replaced; its folder must exist.
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
    """Wait until a rename is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
