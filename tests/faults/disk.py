"""Disk faults: calls of the operating system that fail, from the n-th on or once."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

CODES = {code: os.strerror(getattr(errno, code)) for code in ("ENOSPC", "EIO", "EROFS", "EMFILE", "EDQUOT")}
CALLS = ("open", "fdopen", "fsync", "replace", "unlink")


@contextmanager
def failing(call: str, code: str, first: int = 0, under: Path | None = None, once: bool = False) -> Iterator[list[str]]:
    """Let a function of `os` fail; yields what failed.

    Args:
        call: its name; see CALLS.
        code: the name of the error; see CODES.
        first: how many calls succeed before.
        under: only calls that name a path in this folder, or an open file of it; None means all.
        once: fail once and then work again.
    """
    plain, seen, failed = getattr(os, call), 0, list[str]()

    def faulty(*arguments: Any, **named: Any) -> Any:
        nonlocal seen
        about = _about(arguments, named)
        if under is not None and not any(path.is_relative_to(under) for path in about):
            return plain(*arguments, **named)
        if call == "open" and not arguments[1] & (os.O_WRONLY | os.O_RDWR):
            return plain(*arguments, **named)
        seen += 1
        if seen <= first or (once and failed):
            return plain(*arguments, **named)
        failed.append(f"{call} {about[-1] if about else ''}")
        number = getattr(errno, code)
        raise OSError(number, os.strerror(number), *([str(about[-1])] if call in ("open", "replace", "unlink") else []))

    with mock.patch.object(os, call, faulty):
        yield failed


def full(path: Any, folder: int | None = None) -> Path:
    """The path that a call means: an open file, or a name in an open folder."""
    if isinstance(path, int):
        return Path(os.readlink(f"/proc/self/fd/{path}"))
    return Path(path) if folder is None else full(folder) / path


def _about(arguments: tuple[Any, ...], named: dict[str, Any]) -> list[Path]:
    """The paths that a call names, by name or by an open file."""
    folder = named.get("dst_dir_fd", named.get("dir_fd"))
    given = [x for x in arguments[:2] if isinstance(x, str | os.PathLike)]
    opened = [x for x in arguments[:1] if isinstance(x, int) and Path(f"/proc/self/fd/{x}").exists()]
    return [full(x, folder) for x in [*given, *opened]]
