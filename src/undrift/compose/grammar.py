"""A method as a line of text: `scaffold + sam(rho=0.05) + high-pass(0.01) + fedawa + fedper`.

Terms are joined by "+". A term is a name with, if wanted, arguments in brackets, and fills slots:

- an algorithm (`fedsam`) fills those in which it differs from FedAvg;
- a block (`sam`, `stale-global`) fills its own slot, and with a prefix the one named: `momentum:feddyn`. After a
  prefix a name is always a block's: `drift:scaffold` leaves the weights by examples, `scaffold` sets them equal;
- a filter (`high-pass(0.01)`) acts on the offset of a perturbation if a term before it has one, else on the gradient;
  `perturbation:` and `gradient:` say which.

No slot is filled twice. Only the plain weights that come with an algorithm, equal or by examples, give way to a weight
rule of another term. Dashes, underscores and capitals in names do not matter. Arguments are literals; nothing is
evaluated.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from undrift import blocks
from undrift.algorithms import ALGORITHMS
from undrift.blocks import ByExamples, Filter, Filters, Uniform
from undrift.core.algorithm import SLOTS, Algorithm
from undrift.core.block import AnyBlock
from undrift.util.literals import bracketed, called, fitted, split, written
from undrift.util.names import normalized, suggest

FILTERED: tuple[str, ...] = ("perturbation", "gradient")
"""What a filter acts on: the fields of the spectral slot."""


_PLAIN = (Uniform, ByExamples)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TERM = re.compile(r"(?:([A-Za-z][\w-]*)\s*:\s*)?([A-Za-z][\w-]*)\s*(\(.*\))?", re.DOTALL)


@dataclass(frozen=True)
class _Place:
    """A slot, or one of the two filters of the spectral slot."""

    slot: str
    filter: str = ""

    def __str__(self) -> str:
        return f"the filter on the {self.filter}" if self.filter else f"the {self.slot} slot"


Filled = dict[_Place, AnyBlock | Filter]


@dataclass(frozen=True)
class _Term:
    """A term as it was written, and what it fills."""

    text: str
    fills: Filled
    others: tuple[str, ...] = ()
    """The same part in other places."""

    def yields(self, place: _Place) -> bool:
        """Whether it leaves a place to others: the plain weights that come with an algorithm of more than weights."""
        return len(self.fills) > 1 and place.slot == "aggregation" and isinstance(self.fills[place], _PLAIN)

    def hint(self) -> str:
        """What to write if it is in another's way."""
        if len(self.fills) > 1:
            return f", or write what you want of {self.text} alone: {_joined(self.fills)}"
        return f", or write {self.others[0]}" if self.others else ""


def parse(text: str) -> Algorithm:
    """The algorithm that a line of text describes.

    Args:
        text: terms joined by "+", as above.

    Example:
        >>> parse("fedsam(0.05) + highpass(0.01)")  # FedFFT
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), spectral=Filters(perturbation=high_pass(r=0.01), gradient=None), aggregation=Uniform())
    """  # noqa: E501  a doctest's output cannot be broken
    filled: dict[_Place, tuple[_Term, AnyBlock | Filter]] = {}
    for source in split(text):
        term = _read(source, any(place.slot == "perturbation" for place in filled))
        for place, part in term.fills.items():
            before = filled.get(place)
            if before is not None and before[0].yields(place):
                before = None
            if before is None or not term.yields(place):
                filled[place] = (_alone(place, before, term), part)
    filters: dict[str, Any] = {place.filter: part for place, (_, part) in filled.items() if place.filter}
    slots: dict[str, Any] = {place.slot: part for place, (_, part) in filled.items() if not place.filter}
    if filters:
        slots["spectral"] = Filters(**filters)
    return Algorithm(**slots)


def text(algorithm: Algorithm) -> str:
    """The canonical line of an algorithm, which `parse` reads back to an equal one.

    Every block with its slot, in the order of a round; arguments at their defaults are left out.

    Example:
        >>> text(parse("scaffold + sam(0.05)"))
        'perturbation:sam(rho=0.05) + drift:scaffold + aggregation:uniform'
    """
    return _joined(_fills(algorithm)) or "fedavg"


def parts() -> Mapping[str, Callable[..., AnyBlock | Filter]]:
    """Every block and filter by the name a term calls it."""
    classes = (getattr(blocks, name) for name in blocks.__all__ if name not in ("Filter", "Filters"))
    return _named(tuple(classes), tuple(ALGORITHMS))


