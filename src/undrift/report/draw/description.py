"""The description of figures: all that the page and the printed files must agree on is decided here.

A figure has panels, a panel has axes and marks. `plotly_figures` draws them for the page and `print_figures` for print;
a new kind of panel is one more function below that puts marks together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any, Literal

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
"""Colours of methods: those of Okabe and Ito that show on white and on black, which colour-blind people tell apart."""

DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle")
"""Once the colours are used up they come again with the next of these."""

SEQUENTIAL = ("#440154", "#443983", "#31688E", "#21918C", "#35B779", "#90D743", "#FDE725")
DIVERGING = ("#2166AC", "#67A9CF", "#D1E5F0", "#F7F7F7", "#FDDBC7", "#EF8A62", "#B2182B")
"""Colour scales from low to high: from dark to bright, and from blue through white to red."""

LEVELS = 16  # steps between the contours of a grid


@dataclass(frozen=True)
class Style:
    """The style of a method: its colour, the dashes of its lines and the marker of its points."""

    colour: str
    dash: str
    marker: str


def style(number: int) -> Style:
    """The style of the method with this number; the first 28 differ."""
    turn, place = divmod(number, len(PALETTE))
    return Style(PALETTE[place], DASHES[turn % len(DASHES)], MARKERS[turn % len(MARKERS)])


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit; `labels` makes it categorical, and `percent` shows shares as percentages.

    A `log` axis has the values of the lines as ticks.
    """

    title: str
    labels: tuple[str, ...] = ()
    percent: bool = False
    log: bool = False

    def values(self, values: Sequence[Any]) -> list[Any]:
        """Values as the axis shows them."""
        return [None if x is None else 100.0 * x for x in values] if self.percent else list(values)


