"""Memory that workers keep: glibc returns freed memory to the system, and every local step would fetch it anew.

Each page that is fetched costs a page fault. The setting is that of the whole process, so it is made when a worker
starts, never when Undrift is imported. Results do not depend on it.
"""

import ctypes
import os
import platform
import sys

VARIABLE = "UNDRIFT_KEEP_MEMORY"
"""The environment variable that decides for all workers: "0" leaves the allocator alone, "1" does not."""

KEPT = 1 << 30
"""Free bytes at the end of the heap that a process keeps."""

LARGEST = 32 << 20
"""Blocks up to this size come from the heap, the most that glibc allows; larger ones are mapped one by one."""

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h

_done = False


def wants_memory(setting: bool) -> bool:
    """Whether workers keep freed memory: as the environment variable says, or else as the setting.

    Args:
        setting: of the job.
    """
    found = os.environ.get(VARIABLE, "").strip()
    if found not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} must be 0, to leave the memory allocator alone, or 1, got {found!r}")
    return setting if not found else found == "1"


def keep_memory() -> bool:
    """Let this process keep the memory that it frees; whether its C library can do that, as glibc can."""
    global _done
    if _done:
        return True
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    set_option.argtypes, set_option.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    _done = bool(set_option(_MAP, LARGEST)) and bool(set_option(_TRIM, KEPT))
    return _done
