"""Clients' states in an object store, named by a URL that fsspec understands: s3://bucket/run, gs://bucket/run.

No folder need be shared: every worker reads and writes the store itself. A state contains its checksum and is never
changed after its round: an incomplete write is detected, and the state before it is still there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undrift.core.method.algorithm import Algorithm
from undrift.core.records.types import ClientState
from undrift.core.server import wire
from undrift.engine.stores.store import (
    DiskStore,
    Store,
    StoreError,
    is_round,
    rounds_to_keep,
    state_path,
)
from undrift.util.steps import tell
from undrift.util.storage.files import make_private, write

_EXTRAS = {"s3": "undrift[s3]", "s3a": "undrift[s3]"}


def is_url(root: object) -> bool:
    """Whether a root names an object store.

    Example:
        >>> is_url("s3://bucket/run"), is_url("runs/one")
        (True, False)
    """
    return isinstance(root, str) and "://" in root


def check_url(url: str, *, shared: bool = True) -> str:
    """A URL without a slash at its end; raises if it cannot work.

    Args:
        url: where the states are, as s3://bucket/run.
        shared: whether other processes must see what this one writes.
    """
    scheme, _, path = url.partition("://")
    if not path.strip("/"):
        raise ValueError(f"{url}: name a place in the store, as in {scheme}://bucket/run")
    if "@" in path.partition("/")[0] or "?" in path:
        raise ValueError(f"{scheme}://...: leave credentials out of the URL; fsspec takes them from the environment")
    if shared and scheme == "memory":
        raise ValueError(
            f"{url}: memory is seen by one process only; use an object store, or a folder that all can see"
        )
    _open(url)
    return url.rstrip("/")


def local_folder(url: str) -> Path | None:
    """The folder that a file:// URL names; None for others."""
    return Path(url.removeprefix("file://")) if url.startswith("file://") else None


class ObjectStore:
    """States as objects, one per client and round: written as a whole, with a checksum, read when needed.

    Args:
        url: where they are; credentials and endpoints come from the environment, as fsspec and its libraries take them.
        algorithm: declares what a state contains.
        size: the length of the model.
        depth: how many rounds the server may go back to a checkpoint; the states it needs for that are kept.
    """

    def __init__(self, url: str, algorithm: Algorithm, size: int, *, depth: int = 0) -> None:
        self.url, self.algorithm, self.size, self.depth = url.rstrip("/"), algorithm, size, depth
        self._files, self._path = _open(self.url)
        self._codec = DiskStore(Path(), algorithm, size)

    def load(self, client: int, round: int) -> ClientState:
        """The state a client had after a round."""
        return self._codec.decode(self.read(client, round), client, round, f"{self.url}/{state_path(client, round)}")

    def read(self, client: int, round: int) -> bytes:
        """The same as bytes."""
        try:
            data: bytes = self._files.cat_file(f"{self._path}/{state_path(client, round)}")
        except FileNotFoundError:
            raise StoreError.missing(client, round, f"{self.url}/{state_path(client, round)}") from None
        except Exception as error:  # every library has errors of its own
            raise StoreError.of(client, round, "read", self.url, _reason(error)) from error
        return data

    def save(self, client: int, round: int, state: ClientState, accepted: int | None) -> None:
        """Write a new state, then delete those that no checkpoint refers to any more."""
        folder, name = f"{self._path}/{state_path(client, round)}".rsplit("/", 1)
        try:
            self._files.makedirs(folder, exist_ok=True)
            self._files.pipe_file(f"{folder}/{name}", wire.to_bytes(state))
        except Exception as error:
            raise StoreError.of(client, round, "written", self.url, _reason(error)) from error
        try:
            self._files.invalidate_cache(folder)
            present = {str(path).rstrip("/").rsplit("/", 1)[-1] for path in self._files.ls(folder, detail=False)}
            kept = rounds_to_keep([int(name) for name in present if is_round(name)], round, accepted, self.depth)
            for old in present:
                if is_round(old) and int(old) not in kept:
                    self._files.rm_file(f"{folder}/{old}")
        except Exception as error:  # the next visit of the client tries again
            tell("old states of client %d were not deleted: %s", client, error)


def open_store(root: Path | str, algorithm: Algorithm, size: int, depth: int = 0) -> Store:
    """The store of a root: a folder, or a URL.

    Args:
        root: where the states are.
        algorithm: declares what a state contains.
        size: the length of the model.
        depth: how many rounds the server may go back to a checkpoint.
    """
    if isinstance(root, str) and is_url(root):
        return ObjectStore(root, algorithm, size, depth=depth)
    return DiskStore(Path(root), algorithm, size, depth=depth)


def download_states(url: str, accepted: Mapping[int, int], to: Path) -> None:
    """Copy states of an `ObjectStore` into a folder that a `DiskStore` can read; missing ones are left out.

    Args:
        url: where they are.
        accepted: the round of each client's state.
        to: the folder.
    """
    store = ObjectStore(url, Algorithm(), 0)
    for client, round in accepted.items():
        try:
            data = store.read(client, round)
        except StoreError as error:
            tell("left out: %s", error)
            continue
        path = to / state_path(client, round)
        make_private(path.parent)
        write(path, data, sync=False)


def _open(url: str) -> tuple[Any, str]:
    """The file system of a URL, without a cache of listings, and the path in it."""
    scheme = url.partition("://")[0]
    extra = _EXTRAS.get(scheme)
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"{url} needs fsspec: pip install '{extra or 'undrift[s3]'}'") from error
    try:
        files, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        library = f"pip install '{extra}'" if extra is not None else str(error)
        raise ImportError(f"{url} needs a library for {scheme}: {library}") from error
    except ValueError as error:
        raise ValueError(f"{url}: {error}; use a folder or a URL of fsspec, as s3://bucket/run") from None
    return files, str(path).rstrip("/")


def _reason(error: Exception) -> str:
    """An error of the store's library in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