def _read(source: str, perturbed: bool) -> _Term:
    """One term; `perturbed` says whether a term before it has a perturbation."""
    match = _TERM.fullmatch(source)
    if match is None:
        raise ValueError(f"{source!r} is no term; write a name and its arguments, for example sam(rho=0.05)")
    prefix, name, arguments = match.groups(default="")
    algorithm, known = _keys(ALGORITHMS).get(normalized(name)), parts()
    if algorithm is not None and not prefix:
        return _Term(source, _fills(called(ALGORITHMS[algorithm], bracketed(arguments, source), source)))
    part = _keys(known).get(normalized(name))
    if part is None and algorithm is not None:
        raise ValueError(f"{source!r}: {algorithm} is an algorithm and fills its own slots; write it without {prefix}:")
    if part is None:
        raise ValueError(f"no algorithm, block or filter is named {name!r}; {suggest(name, {**ALGORITHMS, **known})}")
    made = called(known[part], bracketed(arguments, source), source)
    return _placed(source, made, _prefix(prefix, source) or _home(made, perturbed), f"{part}{arguments}")


def _placed(source: str, made: AnyBlock | Filter, where: str, bare: str) -> _Term:
    """A block or a filter in its place, with the other places it fits."""
    if isinstance(made, Filter):
        if where not in FILTERED:
            raise ValueError(f"{source!r}: a filter acts on the gradient or the perturbation: write gradient:{bare}")
        places, place = FILTERED, _Place("spectral", where)
    elif where == "gradient":
        raise ValueError(f"{source!r}: only filters act on the gradient; {bare.partition('(')[0]} is a block")
    else:
        places, place = _fits(made), _Place(where)
    others = tuple(f"{_dashed(other)}:{bare}" for other in places if other != where)
    return _Term(source, {place: made}, others)


def _alone(place: _Place, before: tuple[_Term, object] | None, term: _Term) -> _Term:
    """The term, unless another one has filled the place."""
    if before is not None:
        hint = term.hint() or before[0].hint()
        raise ValueError(f"{before[0].text!r} and {term.text!r} both fill {place}; leave one of them out{hint}")
    return term


def _home(part: AnyBlock | Filter, perturbed: bool) -> str:
    """Where a part goes that has no prefix: the block's own home."""
    if isinstance(part, Filter):
        return FILTERED[0] if perturbed else FILTERED[1]
    return part.home


def _fits(block: AnyBlock) -> tuple[str, ...]:
    """The slots a block fits."""
    return tuple(slot for slot, kind in SLOTS.items() if isinstance(block, kind))


@lru_cache(maxsize=8)
def _named(classes: tuple[type, ...], algorithms: tuple[str, ...]) -> Mapping[str, type]:
    """Classes by their names with dashes, or as the algorithm of the same name has it: feddyn, not fed-dyn."""
    names, spelled = _keys(algorithms), [_dashed(re.sub(_HUMP, "-", part.__name__).lower()) for part in classes]
    return {names.get(normalized(name), name): part for name, part in zip(spelled, classes, strict=True)}


def _prefix(prefix: str, source: str) -> str:
    """The slot or filter that a prefix names; empty if there is none."""
    known = {_dashed(slot): slot for slot in (*SLOTS, "gradient")}
    match = _keys(known).get(normalized(prefix))
    if prefix and match is None:
        raise ValueError(f"{source!r}: no slot is named {prefix!r}; {suggest(prefix, known)}")
    return known[match] if match else ""


def _fills(algorithm: Algorithm) -> Filled:
    """The places in which an algorithm differs from FedAvg, in the order of a round."""
    out: Filled = {}
    for slot, block in algorithm.slots():
        if isinstance(block, Filters):
            chosen = {place: getattr(block, place) for place in FILTERED}
            out |= {_Place(slot, place): part for place, part in chosen.items() if part is not None}
        elif block != getattr(Algorithm, slot):
            out[_Place(slot)] = block
    return out


def _joined(fills: Filled) -> str:
    """What is filled, as terms."""
    names: dict[object, str] = {part: name for name, part in parts().items()}
    return " + ".join(_written(place, part, names) for place, part in fills.items())


def _written(place: _Place, part: AnyBlock | Filter, names: Mapping[object, str]) -> str:
    """The term of one part."""
    kind = type(part)
    if kind not in names:
        raise ValueError(f"{kind.__name__} is not among undrift.blocks, so no text can name it")
    given = {f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) != f.default}
    shown = [f"{key}={written(fitted(kind, key, value))}" for key, value in given.items()]
    return f"{_dashed(place.filter or place.slot)}:{names[kind]}" + (f"({', '.join(shown)})" if shown else "")


def _keys(known: Iterable[str]) -> dict[str, str]:
    """Names by what is left of them without dashes and capitals."""
    return {normalized(name): name for name in known}


def _dashed(name: str) -> str:
    return name.replace("_", "-")
