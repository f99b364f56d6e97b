"""The place of a worker: the devices of this machine, their memory, and the settings of a worker's process.

`UNDRIFT_DEVICE_MODULE` names a module that registers a PyTorch backend from outside PyTorch; it is imported here and in
every worker before a device is used.
"""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import torch

from undrift.util.system import Memory, host_memory, resident_peak

MODULE = "UNDRIFT_DEVICE_MODULE"
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
NAMES = ("auto", "cpu", "cuda", "cuda:1", "mps")
"""The names that help and errors list."""

VARIABLE = "UNDRIFT_KEEP_MEMORY"
"""The environment variable that decides for all workers whether they keep freed memory: "0" or "1"."""

KEPT = 1 << 30
"""Free bytes at the end of the heap that a process keeps."""

LARGEST = 32 << 20
"""Blocks up to this size come from the heap, the most that glibc allows; larger ones are mapped one by one."""

_TRIM, _MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h

_keeping = False


class KnownDevice(NamedTuple):
    """A device of this machine: its name, its model's name, and its memory if it is known."""

    name: str
    title: str
    memory: Memory | None


def plug_in(module: str | None = None) -> None:
    """Import the module that registers a backend from outside PyTorch; without one, do nothing.

    Args:
        module: its name; None takes that in `UNDRIFT_DEVICE_MODULE`.
    """
    module = module or os.environ.get(MODULE)
    if not module:
        return
    try:
        import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{MODULE}={module}: cannot be imported ({error}); name a module on PYTHONPATH that registers a device "
            "with PyTorch, or unset it"
        ) from error


def kind_of(device: str) -> str:
    """The kind of a device, without its number: "cuda:1" is a "cuda".

    Args:
        device: its name.
    """
    return device.partition(":")[0]


def check_name(device: str) -> str:
    """The name itself, if it is written like a device's; whether the device exists is not checked.

    Args:
        device: "auto", or the name of a device with or without a number.
    """
    if not re.fullmatch(r"[a-z][a-z_0-9]*(:\d{1,3})?", device) or kind_of(device) in ("meta", "gpu"):
        raise ValueError(f"device: no device is named {device!r}; write {', '.join(NAMES)}")
    return device


def check_share(device: str, gpus: float | None, where: str = "") -> None:
    """Raise if workers that Ray places cannot train on a device with their share of a GPU.

    Args:
        device: its name.
        gpus: each worker's share of a GPU, 0 for none; None gives it one if the device is a GPU.
        where: the beginning of an error's message, such as "Pool: ".
    """
    kind, _, number = device.partition(":")
    if kind == "cuda" and number:
        raise ValueError(
            f"{where}device {device}: Ray gives every worker its GPU; write device cuda and start with "
            f"CUDA_VISIBLE_DEVICES={number}"
        )
    if kind == "cuda" and gpus == 0:
        raise ValueError(
            f"{where}device cuda: the workers have no GPU; give each a share, gpus=0.5 for two workers on one"
        )
    if kind != "cuda" and gpus:
        raise ValueError(
            f"{where}gpus={gpus:g}: the run is on device {device}, so that its workers would occupy GPUs without "
            "using them; set device to cuda, or leave gpus out"
        )


def resolve(device: str = "auto") -> str:
    """The name of a device that exists; "auto" is cuda if there is one, else mps, else cpu.

    Args:
        device: "auto", "cpu", "cuda", "cuda:1", "mps", or the name of a backend that `UNDRIFT_DEVICE_MODULE` registers.
    """
    check_name(device)
    plug_in()
    if device == "auto":
        return next((kind for kind in ("cuda", "mps") if _count(kind)), "cpu")
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return "cpu"
    try:
        torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"device {device}: PyTorch knows no such device; write {', '.join(NAMES)}, or name the module that "
            f"registers it in {MODULE}"
        ) from None
    count = _count(kind)
    if not count:
        raise ValueError(f"device {device}: {_why_missing(kind)}; use device cpu, or auto for the best one there is")
    if number and int(number) >= count:
        there = "one, number 0" if count == 1 else f"{count}, numbers 0 to {count - 1}"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if kind == "cuda" else None
        limited = f" with CUDA_VISIBLE_DEVICES={visible}" if visible is not None else ""
        raise ValueError(f"device {device}: there is no number {number}{limited}, only {there}")
    return device


def devices() -> list[KnownDevice]:
    """The devices of this machine that a worker can train on, the CPU first."""
    plug_in()
    kinds = ["cuda", "mps", "xpu", *([] if _extra() == "privateuseone" else [_extra()])]
    names = ["cpu", *(f"{kind}:{i}" if _count(kind) > 1 else kind for kind in kinds for i in range(_count(kind)))]
    return [KnownDevice(name, title(name), memory(name)) for name in names]


