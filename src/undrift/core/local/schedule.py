"""Schedules of the learning rate, written as text: `cosine(over=100)`, `warmup(5) + step(every=30, factor=0.1)`.

A schedule gives a factor on the learning rate at a time t = 0, 1, ..., which counts rounds or the steps of a visit:

    warmup(n)            (t + 1) / n while t < n; then the term after it, with t counted from n on, or else 1
    step(every, factor)  factor^floor(t / every)
    exponential(factor)  factor^t
    cosine(over, least)  least + (1 - least) (1 + cos(pi t / over)) / 2; from t = over - 1 on it stays as it is
    linear(over, least)  least + (1 - least) (1 - t / over), as long
    package.module:name  what this function of t returns
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import cos, isfinite, pi

from undrift.util.naming.binding import build
from undrift.util.naming.calls import Call, changed_fields, read_terms
from undrift.util.naming.names import unknown_name
from undrift.util.naming.references import Reference

EXAMPLES = 'for example "cosine", "step(every=30, factor=0.1)" or "warmup(5) + cosine"'


@dataclass(frozen=True)
class _Warmup:
    n: int

    def __post_init__(self) -> None:
        _whole("n of warmup", self.n)

    def at(self, t: int) -> float:
        return min(1.0, (t + 1) / self.n)


@dataclass(frozen=True)
class _Stairs:
    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        _whole("every of step", self.every)
        _share("factor of step", self.factor)

    def at(self, t: int) -> float:
        return float(self.factor ** (t // self.every))


@dataclass(frozen=True)
class _Exponential:
    factor: float

    def __post_init__(self) -> None:
        _share("factor of exponential", self.factor)

    def at(self, t: int) -> float:
        return float(self.factor**t)


@dataclass(frozen=True)
class _Ending:
    """A fall from 1 towards `least` over so many rounds or steps; None leaves their number open."""

    over: int | None = None
    least: float = 0.0

    def __post_init__(self) -> None:
        name = type(self).__name__.strip("_").lower()
        _whole(f"over of {name}", 1 if self.over is None else self.over)
        if not 0 <= self.least <= 1:
            raise ValueError(f"schedule: least of {name} must be in [0, 1], got {self.least}")

    def at(self, t: int) -> float:
        assert self.over is not None
        return self.least + (1 - self.least) * self._height(min(t, self.over - 1), self.over)

    def _height(self, t: int, over: int) -> float:
        """How much of the fall is left at a time."""
        raise NotImplementedError


class _Cosine(_Ending):
    def _height(self, t: int, over: int) -> float:
        return (1 + cos(pi * t / over)) / 2


class _Linear(_Ending):
    def _height(self, t: int, over: int) -> float:
        return 1 - t / over


@dataclass(frozen=True)
class _Own:
    reference: str

    def at(self, t: int) -> float:
        factor = _function(self.reference)(t)
        if not isinstance(factor, int | float) or not (isfinite(factor) and factor >= 0):
            raise ValueError(f"schedule: {self.reference} must return a number of 0 or more, got {factor!r} at {t}")
        return float(factor)


_Decay = _Stairs | _Exponential | _Ending | _Own

_NAMES: dict[str, type[_Warmup | _Stairs | _Exponential | _Ending]] = {
    "warmup": _Warmup,
    "step": _Stairs,
    "exponential": _Exponential,
    "cosine": _Cosine,
    "linear": _Linear,
}


@dataclass(frozen=True)
class Schedule:
    """A factor on the learning rate: a warm-up, a decay, or a warm-up and then a decay.

    Args:
        warmup: the warm-up; None has none.
        decay: what follows; None stays at 1.
    """

    warmup: _Warmup | None = None
    decay: _Decay | None = None

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """A schedule from its text.

        Args:
            text: one term, or a warm-up and another term joined by "+".

        Example:
            >>> Schedule.parse("warmup(2) + step(every=3, factor=0.5)").factor(5)
            0.5
        """
        return _parse(text)

    @property
    def open(self) -> bool:
        """Whether it is a cosine or a line without a number of rounds or steps."""
        return isinstance(self.decay, _Ending) and self.decay.over is None

    def ending(self, end: int) -> "Schedule":
        """The same schedule, an open one filled in to reach from the warm-up to the end.

        Args:
            end: how many rounds or steps there are, warm-up included.
        """
        if not self.open:
            return self
        assert isinstance(self.decay, _Ending)
        return replace(self, decay=replace(self.decay, over=max(1, end - (self.warmup.n if self.warmup else 0))))

    def factor(self, t: int) -> float:
        """The factor at a time; an open one needs `ending` first."""
        if self.warmup is not None:
            if t < self.warmup.n:
                return self.warmup.at(t)
            t -= self.warmup.n
        return 1.0 if self.decay is None else self.decay.at(t)

    def __str__(self) -> str:
        """Its text, every argument named and those with default values left out."""
        return " + ".join(_text(term) for term in (self.warmup, self.decay) if term is not None)


@lru_cache(maxsize=64)
def _parse(text: str) -> Schedule:
    """Every term by its name, a warm-up first."""
    terms = [_term(call) for call in read_terms(text, EXAMPLES)]
    warmup = terms.pop(0) if isinstance(terms[0], _Warmup) else None
    if len(terms) > 1 or isinstance(terms[0] if terms else None, _Warmup):
        raise ValueError(f"schedule: {text!r}: write one term, or warmup(n) and then one other, {EXAMPLES}")
    return Schedule(warmup, terms[0] if terms else None)  # type: ignore[arg-type]  # no second warm-up: see above


def _term(call: Call) -> _Warmup | _Decay:
    """A term by its name, or the function of a reference."""
    if Reference.parse(call.source) is not None:
        _function(call.source)
        return _Own(call.source)
    if call.name not in _NAMES:
        raise ValueError(f"schedule: {unknown_name('schedule', call.name, _NAMES)}")
    kind: Callable[..., _Warmup | _Decay] = _NAMES[call.name]
    return build(kind, call)


@lru_cache(maxsize=64)
def _function(text: str) -> Callable[[int], object]:
    """The function that a reference names."""
    reference = Reference.parse(text)
    function = reference.resolve() if reference else None
    if not callable(function):
        raise ValueError(f"schedule: {text} must be a function of the round or step, got {function!r}")
    return function  # type: ignore[no-any-return]


def _text(term: _Warmup | _Decay) -> str:
    """A term as it is written."""
    if isinstance(term, _Own):
        return term.reference
    name = next(name for name, kind in _NAMES.items() if kind is type(term))
    return str(Call(name, (), changed_fields(term)))


def _whole(name: str, value: int) -> None:
    """Reject a count below 1."""
    if value < 1:
        raise ValueError(f"schedule: {name} must be a whole number of 1 or more, got {value}")


def _share(name: str, value: float) -> None:
    """Reject a factor outside (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"schedule: {name} must be in (0, 1], got {value}")
