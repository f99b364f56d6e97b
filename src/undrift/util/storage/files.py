"""Atomic writes: a file or folder is written under a temporary name next to its target and then renamed."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ADVICE = {
    errno.ENOSPC: "free some space on that disk",
    errno.EDQUOT: "free some space or raise your disk quota",
    errno.EFBIG: "raise the limit on the size of a file (ulimit -f)",
    errno.EROFS: "make that disk writable",
    errno.EIO: "check that disk: it fails",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "close other programs: the system has too many open files",
    errno.EACCES: "check who owns that folder and its permissions",
    errno.EPERM: "check who owns that folder and its permissions",
    errno.ELOOP: "a symbolic link is not followed: put the folder or file itself there",
    errno.ENOTDIR: "a symbolic link is not followed: put the folder itself there",
    errno.ENOENT: "its folder must exist",
    errno.EEXIST: "a file of this name is in the way: move it, or choose another folder",
}


class StorageError(OSError):
    """A file that cannot be written; the message names the file, the reason and the remedy.

    `then` is what to do after that.
    """

    then = "run the command again"

    def __str__(self) -> str:
        advice = _ADVICE.get(self.errno or 0, "check that disk")
        return f"{self.filename}: cannot be written: {self.strerror}; {advice}, then {self.then}"


def write(path: Path, data: bytes | str, *, sync: bool = True, mode: int = 0o600, follow: bool = True) -> None:
    """Write a file atomically.

    Args:
        path: where to write it; an existing file, or a symbolic link, is replaced.
        data: its content; a str is encoded as UTF-8.
        sync: wait until it is on disk, so that it survives a power failure.
        mode: its permissions, before the umask is applied.
        follow: whether its folder may be a symbolic link.
    """
    temporary = _temporary(path)
    with storing(path), _open_folder(path.parent, follow) as folder:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW
            with os.fdopen(_open(temporary, flags, mode, folder), "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            if folder is None:
                os.replace(temporary, path)
            else:
                os.replace(temporary.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                _unlink(temporary, folder)
            raise
        if sync:
            sync_folder(path.parent)


def append(path: Path, line: bytes, *, sync: bool = False) -> None:
    """Add a line to a file, or leave the file as it was if that fails; a symbolic link is refused.

    Args:
        path: the file; created if missing.
        line: what to add.
        sync: wait until it is on disk, so that it survives a power failure.
    """
    with storing(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NOFOLLOW, 0o600)
        with os.fdopen(handle, "ab", buffering=0) as file:
            before = os.fstat(file.fileno()).st_size
            try:
                left = memoryview(line)
                while left:
                    left = left[file.write(left) :]
                if sync:
                    os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(file.fileno(), before)
                raise
    if sync and not before:
        sync_folder(path.parent)


def read(path: Path) -> bytes:
    """The content of a file that must be an ordinary one: a link, a pipe or a device is refused as an `OSError`.

    Args:
        path: the file.
    """
    kind = os.lstat(path).st_mode
    if not stat.S_ISREG(kind):
        what = "it is a symbolic link" if stat.S_ISLNK(kind) else "it is not an ordinary file"
        raise OSError(errno.ELOOP, what, str(path))
    with os.fdopen(os.open(path, os.O_RDONLY | _NOFOLLOW | getattr(os, "O_BINARY", 0)), "rb") as file:
        return file.read()


def delete(path: Path) -> None:
    """Delete a file, if it is there and its folder is not a symbolic link.

    Args:
        path: the file.
    """
    with storing(path), suppress(FileNotFoundError), _open_folder(path.parent, follow=False) as folder:
        _unlink(path, folder)


def make_private(folder: Path) -> None:
    """Create a folder, and those above it that are missing, for its owner only.

    Args:
        folder: the folder; nothing is changed if it is there.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        with storing(folder):
            folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path for a file or folder that replaces another one when the block ends.

    If the block raises an error, or the path cannot be replaced, the temporary file or folder is deleted. A folder does
    not replace a folder that is not empty.

    Args:
        path: the path to replace; its parent folder must exist.
    """
    temporary = _temporary(path)
    try:
        with storing(path):
            yield temporary
            os.replace(temporary, path)
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def is_temporary(path: Path) -> bool:
    """Whether a file or folder has the name of one that is being written."""
    return re.fullmatch(r"\..+\.[0-9a-f]{12}\.new", path.name) is not None


def delete_temporary(folder: Path) -> None:
    """Delete temporary files and folders that a process left in a folder when it was killed while it wrote.

    Args:
        folder: where they are; no other process may be writing there. It may be missing.
    """
    for path in folder.iterdir() if folder.is_dir() else ():
        if is_temporary(path):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                delete(path)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """An error of the system in the block is raised as a `StorageError` that names the file.

    Args:
        path: the file that the block writes.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageError) or error.errno is None:
            raise
        raise StorageError(error.errno, error.strerror or str(error), str(path)) from error


def sync_folder(folder: Path) -> None:
    """Wait until a rename is on disk; Windows opens no folders and needs no call."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex[:12]}.new")


@contextmanager
def _open_folder(folder: Path, follow: bool) -> Iterator[int | None]:
    """A folder as an open handle, so that it cannot be swapped for a link in the meantime; Windows has none."""
    if not hasattr(os, "O_DIRECTORY"):
        if not follow and folder.is_symlink():
            raise OSError(errno.ELOOP, "its folder is a symbolic link")
        yield None
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else _NOFOLLOW))
    try:
        yield handle
    finally:
        os.close(handle)


def _open(temporary: Path, flags: int, mode: int, folder: int | None) -> int:
    return os.open(temporary, flags, mode) if folder is None else os.open(temporary.name, flags, mode, dir_fd=folder)


def _unlink(path: Path, folder: int | None) -> None:
    os.unlink(path) if folder is None else os.unlink(path.name, dir_fd=folder)
