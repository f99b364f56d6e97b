"""Partitions by lists of indices: from Python, from a JSON file, or from a function of the user."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undrift.data.partitions.schemes import Indices, Scheme
from undrift.util.naming.calls import Call
from undrift.util.naming.references import Reference


@dataclass(frozen=True)
class Listed(Scheme):
    """A scheme that lists which samples each client has, instead of dealing them."""

    listed: ClassVar[bool] = True

    def lists(self, labels: ArrayLike, owners: NDArray[Any] | None, clients: int | None, seed: int) -> Any:
        """The indices of each client, not yet checked."""
        raise NotImplementedError

    def client_indices(
        self, labels: ArrayLike, owners: NDArray[Any] | None, clients: int | None, seed: int
    ) -> tuple[Indices, ...]:
        """The sorted indices of each client."""
        lists = check_lists(self.lists(labels, owners, clients, seed), len(np.asarray(labels)), str(self))
        if clients not in (None, len(lists)):
            raise ValueError(f"{self}: it has lists of {len(lists)} clients, got clients={clients}; leave it out")
        return lists


@dataclass(frozen=True)
class FromFile(Listed):
    """The lists of a JSON file: a list of lists of indices, or an object whose values they are.

    Args:
        path: the file; a relative path is that of the working folder.
    """

    path: str
    name: ClassVar[str] = "file"

    def lists(self, labels: ArrayLike, owners: NDArray[Any] | None, clients: int | None, seed: int) -> Any:
        """What the file contains."""
        try:
            return json.loads(Path(self.path).expanduser().read_text(encoding="utf-8"))
        except OSError as error:
            where = f"a relative path is that of the working folder, which is {Path.cwd()}"
            raise ValueError(f"{self}: {error.strerror or error}; {where}") from None
        except ValueError as error:
            raise ValueError(f"{self}: not a JSON file ({error}); write a list of lists of indices") from None


@dataclass(frozen=True)
class FromFunction(Listed):
    """The lists that a function of yours returns.

    It is called by name with those of `labels`, `clients`, `seed` and `owners` that it takes, and with the settings.

    Args:
        reference: the function, as `package.module:function`.
        settings: further arguments, by name.
    """

    reference: str
    settings: tuple[tuple[str, object], ...] = ()
    name: ClassVar[str] = "reference"

    def call(self) -> Call:
        """The reference and its settings, which are sorted."""
        return Call(self.reference, (), dict(sorted(self.settings)))

    @property
    def fixed(self) -> bool:
        """Whether it has its own number of clients: it does not take `clients`."""
        return "clients" not in self._takes()

    def lists(self, labels: ArrayLike, owners: NDArray[Any] | None, clients: int | None, seed: int) -> Any:
        """What the function returns."""
        takes, known = self._takes(), {"labels": np.asarray(labels), "clients": clients, "seed": seed, "owners": owners}
        given = dict(self.settings)
        both = [name for name in given if name in known]
        if both:
            raise ValueError(f"{self}: {both[0]} is given by the run; leave it out")
        unknown = [name for name in given if name not in takes]
        absent = [name for name, need in takes.items() if need and name not in known and name not in given]
        if unknown or absent:
            wrong = f"no argument {unknown[0]!r}" if unknown else f"an argument {absent[0]!r} without a value"
            raise ValueError(f"{self}: the function has {wrong}; it takes {', '.join(takes) or 'no arguments'}")
        return _function(self.reference)(**{k: v for k, v in known.items() if k in takes}, **given)

    def _takes(self) -> dict[str, bool]:
        """The names of the function's arguments, and whether each must be given."""
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        parameters = signature(_function(self.reference)).parameters.values()
        return {p.name: p.default is Parameter.empty for p in parameters if p.kind in kinds}


def _function(text: str) -> Any:
    """The function that a reference names."""
    reference = Reference.parse(text)
    found = None if reference is None else reference.resolve()
    if not callable(found):
        raise ValueError(f"{text}: a partition must be a function that returns lists of indices, got {found!r}")
    return found


def check_lists(lists: Any, samples: int, source: str = "") -> tuple[Indices, ...]:
    """The sorted indices of each client, from lists, tuples, arrays or tensors; raises if one is wrong.

    Args:
        lists: the indices of each client; of a mapping the values are taken, in its order.
        samples: how many examples there are.
        source: where the lists come from, for errors.

    Example:
        >>> [own.tolist() for own in check_lists([[2, 0], [1]], samples=3)]
        [[0, 2], [1]]
    """
    begin = f"{source}: " if source else ""
    if isinstance(lists, str | bytes) or not hasattr(lists, "__len__") or not len(lists):
        raise ValueError(f"{begin}clients must be one list of indices for each client, got {_short(lists)}")
    named = isinstance(lists, Mapping)
    pairs = lists.items() if named else enumerate(lists)
    return tuple(_indices(own, samples, f"{begin}clients[{key!r}]") for key, own in pairs)


def _indices(own: Any, samples: int, whose: str) -> Indices:
    """The sorted indices of one client."""
    if isinstance(own, str | bytes) or not hasattr(own, "__len__"):
        raise ValueError(f"{whose}: a list of indices is needed, got {_short(own)}")
    if not len(own):
        raise ValueError(f"{whose}: it has no indices; leave such a client out")
    array = np.asarray(own)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        values = list(own) if array.ndim == 1 or isinstance(own, list | tuple) else [own]
        odd = next((x for x in values if isinstance(x, bool) or not isinstance(x, int | np.integer)), values[0])
        raise ValueError(f"{whose}: indices must be whole numbers, got {_short(odd)}")
    array = np.sort(array.astype(np.int64))
    for worst in (int(array[0]), int(array[-1])):
        if not 0 <= worst < samples:
            raise ValueError(f"{whose}: index {worst}, but there are {samples} examples; indices start at 0")
    twice = array[1:][array[1:] == array[:-1]]
    if len(twice):
        raise ValueError(f"{whose}: index {twice[0]} is given twice; name each example once")
    return array


def _short(value: object) -> str:
    """A value as text for an error, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
