"""Ranges of numbers as annotations."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from undrift.core.method.block import Correction
from undrift.util.naming.binding import build, range_of
from undrift.util.naming.calls import Call
from undrift.util.naming.ranges import (
    AboveZero,
    Count,
    Epsilon,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    PositiveShare,
    Range,
    Share,
    Whole,
    positive,
)

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("hint", "inside", "outside"),
    [
        (NonNegative, (0, 0.0, 3.5), (-0.1, INF, NAN)),
        (Positive, (1e-300, 2), (0, -1.0, INF, NAN)),
        (AboveZero, (1e-300, INF), (0, -1.0, NAN)),
        (Fraction, (0, 0.99), (-0.1, 1, NAN)),
        (Share, (0, 1.0), (-0.1, 1.1, NAN)),
        (PositiveShare, (0.1, 1), (0, 1.1, NAN)),
        (Count, (1, 7), (0, -1, 1.5)),
        (Whole, (0, 7), (-1, 1.5)),
        (Natural, (0, 7), (-1,)),
        (Epsilon, (1e-8,), (0.0, INF, NAN)),
    ],
)
def test_what_lies_inside(hint: Any, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    found = range_of(hint)
    assert found is not None
    for value in inside:
        found.check("x", value)
    for value in outside:
        with pytest.raises(ValueError, match="x must be ") as caught:
            found.check("x", value)
        assert str(caught.value) == f"x must be {found.words}, got {value}{found.advice}"


def test_a_range_of_ones_own() -> None:
    assert range_of(float) is None and positive(1.0) and not positive(INF)

    @dataclass(frozen=True)
    class Turned(Correction):
        angle: Annotated[float, Range("in [0, 360)", lambda x: 0 <= x < 360, "; 90 is a right angle")] = 90.0

    @dataclass(frozen=True)
    class Further(Turned):
        """A derived class, with no rule of its own, keeps that of its base."""

        other: float = 1.0

    assert Turned(5).angle == 5
    for kind in (Turned, Further):
        with pytest.raises(ValueError, match=rf"{kind.__name__}: angle must be in \[0, 360\), got 400; 90 is"):
            kind(400)
        with pytest.raises(TypeError, match="angle must be a number, got 'right'"):
            kind("right")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"it takes angle: float = 90\.0$"):
        build(Turned, Call("turned", (), {"corner": 1}))
