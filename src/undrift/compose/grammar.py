"""A method as a line of text: `scaffold + sam(rho=0.05) + high-pass(0.01) + fedawa + fedper`.

Terms are joined by "+". A term is a name with optional arguments in parentheses, and fills slots:

- an algorithm (`fedsam`) fills the slots in which it differs from FedAvg;
- a block (`sam`, `stale-global`) fills its own slot, or with a prefix the slot named: `momentum:feddyn`. After a prefix
  a name always means a block: `drift:scaffold` keeps weights by examples, `scaffold` sets equal weights;
- `by-part('head.*', local-sgd(0.9), '*', local-adam())` gives the tensors that a pattern names blocks of their own;
- a filter (`high-pass(0.01)`) acts on the offset of a perturbation if an earlier term has one, else on the gradient;
  `perturbation:` and `gradient:` select one.

No slot may be filled twice, with two exceptions. The default weights of an algorithm, equal or by examples, are
replaced by another term's weight rule. A block that `extends` the block of an algorithm replaces it, in either order,
and takes over its arguments of the same name that the term does not give: `fedspeed(blend=0.5) + fsa(larger=0.9)` is
FedSpeed with FSA's larger radius, and keeps its rho and its blend.

A name is one of ours, a plug-in's, or a reference to a block, a filter or a function that returns an algorithm:
`fedavg + mypackage.blocks:MyDrift(0.1)`, with a slot `drift:mypackage.blocks:MyDrift(0.1)`; see `terms`.

Case, dashes and underscores in names are ignored, except in references. Arguments are literals; nothing is evaluated.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from inspect import cleandoc, signature
from typing import Any

from undrift.blocks import ByExamples, Filter, Filters, Uniform
from undrift.compose.terms import Term, as_term, check_part, maker, name_of, parts, read_composition, with_dashes
from undrift.core.method.algorithm import SLOTS, Algorithm
from undrift.core.method.block import AnyBlock
from undrift.core.method.parts import ByPart, by_part
from undrift.util.naming.binding import build, conform_argument
from undrift.util.naming.calls import Call, changed_fields, read_call, read_terms
from undrift.util.naming.names import normalize_name

BY_PART = "by-part"
"""The term that gives tensors by name blocks of their own."""

FILTERED: tuple[str, ...] = ("perturbation", "gradient")
"""What a filter can act on: the fields of the spectral slot."""

_DEFAULT_WEIGHTS = (Uniform, ByExamples)


@dataclass(frozen=True)
class _Place:
    """A slot, or one of the two filters of the spectral slot."""

    slot: str
    filter: str = ""

    def __str__(self) -> str:
        return f"the filter on the {self.filter}" if self.filter else f"the {self.slot} slot"


Filled = dict[_Place, AnyBlock | Filter]


@dataclass(frozen=True)
class _Filling:
    """A term as written, and what it fills."""

    text: str
    fills: Filled
    others: tuple[str, ...] = ()
    """Terms that put the same part into other places."""
    given: frozenset[str] | None = None
    """What the term of a block or a filter gives, or what is not a default if a function makes it; None for an
    algorithm, or a term that extends one."""

    def over(self, place: _Place, host: "_Filling") -> AnyBlock | None:
        """Its block in place of one of an algorithm that it extends, with what that one sets and the term does not."""
        block, replaced = self.fills[place], host.fills[place]
        if self.given is None or host.given is not None or isinstance(block, Filter) or isinstance(replaced, Filter):
            return None
        if not isinstance(replaced, block.extends):
            return None
        shared = {f.name for f in fields(block)} & {f.name for f in fields(replaced)} - self.given
        return replace(block, **{name: getattr(replaced, name) for name in shared})

    def yields(self, place: _Place) -> bool:
        """Whether another term may replace its part: default weights of an algorithm that also fills other slots."""
        return len(self.fills) > 1 and place.slot == "aggregation" and isinstance(self.fills[place], _DEFAULT_WEIGHTS)

    def hint(self) -> str:
        """What to write instead if it conflicts with another term."""
        if len(self.fills) > 1:
            return f", or write what you want of {self.text} alone: {_join_terms(self.fills)}"
        return f", or write {self.others[0]}" if self.others else ""


def parse(text: str) -> Algorithm:
    """The algorithm that a line of text describes.

    Args:
        text: terms joined by "+".

    Example:
        >>> parse("fedsam(0.05) + highpass(0.01)")  # FedFFT
        Algorithm(perturbation=SAM(rho=0.05, blend=1.0), spectral=Filters(perturbation=high_pass(r=0.01), gradient=None), aggregation=Uniform())
    """  # noqa: E501  a doctest's output cannot be broken
    filled: dict[_Place, tuple[_Filling, AnyBlock | Filter]] = {}
    for written in read_composition(text):
        term = _read(written, any(place.slot == "perturbation" for place in filled))
        for place, part in term.fills.items():
            before, _ = filled.get(place, (None, None))
            if before is None or before.yields(place):
                filled[place] = (term, part)
            elif not term.yields(place):
                filled[place] = _extend(place, before, term)
    _one_filter_block(filled)
    filters: dict[str, Any] = {place.filter: part for place, (_, part) in filled.items() if place.filter}
    slots: dict[str, Any] = {place.slot: part for place, (_, part) in filled.items() if not place.filter}
    if filters:
        slots["spectral"] = Filters(**filters)
    return Algorithm(**slots)


def text(algorithm: Algorithm) -> str:
    """The canonical text of an algorithm; `parse` returns an equal algorithm.

    It names every block with its slot, in the order of a round, without arguments that have their default values.

    Example:
        >>> text(parse("scaffold + sam(0.05)"))
        'perturbation:sam(rho=0.05) + drift:scaffold + aggregation:uniform'
    """
    return _join_terms(_fills(algorithm)) or "fedavg"


def explain_terms(algorithm: Algorithm) -> dict[str, str]:
    """The terms of `text`, each with the first lines of its docstring: what the client and the server do.

    Example:
        >>> explain_terms(parse("uniform"))
        {'aggregation:uniform': 'server:  delta = 1/m sum_i delta_i'}
    """
    about = {place: cleandoc(type(part).__doc__ or "") for place, part in _fills(algorithm).items()}
    return {_write_term(place, part): about[place].partition("\n\n")[0] for place, part in _fills(algorithm).items()}


def is_composition(text: str) -> bool:
    """Whether a text is a composition rather than an algorithm's name."""
    return any(sign in text for sign in "+(:")


