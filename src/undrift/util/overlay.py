"""A mapping of many entries of which each version differs from the one before in few."""

from collections.abc import Iterator, Mapping
from typing import Self, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Overlay(Mapping[Key, Value]):
    """A mapping that is never changed: `updated` makes the next version, in time that grows as the root of its size.

    Versions share one dictionary of most entries, over which each has a small one of its own. When the small one has
    more entries than the root of the large one's, both become a new large one.

    Args:
        entries: the first entries; not changed afterwards.

    Example:
        >>> first = Overlay({1: "a", 2: "b"})
        >>> second = first.updated({2: "c", 3: "d"})
        >>> dict(first), dict(second), len(second)
        ({1: 'a', 2: 'b'}, {1: 'a', 2: 'c', 3: 'd'}, 3)
    """

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        self._most = dict(entries)
        self._own = dict[Key, Value]()

    @classmethod
    def of(cls, entries: Mapping[Key, Value]) -> Self:
        """The entries themselves if they are such a mapping, else a copy."""
        return entries if isinstance(entries, cls) else cls(entries)

    def updated(self, entries: Mapping[Key, Value]) -> Self:
        """These entries with others, which replace those of the same key."""
        out = self.of({})
        out._most, out._own = self._most, {**self._own, **entries}
        if len(out._own) ** 2 > len(out._most):
            out._most, out._own = {**out._most, **out._own}, {}
        return out

    def __getitem__(self, key: Key) -> Value:
        return self._own[key] if key in self._own else self._most[key]

    def __contains__(self, key: object) -> bool:
        return key in self._own or key in self._most

    def __iter__(self) -> Iterator[Key]:
        yield from self._most
        yield from (key for key in self._own if key not in self._most)

    def __len__(self) -> int:
        return len(self._most) + sum(key not in self._most for key in self._own)

    def __repr__(self) -> str:
        return f"Overlay({dict(self)!r})"
