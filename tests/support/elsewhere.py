"""This process made to look like one on Windows, as far as that goes on another system.

What Windows does not have is removed: `fcntl`, `resource`, `os.fork`, `os.sysconf` and others. What it refuses is
refused: a folder that is opened, an open file that is replaced or deleted, a name with a colon. Text that is read or
written without an encoding is an error. Libraries are imported first, because they choose by `sys.platform`.
"""

import builtins
import ctypes
import io
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

LIBRARIES = ("torch", "torch.func", "scipy.ndimage", "pyarrow.parquet", "pydantic", "rich.table", "typer.testing")
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "posix", "pty", "syslog")
NAMES = (
    "fork",
    "forkpty",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "fchmod",
    "fchown",
    "chown",
    "sysconf",
    "statvfs",
    "sched_getaffinity",
    "getloadavg",
    "register_at_fork",
    "killpg",
    "setsid",
    "mkfifo",
    "uname",
    "O_NOFOLLOW",
    "O_DIRECTORY",
    "pread",
    "posix_fadvise",
    "wait3",
    "wait4",
)
SIGNALS = ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "SIGCHLD", "alarm", "pause")
FORBIDDEN = set('<>:"|?*')


def pretend() -> None:
    """Change this process; there is no way back."""
    for name in LIBRARIES:
        __import__(name)
    tempfile.gettempdir()
    _refuse()
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in NAMES:
        vars(os).pop(name, None)
    for name in SIGNALS:
        vars(signal).pop(name, None)
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = _msvcrt()
    ctypes.windll = SimpleNamespace(kernel32=Kernel())  # type: ignore[attr-defined]
    warnings.filterwarnings("error", category=EncodingWarning, module=r"undrift\.")


class Kernel:
    """The functions of kernel32 that the package calls, with a fixed answer: 8 GiB, half of it free."""

    def __init__(self) -> None:
        self.GetCurrentProcess = _Callable()

    def GlobalMemoryStatusEx(self, status: Any) -> int:
        found = status._obj
        assert found.length == ctypes.sizeof(found) == 64
        found.total, found.free = 8 << 30, 4 << 30
        return 1

    def K32GetProcessMemoryInfo(self, process: Any, counters: Any, length: int) -> int:
        found = counters._obj
        assert length == found.length == ctypes.sizeof(found) == 72
        found.peak += 1 << 30
        return 1


class _Callable:
    restype: Any = ctypes.c_int

    def __call__(self) -> int:
        return -1 & (1 << 64) - 1


def _msvcrt() -> ModuleType:
    """A lock on a file, known in this process only."""
    made, held = ModuleType("msvcrt"), dict[str, int]()

    def locking(handle: int, mode: int, count: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path in held and os.path.exists(f"/proc/self/fd/{held[path]}"):
            raise PermissionError(13, "Permission denied", path)
        held[path] = handle

    made.locking, made.LK_NBLCK = locking, 2  # type: ignore[attr-defined]
    return made


def _refuse() -> None:
    """Refuse what Windows refuses."""
    opened, replaced, unlinked, made = os.open, os.replace, os.unlink, os.mkdir
    usual = builtins.open

    def open_number(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied: Windows opens no folders", str(path))
        return opened(_named(path), flags, mode, dir_fd=dir_fd)

    def open_file(path: Any, *arguments: Any, **more: Any) -> Any:
        return usual(_named(path), *arguments, **more)

    def replace(source: Any, target: Any) -> None:
        if os.path.isdir(target):
            raise PermissionError(13, "Access is denied: Windows replaces no folders", str(target))
        replaced(_closed(source), _closed(_named(target)))

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        unlinked(_closed(path), dir_fd=dir_fd)

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        made(_named(path), mode, dir_fd=dir_fd)

    changes: dict[str, Callable[..., Any]] = {"open": open_number, "replace": replace, "rename": replace}
    for name, change in {**changes, "unlink": unlink, "remove": unlink, "mkdir": mkdir}.items():
        setattr(os, name, change)
    builtins.open = io.open = open_file  # type: ignore[assignment]


def _named(path: Any) -> Any:
    """A path, if Windows allows its name."""
    if isinstance(path, str | Path) and FORBIDDEN & set(Path(path).name):
        raise OSError(22, "Invalid argument: Windows does not allow this name", str(path))
    return path


def _closed(path: Any) -> Any:
    """A path, if this process has no file open there, or below it."""
    whole = os.path.abspath(path)
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    held = [os.readlink(link) for link in links if os.path.lexists(link)]
    with io.FileIO("/proc/self/maps") as file:
        held += [line.split(maxsplit=5)[-1] for line in file.readall().decode().splitlines()]
    if any(other == whole or other.startswith(whole + "/") for other in held):
        raise PermissionError(13, "Permission denied: the file is open", whole)
    return path