def with_arguments(text: str, arguments: Mapping[str, object]) -> str:
    """A term with the arguments written beside it, as a run file has them.

    Args:
        text: a composition; only a single term without arguments of its own takes any.
        arguments: by name.

    Example:
        >>> with_arguments("momentum:feddyn", {"mu": 0.1})
        'momentum:feddyn(mu=0.1)'
    """
    if not arguments:
        return text
    call, *others = read_terms(text)
    if others:
        raise ValueError(
            'arguments: a composition includes them; write method = "scaffold + sam(rho=0.05)"; to tune '
            f'{next(iter(arguments))}, write one term alone, "objective:proximal", or a function with this argument '
            'that returns the Algorithm, "package.module:function"'
        )
    if call.positional or call.named:
        beside = f", or all of them as arguments of {call.name!r}" if ":" in call.name else ""
        raise ValueError(f"arguments: {text!r} has arguments in its brackets; write all of them there{beside}")
    return str(replace(call, named=arguments))


def _read(term: Term, perturbed: bool) -> _Filling:
    """What a term fills; `perturbed` is whether an earlier term has a perturbation."""
    if normalize_name(term.name) == normalize_name(BY_PART):
        block = _read_parts(term.call)
        return _place_part(term.source, block, term.slot or block.home, term.source)
    make, source = maker(term), term.source
    part = check_part(build(make, term.call), source)
    if isinstance(part, Algorithm):
        if term.slot:
            raise ValueError(f"{source!r}: {term.name} is an algorithm; write it without {with_dashes(term.slot)}:")
        return _Filling(source, _fills(part))
    name = term.name if term.reference else next((own for own, kind in parts().items() if kind is make), term.name)
    placed = _place_part(source, part, term.slot or _home(part, perturbed), str(replace(term.call, name=name)))
    if make is type(part):
        return replace(
            placed, given=frozenset(signature(make).bind(*term.call.positional, **term.call.named).arguments)
        )
    return replace(placed, given=frozenset(changed_fields(part)))  # what a function of one's own sets


