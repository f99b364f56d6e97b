"""Ranges of numbers as annotations: `rho: NonNegative = 0.05` is refused where it is out of range.

`binding.check_fields` reads them when a block is made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any


@dataclass(frozen=True)
class Range:
    """What the numbers of an annotation must be.

    Args:
        words: the range, as it stands in the refusal.
        holds: whether a number lies in it; NaN must not.
        advice: what follows the refused value.

    Example:
        >>> Angle = Annotated[float, Range("in [0, 360)", lambda x: 0 <= x < 360)]
    """

    words: str
    holds: Callable[[Any], bool]
    advice: str = ""

    def check(self, name: str, value: object) -> None:
        """Raise a `ValueError` if a number lies outside.

        Args:
            name: of the argument.
            value: its value.
        """
        if not self.holds(value):
            raise ValueError(f"{name} must be {self.words}, got {value}{self.advice}")


def positive(x: float) -> bool:
    """Whether a number is above 0 and finite."""
    return 0 < x < inf


NonNegative = Annotated[float, Range("0 or more and finite", lambda x: 0 <= x < inf)]
Positive = Annotated[float, Range("positive and finite", positive)]
AboveZero = Annotated[float, Range("positive", lambda x: x > 0)]  # infinity, too
Fraction = Annotated[float, Range("in [0, 1)", lambda x: 0 <= x < 1)]
Share = Annotated[float, Range("in [0, 1]", lambda x: 0 <= x <= 1)]
PositiveShare = Annotated[float, Range("in (0, 1]", lambda x: 0 < x <= 1)]
Count = Annotated[int, Range("a whole number of 1 or more", lambda x: isinstance(x, int) and x >= 1)]
Whole = Annotated[int, Range("a whole number of 0 or more", lambda x: isinstance(x, int) and x >= 0)]
Epsilon = Annotated[float, Range("positive and finite", positive, "; 1e-8 is the usual one")]
Natural = Annotated[int, Range("0 or more", lambda x: x >= 0)]
