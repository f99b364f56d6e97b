"""The installed plug-ins, each imported once to see whether it works."""

from collections.abc import Callable
from typing import NamedTuple

from undrift.algorithms import METHODS, make
from undrift.compose.terms import BLOCKS, maker, read_composition
from undrift.data.files.known import PLUGINS as DATA
from undrift.data.files.known import find_source
from undrift.models import PLUGINS as MODELS
from undrift.models import arguments
from undrift.util.naming.plugins import Plugin, PluginGroup

_CHECKS: tuple[tuple[PluginGroup, Callable[[str], object]], ...] = (
    (METHODS, make),
    (BLOCKS, lambda name: maker(read_composition(name)[0])),
    (MODELS, arguments),
    (DATA, find_source),
)


class Survey(NamedTuple):
    """The plug-ins that work, and in one line each why others do not."""

    working: list[Plugin]
    problems: list[str]


def survey() -> Survey:
    """All installed plug-ins."""
    working, problems = list[Plugin](), list[str]()
    for group, check in _CHECKS:
        problems += group.refused()
        for name, plugin in group.known().items():
            try:
                check(name)
                working.append(plugin)
            except Exception as error:  # the code is another package's
                text = " ".join(str(error).split())
                problems.append(text if text.startswith("plug-in") else f"{plugin}: {type(error).__name__}: {text}")
    return Survey(working, problems)


def by_package(working: list[Plugin]) -> dict[str, str]:
    """What each package adds, as "methods: a, b; models: c"."""
    out: dict[str, dict[str, list[str]]] = {}
    for plugin in working:
        kind = plugin.group.removeprefix("undrift.")
        out.setdefault(plugin.package, {}).setdefault(kind, []).append(plugin.name)
    return {
        package: "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())
        for package, kinds in out.items()
    }
