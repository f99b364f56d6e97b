"""What differs between operating systems: locks on files and the size of the memory."""

import ctypes
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class Memory(NamedTuple):
    """Bytes of a memory, and how many of them are free."""

    total: int
    free: int


def lock(handle: int) -> None:
    """Lock an open file until it is closed or the process ends.

    Args:
        handle: the number of the file, from `os.open`.

    Raises:
        OSError: another process, or another handle, has locked it.
    """
    try:
        posix = import_module("fcntl")
    except ImportError:  # Windows
        windows = import_module("msvcrt")
        windows.locking(handle, windows.LK_NBLCK, 1)
    else:
        posix.flock(handle, posix.LOCK_EX | posix.LOCK_NB)


def is_locked(path: Path) -> bool:
    """Whether another process, or another handle, has locked a file; False if there is no such file.

    Args:
        path: the file. It is locked for an instant if no process has it.
    """
    try:
        handle = os.open(path, os.O_RDONLY if not os.access(path, os.W_OK) else os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        lock(handle)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def host_memory() -> Memory:
    """The memory of this machine; where the system does not report how much is free, all of it."""
    if not hasattr(os, "sysconf"):  # Windows
        status = _Status(length=ctypes.sizeof(_Status))
        _kernel().GlobalMemoryStatusEx(ctypes.byref(status))
        return Memory(status.total, status.free)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        free = total
    return Memory(total, free)


def resident_peak() -> int:
    """The most bytes of memory that this process has had."""
    try:
        resource: Any = import_module("resource")
    except ImportError:  # Windows
        counters = _Counters(length=ctypes.sizeof(_Counters))
        kernel = _kernel()
        kernel.GetCurrentProcess.restype = ctypes.c_void_p
        process = ctypes.c_void_p(kernel.GetCurrentProcess())
        kernel.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.length)
        return int(counters.peak)
    peak: int = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


class _Status(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


class _Counters(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("peak", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 7),
    )


def _kernel() -> Any:
    """The kernel32 library of Windows."""
    return getattr(ctypes, "windll").kernel32  # noqa: B009  other systems do not have the name