@dataclass(frozen=True)
class Line:
    """A line of a method, with a band if it has several seeds; `dots` marks its values, and `thin` draws it thin.

    `bars` draws a bar at each value in place of the band; between categories such a line is not joined.
    """

    label: str
    style: int
    x: Sequence[Any]
    y: Sequence[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dots: bool = False
    thin: bool = False
    bars: bool = False

    @property
    def marked(self) -> bool:
        """Whether its values have markers: a line with a single value would not be visible without one."""
        return self.dots or self.alone

    @property
    def alone(self) -> bool:
        """Whether it has a single value, whose band is a bar: a band needs two."""
        return len([y for y in self.y if y is not None and y == y]) == 1


@dataclass(frozen=True)
class Box:
    """A distribution as a box over its values."""

    label: str
    style: int
    values: Sequence[float]


@dataclass(frozen=True)
class Dots:
    """Points of one colour, each with a name; without a label they are left out of the legend."""

    label: str
    style: int
    x: Sequence[float]
    y: Sequence[float]
    names: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table of numbers as coloured cells, as contours or as a surface.

    Args:
        columns: where the columns are; names if the x axis has labels.
        rows: the same for the rows.
        values: one list per row; None is left empty.
        scale: what the colours mean.
        low: the value of the first colour, the same in all panels that are compared.
        high: the value of the last colour.
        kind: how it is drawn.
        diverging: whether the middle of the scale is neutral.
        root: whether colours follow the square root, so that small values can still be distinguished.
        numbers: whether the values are written into the cells.
        heights: heights of bars above the columns, in print only; empty draws none.
    """

    columns: Sequence[Any]
    rows: Sequence[Any]
    values: Sequence[Sequence[float | None]]
    scale: str
    low: float
    high: float
    kind: Literal["cells", "contour", "surface"] = "cells"
    diverging: bool = False
    root: bool = False
    numbers: bool = False
    heights: Sequence[float] = ()

    @property
    def colours(self) -> tuple[str, ...]:
        """The scale from low to high."""
        return DIVERGING if self.diverging else SEQUENTIAL

    @property
    def limits(self) -> tuple[float, float]:
        """The values of the first and the last colour, which differ even if all cells are equal."""
        return self.low, self.high if self.high > self.low else self.low + 1

    @property
    def ticks(self) -> dict[str, float]:
        """Text -> place of the ticks beside a scale that follows the square root; otherwise ticks are free."""
        values = [round(self.limits[1] * share) for share in (0, 1 / 16, 1 / 4, 9 / 16, 1)] if self.root else []
        return {str(value): sqrt(value) for value in values}

    @property
    def texts(self) -> list[list[str]]:
        """The exact values of the cells."""
        return [["" if value is None else f"{value:g}" for value in row] for row in self.values]


Mark = Line | Box | Dots | Grid


@dataclass(frozen=True)
class Panel:
    """A pair of axes and what is drawn in them.

    Args:
        x: the horizontal axis.
        y: the vertical axis; categories run from the top down.
        marks: what is drawn, in this order.
        pixels: its height on the page.
        inches: its height in print, alone and with others beside it.
        legend: whether the marks are named below.
        hover: the text at the pointer, as a format of x, y, z (the value of a cell) and text (a name or exact value).
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    pixels: int
    inches: tuple[float, float]
    legend: bool = False
    hover: str = ""

    @property
    def grid(self) -> Grid | None:
        """Its grid, if it has one."""
        return next((mark for mark in self.marks if isinstance(mark, Grid)), None)

    @property
    def places(self) -> list[Any]:
        """Where the values of its lines stand on the x axis."""
        return [x for mark in self.marks if isinstance(mark, Line) for x in mark.x]

    @property
    def counts(self) -> bool:
        """Whether its lines stand over whole numbers, such as rounds."""
        places = self.places
        return bool(places) and not self.x.labels and all(x is not None and float(x).is_integer() for x in places)

    @property
    def solid(self) -> bool:
        """Whether it is drawn in three dimensions."""
        return self.grid is not None and self.grid.kind == "surface"


def line_panel(x: Axis, y: Axis, lines: Sequence[Line], dots: bool = False) -> Panel:
    """Lines; `dots` marks their values, for axes that have few steps."""
    rows, hover = len(y.labels), "{x:.4g}, {y:.2f} %" if y.percent else "{x}, {y}"
    pixels = 300 + (20 * rows or 80) + 12 * len(lines)
    return Panel(
        x, y, tuple(replace(line, dots=dots or line.dots) for line in lines), pixels, _inches(rows), True, hover
    )


def box_panel(x: Axis, title: str, marks: Sequence[Box]) -> Panel:
    """Distributions below each other; `title` is what they belong to."""
    y, inches = Axis(title, tuple(box.label for box in marks)), 1 + 0.45 * len(marks)
    return Panel(x, y, tuple(marks), 140 + 64 * len(marks), (inches, inches))


def point_panel(
    axes: tuple[Axis, Axis],
    places: Sequence[Sequence[float]],
    names: Sequence[str],
    groups: Sequence[int],
    labels: Mapping[int, str] | None = None,
) -> Panel:
    """Points on a plane, each with a name; a group shares a colour, and `labels` names groups in a legend."""
    labels, marks = labels or {}, []
    for group in sorted(set(groups)):
        own = [n for n, other in enumerate(groups) if other == group]
        x, y = ([places[n][axis] for n in own] for axis in (0, 1))
        marks.append(Dots(labels.get(group, ""), group, x, y, [names[n] for n in own]))
    return Panel(*axes, tuple(marks), 340 + 8 * len(labels), _inches(0), bool(labels), "{text}")


def grid_panel(x: Axis, y: Axis, grid: Grid) -> Panel:
    """A table of numbers, drawn by its kind."""
    rows = len(grid.rows)
    pixels = {"contour": 340, "surface": 400}.get(grid.kind, 150 + min(max(160, 20 * rows), 1200))
    cells = 1 + min(max(1.4, 0.2 * rows), 7.0)
    inches = {"contour": _inches(0), "surface": (3.0, 3.0)}.get(grid.kind, (cells, cells))
    value = "{text}" if grid.root else "{z:.4g}"
    hover = f"{x.title} {{x}}\n{y.title} {{y}}\n{value} {grid.scale}"
    return Panel(x, y, (grid,), pixels, inches, hover="" if grid.kind == "surface" else hover)


def _inches(rows: int) -> tuple[float, float]:
    """The height in print of a panel with so many named rows."""
    return max(3.4, 1.2 + 0.2 * rows), max(2.4, 1.2 + 0.2 * rows)


@dataclass(frozen=True)
class Figure:
    """A figure: one panel, or one for each of several methods side by side.

    Args:
        name: of its files.
        title: what it shows.
        reading: how to read it, in one sentence.
        parts: caption and panel; the caption is empty if there is one part.
        tab: figures of a section that have different tabs are shown one tab at a time.
    """

    name: str
    title: str
    reading: str
    parts: tuple[tuple[str, Panel], ...]
    tab: str = ""


@dataclass(frozen=True)
class Table:
    """A table of texts; the first `keys` columns name the row, and the cells in `best` (row, column) are bold."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    reading: str
    keys: int = 1
    best: frozenset[tuple[int, int]] = frozenset()


def number_text(value: Any, form: str = ".3g") -> str:
    """A number as a text; a dash if it is not known or not finite."""
    return format(value, form) if isinstance(value, float | int) and isfinite(value) else "-"


def with_setting(title: str, setting: str) -> str:
    """A title with its setting, where there are several."""
    return f"{title}: {setting}" if setting else title


def slug(*parts: str) -> str:
    """Texts joined into a file name."""
    texts = [re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts]
    return "-".join(text for text in texts if text)[:100]
