"""Plug-ins: installed packages that add methods, blocks, models and data sets through entry points.

Their names are read from the packages' metadata; a plug-in is imported only when its name is used.
"""

import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from undrift.util.naming.names import normalize_name
from undrift.util.naming.references import Reference


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package.

    Args:
        group: what it adds: "undrift.methods", "undrift.blocks", "undrift.models" or "undrift.data".
        name: its name wherever ours are taken.
        value: where it is, as `package.module:object`.
        package: the name of the package that has it.
    """

    group: str
    name: str
    value: str
    package: str

    def __str__(self) -> str:
        return f"plug-in {self.name!r} of {self.package}"

    def load(self) -> Any:
        """The object; raises a `ValueError` that names the plug-in and what is wrong with it."""
        reference = Reference.parse(self.value)
        if reference is None:
            raise ValueError(f"{self}: its entry point must be written package.module:object, got {self.value!r}")
        try:
            return reference.resolve()
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None


@dataclass(frozen=True, eq=False)
class PluginGroup:
    """The plug-ins of one kind.

    Args:
        name: the group of entry points, such as "undrift.models".
        taken: names that no plug-in can have, because they are ours; case, dashes and underscores are ignored.
    """

    name: str
    taken: Collection[str] = ()

    def known(self) -> dict[str, Plugin]:
        """The plug-ins that can be used, by name."""
        return {plugin.name: plugin for plugin in plugins(self.name) if not self._refusal(plugin)}

    def find(self, name: str) -> Plugin | None:
        """The plug-in with a name, or None; raises a `ValueError` if it is refused."""
        for plugin in plugins(self.name):
            if normalize_name(plugin.name) == normalize_name(name):
                if refusal := self._refusal(plugin):
                    raise ValueError(refusal)
                return plugin
        return None

    def refused(self) -> list[str]:
        """Why plug-ins are refused that have a name of ours, or of another package."""
        return [refusal for plugin in plugins(self.name) if (refusal := self._refusal(plugin))]

    def _refusal(self, plugin: Plugin) -> str:
        """Why a plug-in is refused, without importing it; "" if it is not."""
        key = normalize_name(plugin.name)
        if key in map(normalize_name, self.taken):
            return f"{plugin}: undrift itself has this name; ask the package's authors for another"
        others = [other.package for other in plugins(self.name) if normalize_name(other.name) == key]
        if len(others) > 1:
            return f"{plugin}: {' and '.join(others)} both have this name; uninstall one of them"
        return ""


def plugins(group: str) -> tuple[Plugin, ...]:
    """Every entry point of a group, whether it can be used or not, sorted by name; imports nothing.

    Args:
        group: such as "undrift.models".
    """
    return _find_plugins(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _find_plugins(group: str, _path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """The entry points of the packages on a path."""
    from importlib.metadata import entry_points  # here, because help and refused arguments do without it

    found = [
        Plugin(group, point.name, point.value, point.dist.name if point.dist else "an unknown package")
        for point in entry_points(group=group)
    ]
    return tuple(sorted(found, key=lambda plugin: (plugin.name, plugin.package)))
