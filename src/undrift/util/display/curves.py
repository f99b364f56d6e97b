"""Curves as text, for terminals and logs."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, floor

MARKS = "ox+*#%@&"
"""What plain curves are drawn with, in their order."""

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character, by row and column
_EMPTY = 0x2800

Curve = Sequence[tuple[float, float]]
Cell = tuple[str, int | None]
"""A character, and the number of the curve that it belongs to; None for axes and labels."""


def draw_curves(
    curves: Mapping[str, Curve], width: int = 60, height: int = 12, *, plain: bool = False, x_label: str = ""
) -> list[list[Cell]]:
    """Curves in one frame, line by line; where two meet, the later one gives the colour.

    Args:
        curves: name -> points (x, y) with ascending x; the y are shares and their axis is in percent.
        width: columns of the frame, without the labels of the y axis.
        height: its lines.
        plain: ASCII only: each curve has a mark of its own instead of a line of dots.
        x_label: the name of the x axis.

    Example:
        >>> for line in draw_curves({"a": [(1, 0.0), (3, 1.0)]}, 5, 3, plain=True, x_label="round"):
        ...     print("".join(character for character, _ in line).rstrip())
        100% |   oo
         50% |  o
          0% |oo
             +-----
              1   3  round
    """
    points = [point for curve in curves.values() for point in curve]
    if not points:
        raise ValueError("draw_curves: there are no points yet")
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    bottom, top = _range([y for _, y in points])
    across, down = (1, 1) if plain else (2, 4)
    columns, lines = width * across, height * down
    frame: list[list[Cell]] = [[(" ", None)] * width for _ in range(height)]
    for number, curve in enumerate(curves.values()):
        for column, line in _dots(curve, (left, right), (bottom, top), columns, lines):
            cell = frame[line // down][column // across]
            if plain:
                new = MARKS[number % len(MARKS)]
            else:
                before = _EMPTY if cell[1] is None else ord(cell[0])
                new = chr(before | _DOTS[line % 4][column % 2])
            frame[line // down][column // across] = new, number
    return [*_add_frame(frame, bottom, top, plain), *_x_axis(left, right, width, plain, x_label)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The ends of the y axis: the tenths around all values."""
    bottom, top = floor(round(10 * min(values), 6)) / 10, ceil(round(10 * max(values), 6)) / 10
    return (bottom, top) if top > bottom else (bottom, bottom + 0.1)


def _dots(
    curve: Curve, x_range: tuple[float, float], y_range: tuple[float, float], columns: int, lines: int
) -> list[tuple[int, int]]:
    """The dots of a curve, joined by straight lines, as (column, line from the top)."""
    (left, right), (bottom, top) = x_range, y_range
    places = [
        ((x - left) / ((right - left) or 1.0) * (columns - 1), (top - y) / (top - bottom) * (lines - 1))
        for x, y in curve
    ]
    found = [(round(x), round(y)) for x, y in places]
    for (x0, y0), (x1, y1) in pairwise(places):
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0))))
        found += [(round(x0 + (x1 - x0) * i / steps), round(y0 + (y1 - y0) * i / steps)) for i in range(1, steps)]
    return found


def _add_frame(frame: list[list[Cell]], bottom: float, top: float, plain: bool) -> list[list[Cell]]:
    """The lines of the frame, with labels at the top, in the middle and at the bottom."""
    labelled = (0, (len(frame) - 1) // 2, len(frame) - 1)
    out = []
    for number, line in enumerate(frame):
        label = ""
        if number in labelled:
            value = top - (top - bottom) * number / max(1, len(frame) - 1)
            label = f"{value:.0%}"
        out.append([*_text(f"{label:>4} {'|' if plain else '│'}"), *line])
    return out


def _x_axis(left: float, right: float, width: int, plain: bool, label: str) -> list[list[Cell]]:
    """The x axis and its ends."""
    first, last = f"{left:g}", f"{right:g}"
    ends = first + last.rjust(width - len(first)) if left < right else first
    return [_text("     " + ("+" if plain else "└") + ("-" if plain else "─") * width), _text(f"      {ends}  {label}")]


def _text(text: str) -> list[Cell]:
    return [(character, None) for character in text]
