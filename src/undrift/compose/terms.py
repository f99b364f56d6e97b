"""The terms of a composition, and what their names stand for.

A name is one of ours, a plug-in's, or a reference to one's own code: `mypackage.blocks:MyDrift`. What stands in front
of a ":" is a slot if there is one of this name, else a module: `drift:mypackage.blocks:MyDrift` has both.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from undrift import blocks
from undrift.algorithms import ALGORITHMS, METHODS
from undrift.blocks import Filter
from undrift.core.method.algorithm import SLOTS, Algorithm
from undrift.core.method.block import AnyBlock, Block
from undrift.util.naming.calls import Call, read_terms
from undrift.util.naming.names import normalize_name, suggest
from undrift.util.naming.plugins import PluginGroup
from undrift.util.naming.references import Reference

Part = AnyBlock | Filter

BLOCKS = PluginGroup("undrift.blocks", METHODS.taken)
"""The blocks and filters of plug-ins."""

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][A-Za-z])|(?<=[A-Z])(?=[A-Z][a-z])")


class Term(NamedTuple):
    """A term of a composition.

    Args:
        slot: what stands in front of its name, or "".
        name: its name or reference.
        call: the whole term with its arguments.
    """

    slot: str
    name: str
    call: Call

    @property
    def source(self) -> str:
        """The term as written."""
        return self.call.source

    @property
    def reference(self) -> Reference | None:
        """The reference that the name is, if it is one."""
        return Reference.parse(self.name)


def read_composition(text: str) -> list[Term]:
    """The terms of a composition.

    Example:
        >>> [(term.slot, term.name) for term in read_composition("momentum:feddyn(0.1) + mypackage.blocks:MyDrift")]
        [('momentum', 'feddyn'), ('', 'mypackage.blocks:MyDrift')]
    """
    return [as_term(call) for call in read_terms(text)]


def as_term(call: Call) -> Term:
    """A term with its slot, which is in front of the first colon if there is a slot of this name."""
    words = call.name.split(":")
    first = _slot(words[0]) if len(words) > 1 else ""
    name = ":".join(words[1:] if first else words)
    if ":" in name and Reference.parse(name) is None:
        raise ValueError(
            f"{call.source!r}: no slot is named {words[0]!r}; {suggest(words[0], map(with_dashes, _PLACES))}"
        )
    return Term(first, name, call)


def maker(term: Term) -> Callable[..., Part | Algorithm]:
    """The function or class that a term calls: an algorithm's, or that of a block or filter."""
    slot, name, source = term.slot, term.name, term.source
    if term.reference is not None:
        return _resolve_own(term.reference, source)
    algorithm, part = keys(ALGORITHMS).get(normalize_name(name)), keys(parts()).get(normalize_name(name))
    if algorithm is not None and not slot:
        return ALGORITHMS[algorithm]
    if part is not None:
        return parts()[part]
    if algorithm is not None:
        raise ValueError(f"{source!r}: {algorithm} is an algorithm and fills its own slots; write it without {slot}:")
    for group in (BLOCKS,) if slot else (METHODS, BLOCKS):
        if (plugin := group.find(name)) is not None:
            return _callable(plugin.load(), str(plugin))
    known = {**ALGORITHMS, **parts(), **METHODS.known(), **BLOCKS.known()}
    raise ValueError(f"no algorithm, block or filter is named {name!r}; {suggest(name, known)}")


def check_part(value: object, source: str) -> Part | Algorithm:
    """What a term makes if it is a block, a filter or an algorithm; raises a `ValueError` otherwise."""
    if isinstance(value, Block | Filter | Algorithm):
        return value
    raise ValueError(
        f"{source!r}: it must be a block (a class derived from Correction, Objective, ...), a filter, or a function "
        f"that returns one or an Algorithm, got {value!r:.80}"
    )


def parts() -> Mapping[str, Callable[..., Part]]:
    """Every block and filter of ours by its name in a term."""
    classes = (getattr(blocks, name) for name in blocks.__all__ if name not in ("Filter", "Filters"))
    return _name_classes(tuple(classes), tuple(ALGORITHMS))


def name_of(kind: type[Part]) -> str:
    """The name of a class in a term: ours, or the reference to it.

    Example:
        >>> name_of(blocks.StaleGlobal)
        'stale-global'
    """
    names: dict[object, str] = {part: name for name, part in parts().items()}
    if kind in names:
        return names[kind]
    reference = Reference.parse(f"{kind.__module__}:{kind.__qualname__}")
    if reference is None or reference.module == "__main__" or reference.resolve() is not kind:
        raise ValueError(
            f"{kind.__name__} is not in undrift.blocks, so it cannot be written as text; define it at the top of a "
            "module, from which it can be imported"
        )
    return str(reference)


def keys(known: Iterable[str]) -> dict[str, str]:
    """Names by their normalised form."""
    return {normalize_name(name): name for name in known}


def with_dashes(name: str) -> str:
    """A name with dashes instead of underscores."""
    return name.replace("_", "-")


_PLACES = (*SLOTS, "gradient")


def _slot(prefix: str) -> str:
    """The slot or filter that a prefix names; "" if it names none."""
    return keys(_PLACES).get(normalize_name(prefix), "")


def _resolve_own(reference: Reference, source: str) -> Callable[..., Any]:
    """What a reference names; a misspelled slot has the form of a module."""
    try:
        return _callable(reference.resolve(), repr(source))
    except ValueError:
        advice = suggest(reference.module, map(with_dashes, _PLACES))
        if "." in reference.module or not advice.startswith("did you mean") or find_spec(reference.module):
            raise
        raise ValueError(f"{source!r}: no slot is named {reference.module!r}; {advice}") from None


def _callable(value: Any, what: str) -> Callable[..., Any]:
    """The value of a name if it can be called."""
    if not callable(value):
        raise ValueError(f"{what}: it must be a block or a function that returns an Algorithm, got {value!r:.80}")
    return value  # type: ignore[no-any-return]


@lru_cache(maxsize=8)
def _name_classes(classes: tuple[type, ...], algorithms: tuple[str, ...]) -> Mapping[str, type]:
    """Classes by their names with dashes, or spelled as the algorithm of the same name: feddyn, not fed-dyn."""
    names, spelled = keys(algorithms), [with_dashes(re.sub(_HUMP, "-", part.__name__).lower()) for part in classes]
    return {names.get(normalize_name(name), name): part for name, part in zip(spelled, classes, strict=True)}
