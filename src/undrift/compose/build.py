"""Methods from text, a name or a composition, and the values that a paper's preset has for them."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, NamedTuple

from undrift import algorithms
from undrift.compose.grammar import is_composition, parse, with_arguments
from undrift.compose.terms import Term, keys, parts, read_composition
from undrift.core.local import presets
from undrift.core.method.algorithm import Algorithm
from undrift.util.naming.calls import value_text
from undrift.util.naming.names import normalize_name


def make(method: str, *, preset: str | None = None, **arguments: object) -> Algorithm:
    """A method by its name, or from a composition.

    Args:
        method: a name from `undrift list`, or terms joined by "+" with their arguments: "scaffold + sam(rho=0.05)".
        preset: a paper whose values the arguments have that are not given; `undrift show NAME` lists them.
        arguments: the arguments of a name or a single term; the others have their defaults. A composition of several
            terms includes its arguments.

    Example:
        >>> make("fedsam", rho=0.05) == make("fedsam(0.05)") == make("fedavg + sam(0.05) + uniform")
        True
        >>> make("fedgloss", preset="fedfft").server_optimizer
        ServerSAM(rho=0.1, warmup=0, first=0.001)
    """
    if not is_composition(method):
        return algorithms.make(method, preset=preset, **arguments)
    if arguments and preset is not None:
        raise TypeError(f"make: with a preset a composition includes its arguments; write them into {method!r}")
    method = with_arguments(method, arguments)
    return parse(method if preset is None else resolve(preset, method, {}).method)


class Resolved(NamedTuple):
    """A method with the values of a preset: the method, its arguments and the settings of local training."""

    method: str
    arguments: dict[str, Any]
    local: dict[str, Any]


def resolve(name: str, method: str, arguments: Mapping[str, Any] | None = None) -> Resolved:
    """A method, by name or as a composition, with the values of a preset; what is given overrides them.

    In a composition every term gets the values of its own name; if two set the same local setting, the first counts.

    Args:
        name: the preset's name.
        method: an algorithm's name, or a composition.
        arguments: arguments of a named algorithm.

    Example:
        >>> resolve("fedfsa", "fedsam + fsa(larger=0.9)").method
        'fedsam(rho=0.05) + fsa(larger=0.9, rho=0.1, count=2)'
    """
    found = presets.preset(name)
    if not is_composition(method):
        own = found.of(method)
        return Resolved(method, {**own.arguments, **(arguments or {})}, {**found.local, **own.local})
    try:
        terms = [_fill_term(term, found) for term in read_composition(method)]
    except ValueError:  # `parse` reports what is wrong with it
        return Resolved(method, dict(arguments or {}), dict(found.local))
    local = dict(found.local)
    for _, own in reversed(terms):
        local |= own.local
    return Resolved(" + ".join(term for term, _ in terms), dict(arguments or {}), local)


def _fill_term(term: Term, found: presets.Preset) -> tuple[str, presets.MethodPreset]:
    """A term with the arguments that the preset has for its name, and everything that the preset has for it."""
    call, key = term.call, keys(found.methods).get(normalize_name(term.name), "")
    if not key or (term.slot and key in algorithms.ALGORITHMS):
        return call.source, presets.MethodPreset()
    own = found.of(key)
    try:
        takes = signature(algorithms.ALGORITHMS.get(key) or parts()[key])
        given = takes.bind_partial(*call.positional, **call.named).arguments
    except TypeError:
        return call.source, own  # `parse` reports what is wrong with it
    missing = [f"{argument}={value_text(value)}" for argument, value in own.arguments.items() if argument not in given]
    before = call.source.removesuffix(")").rstrip().removesuffix(",") if "(" in call.source else f"{call.source}("
    separator = "" if before.endswith("(") else ", "
    return f"{before}{separator}{', '.join(missing)})" if missing else call.source, own