def title(device: str) -> str:
    """The name of a device's model, such as "NVIDIA A100", or of its kind if the model is not known.

    Args:
        device: its name.
    """
    module = _module(kind_of(device))
    if kind_of(device) != "cpu" and hasattr(module, "get_device_name"):
        return str(module.get_device_name(torch.device(device)))
    return kind_of(device)


def memory(device: str) -> Memory | None:
    """The memory of a device; None if its backend does not report it.

    Args:
        device: its name.
    """
    kind = kind_of(device)
    if kind == "cpu":
        return host_memory()
    module = _module(kind)
    if kind == "mps":
        total = int(module.recommended_max_memory())
        return Memory(total, total - int(module.driver_allocated_memory()))
    if hasattr(module, "mem_get_info"):
        free, total = module.mem_get_info(torch.device(device))
        return Memory(int(total), int(free))
    return None


def synchronize(device: str) -> None:
    """Wait until a device has done what it was given, to measure time.

    Args:
        device: its name.
    """
    module = _module(kind_of(device))
    if kind_of(device) != "cpu" and hasattr(module, "synchronize"):
        module.synchronize()


class Peak:
    """The most memory a device used inside `peak_memory`, in bytes; None if its backend does not report it."""

    bytes: int | None = None


@contextmanager
def peak_memory(device: str) -> Iterator[Peak]:
    """Measure the most memory that this process takes on a device; on the CPU, by how much its own peak rises.

    Args:
        device: its name.
    """
    kind, found = kind_of(device), Peak()
    module = _module(kind)
    if hasattr(module, "reset_peak_memory_stats"):
        module.empty_cache()
        module.reset_peak_memory_stats(torch.device(device))
    before = resident_peak() if kind == "cpu" else 0
    yield found
    synchronize(device)
    if kind == "cpu":
        found.bytes = resident_peak() - before
    elif hasattr(module, "max_memory_reserved"):
        found.bytes = int(module.max_memory_reserved(torch.device(device)))
        module.empty_cache()
    elif kind == "mps":
        found.bytes = int(module.driver_allocated_memory())  # which does not shrink by itself: the peak so far
        module.empty_cache()


def use_deterministic(on: bool = True) -> None:
    """Make PyTorch choose deterministic kernels in this process, or raise where there are none.

    cuBLAS reads its own setting, `CUBLAS_WORKSPACE_CONFIG`, when a process first uses it: call this before.

    Args:
        on: False lets PyTorch choose freely again.
    """
    if on:
        os.environ.setdefault(WORKSPACE, ":4096:8")
        if os.environ[WORKSPACE] not in (":4096:8", ":16:8"):
            raise ValueError(
                f"{WORKSPACE}={os.environ[WORKSPACE]} is not deterministic: unset it, or write :4096:8 or :16:8"
            )
    torch.use_deterministic_algorithms(on)
    torch.backends.cudnn.deterministic = on
    if on:
        torch.backends.cudnn.benchmark = False


def wants_memory(setting: bool) -> bool:
    """Whether workers keep freed memory: by the environment variable, or if that is not set by the setting.

    Args:
        setting: `keep_memory` of the job.
    """
    found = os.environ.get(VARIABLE, "").strip()
    if found not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} must be 0, to leave the memory allocator alone, or 1, got {found!r}")
    return setting if not found else found == "1"


def keep_memory() -> bool:
    """Make this process keep the memory that it frees; returns whether its C library, as glibc, can do that."""
    global _keeping
    if _keeping:
        return True
    if not sys.platform.startswith("linux") or platform.libc_ver()[0] != "glibc":
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    set_option.argtypes, set_option.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    _keeping = bool(set_option(_MAP, LARGEST)) and bool(set_option(_TRIM, KEPT))
    return _keeping


def _count(kind: str) -> int:
    """How many devices of a kind there are."""
    if kind == "cpu":
        return 1
    module = _module(kind)
    if module is None or not getattr(module, "is_available", lambda: kind == _extra())():
        return 0
    return int(module.device_count()) if hasattr(module, "device_count") else 1


def _extra() -> str:
    """The name of the backend that was registered from outside PyTorch; "privateuseone" if there is none."""
    return str(torch._C._get_privateuse1_backend_name())


def _module(kind: str) -> Any:
    """PyTorch's module for a kind of device; None if it has none."""
    return getattr(torch, kind, None)


def _why_missing(kind: str) -> str:
    """Why there is no device of a kind."""
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built without CUDA: install a build for your GPU from pytorch.org"
    if kind == "cuda" and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs"
    if kind == "mps":
        return "there is no Apple GPU that PyTorch can use"
    return f"PyTorch finds no {kind} device here: check its driver"