def _read_parts(call: Call) -> AnyBlock:
    """The block of `by-part('head.*', local-sgd(0.9), '*', local-adam)`: name patterns and blocks in turn."""
    patterns, blocks = call.positional[::2], call.positional[1::2]
    named = [pattern for pattern in patterns if isinstance(pattern, str)]
    if call.named or not blocks or len(named) != len(blocks) or not all(isinstance(x, str | Call) for x in blocks):
        raise ValueError(
            f"{call.source!r}: write name patterns and blocks in turn, {BY_PART}('head.*', local-sgd(0.9), '*', "
            "local-adam(0.9))"
        )
    calls = [block if isinstance(block, Call) else read_call(str(block)) for block in blocks]
    made = [build(maker(as_term(one)._replace(slot=BY_PART)), one) for one in calls]  # a name means a block here
    block: AnyBlock = by_part(dict(zip(named, made, strict=True)))  # type: ignore[arg-type]
    return block


def _place_part(source: str, made: AnyBlock | Filter, where: str, bare: str) -> _Filling:
    """The term of a block or a filter, with the other places that it fits."""
    if isinstance(made, Filter):
        if where not in FILTERED:
            raise ValueError(f"{source!r}: a filter acts on the gradient or the perturbation: write gradient:{bare}")
        places, place = FILTERED, _Place("spectral", where)
    elif where == "gradient":
        raise ValueError(f"{source!r}: only filters act on the gradient; {bare.partition('(')[0]} is a block")
    else:
        places, place = _fits(made), _Place(where)
    others = tuple(f"{with_dashes(other)}:{bare}" for other in places if other != where)
    return _Filling(source, {place: made}, others)


def _one_filter_block(filled: Mapping[_Place, tuple[_Filling, AnyBlock | Filter]]) -> None:
    """Raise if one term fills the spectral slot as a whole, as `whiten` does, and another one of its filters."""
    spectral = {place: term for place, (term, _) in filled.items() if place.slot == "spectral"}
    whole = spectral.pop(_Place("spectral"), None)
    if whole is not None and spectral:
        part = next(iter(spectral.values()))
        first, second = dict.fromkeys(term.text for term, _ in filled.values() if term in (whole, part))
        hint = part.hint() if len(part.fills) > 1 else ""
        raise ValueError(f"{first!r} and {second!r} both fill the spectral slot; leave one of them out{hint}")


def _extend(place: _Place, before: _Filling, term: _Filling) -> tuple[_Filling, AnyBlock | Filter]:
    """Which of two terms fills a place, and with what: the one that extends the other's block, or an error."""
    for one, host in ((term, before), (before, term)):
        if (block := one.over(place, host)) is not None:
            return replace(one, fills={place: block}, given=None), block
    hint = term.hint() or before.hint()
    raise ValueError(f"{before.text!r} and {term.text!r} both fill {place}; leave one of them out{hint}")


def _home(part: AnyBlock | Filter, perturbed: bool) -> str:
    """The place of a part without a prefix."""
    if isinstance(part, Filter):
        return FILTERED[0] if perturbed else FILTERED[1]
    return part.home


def _fits(block: AnyBlock) -> tuple[str, ...]:
    """The slots that a block fits."""
    return tuple(slot for slot, kind in SLOTS.items() if isinstance(block, kind))


def _fills(algorithm: Algorithm) -> Filled:
    """The places in which an algorithm differs from FedAvg, in the order of a round."""
    out: Filled = {}
    for slot, block in algorithm.slots():
        chosen = {place: getattr(block, place) for place in FILTERED} if isinstance(block, Filters) else {}
        if any(part is not None for part in chosen.values()):
            out |= {_Place(slot, place): part for place, part in chosen.items() if part is not None}
        elif block != getattr(Algorithm, slot):
            out[_Place(slot)] = block
    return out


def _join_terms(fills: Filled) -> str:
    """The filled places as text."""
    return " + ".join(_write_term(place, part) for place, part in fills.items())


def _write_term(place: _Place, part: AnyBlock | Filter) -> str:
    """The term of one part."""
    where = with_dashes(place.filter or place.slot)
    if isinstance(part, ByPart):
        own = [(name, block) for name, block in part.parts if name != "*" or type(block) not in SLOTS.values()]
        return str(Call(f"{where}:{BY_PART}", tuple(x for name, block in own for x in (name, str(_call(block))))))
    call = _call(part)
    return str(replace(call, name=f"{where}:{call.name}"))


def _call(part: AnyBlock | Filter) -> Call:
    """A block or a filter with the arguments that are not its defaults."""
    kind = type(part)
    given = {key: conform_argument(kind, key, value) for key, value in changed_fields(part).items()}
    return Call(name_of(kind), (), given)
