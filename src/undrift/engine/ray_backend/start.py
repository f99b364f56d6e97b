"""Connects this process to Ray: the instance that it runs already, a cluster by its address, or a new one."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError

_REACH = 10.0  # seconds to reach a cluster; Ray itself would try for many minutes


def resources(address: str | None = None) -> tuple[float, int]:
    """How many processors and GPUs Ray has; it is started if it is not running in this process.

    Args:
        address: a cluster's address; None takes the Ray of this process, or starts one on this machine.
    """
    if ray.is_initialized():
        check_same_cluster(address, ray.get_runtime_context().gcs_address)
    else:
        check_address(address)
        with _own_handler():
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False, configure_logging=False)
            except (ConnectionError, ValueError) as error:
                if address is None:
                    raise
                raise ConnectionError(f"{_unreachable(address)}: {first_line(error)}") from error
    found: dict[str, float] = ray.cluster_resources()
    return found.get("CPU", 1.0), int(found.get("GPU", 0))


def check_same_cluster(address: str | None, joined: str) -> None:
    """Raise if an address is that of another cluster than the one that this process has joined.

    Args:
        address: the given address; None and "auto" accept any cluster, "local" one of this machine.
        joined: the address of the cluster that this process has joined.

    Example:
        >>> check_same_cluster("10.0.0.1:6379", "10.0.0.1:6379")
    """
    wanted = (address or "auto").removeprefix("ray://")
    if wanted in ("auto", "local") or wanted == joined or (address or "").startswith("ray://"):
        return
    host, _, port = wanted.rpartition(":")
    if (_numeric(host), port) != (_numeric(joined.rpartition(":")[0]), joined.rpartition(":")[2]):
        raise ValueError(
            f"address {address}: Ray runs in this process already, on the cluster {joined}; leave the address out to "
            "use that one, or call ray.shutdown() first"
        )


def check_address(address: str | None) -> None:
    """Raise if no server listens at a cluster's address.

    Args:
        address: "host:port"; what Ray resolves itself, as "auto" or "ray://host:port", is left to it.
    """
    if address is None or address in ("auto", "local") or "://" in address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f'address must be "host:port", "ray://host:port" or "auto", got {address!r}')
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"{_unreachable(address)}: {first_line(error)}") from error


def count_nodes() -> int:
    """How many nodes of the cluster are up."""
    return sum(bool(node["Alive"]) for node in ray.nodes())


def put(name: str, value: Any) -> Any:
    """A reference to something in Ray's object store.

    Args:
        name: the name of the value in errors, such as "the task".
        value: the value that the workers get.
    """
    try:
        return ray.put(value)
    except (ObjectStoreFullError, OutOfDiskError) as error:
        raise MemoryError(
            f"RayBackend: {name} does not fit into Ray's object store: {first_line(error)}; start Ray with a larger "
            "one before the backend, ray.init(object_store_memory=8 * 10**9), or free space in /dev/shm and /tmp"
        ) from error
    except Exception as error:
        if not isinstance(error, TypeError | AttributeError) and type(error).__name__ != "PicklingError":
            raise
        raise TypeError(
            f"RayBackend: {name} cannot be sent to the workers: {first_line(error.__context__ or error)}; it is "
            "pickled: open files, locks and connections belong where they are first used, or are left out in "
            "__getstate__"
        ) from error


@contextmanager
def _own_handler() -> Iterator[None]:
    """Keep a program's own handler of SIGTERM, which Ray would replace with one that ends the process."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _numeric(host: str) -> str:
    """A host as a number, if its name is known here."""
    try:
        found = socket.gethostbyname(host.strip("[]"))
    except OSError:
        return host
    return found


def _unreachable(address: str) -> str:
    return (
        f"address {address}: no Ray cluster can be reached there; see `ray status` on its head node, start one with "
        "`ray start --head --port 6379`, or leave the address out to use this machine"
    )


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message; that of Ray has many lines.

    Args:
        error: the error.

    Example:
        >>> first_line(ValueError("no node is left.\nsee the log"))
        'no node is left'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".")
