"""What a figure shows, whoever draws it: values without a library's words, so that screen and print say the same."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F")
"""Colours of methods: those of Okabe and Ito that show on white and on black, which colour-blind people tell apart."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""Once the colours are used up they come again with the next of these."""

SEQUENTIAL = ("#440154", "#443983", "#31688E", "#21918C", "#35B779", "#90D743", "#FDE725")
DIVERGING = ("#2166AC", "#67A9CF", "#D1E5F0", "#F7F7F7", "#FDDBC7", "#EF8A62", "#B2182B")
"""Scales from low to high: from dark to bright, and from blue over white to red."""


@dataclass(frozen=True)
class Axis:
    """An axis: what it is and its unit; `labels` makes it one of names, and `percent` one of shares."""

    title: str
    labels: tuple[str, ...] = ()
    percent: bool = False


@dataclass(frozen=True)
class Series:
    """A line of a method, with a band if it has several seeds."""

    label: str
    style: int
    x: Sequence[Any]
    y: Sequence[Any]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True)
class Curves:
    """Lines; `points` marks their values, for axes whose steps are few."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    points: bool = False


@dataclass(frozen=True)
class Grid:
    """A table of numbers as colours, as lines of equal height, or as a surface.

    Args:
        x: the columns.
        y: the rows.
        columns: where the columns are; names if `x` has labels.
        rows: the same for the rows.
        values: one list per row; None is left empty.
        scale: what the colours mean.
        low: the value of the first colour, the same in all figures that are compared.
        high: that of the last.
        kind: how it is drawn.
        diverging: whether the middle of the scale is a point of rest.
        root: whether colours follow the square root, so that small values can still be told apart.
    """

    x: Axis
    y: Axis
    columns: Sequence[Any]
    rows: Sequence[Any]
    values: Sequence[Sequence[float | None]]
    scale: str
    low: float
    high: float
    kind: Literal["cells", "contour", "surface"] = "cells"
    diverging: bool = False
    root: bool = False


@dataclass(frozen=True)
class Boxes:
    """Distributions: label, style and values of each."""

    x: Axis
    y: Axis
    boxes: tuple[tuple[str, int, Sequence[float]], ...]


@dataclass(frozen=True)
class Points:
    """Points on a plane, each with a name; those of one group share a colour, and `labels` names groups."""

    x: Axis
    y: Axis
    points: Sequence[Sequence[float]]
    names: Sequence[str]
    groups: Sequence[int]
    labels: Mapping[int, str] = field(default_factory=dict)


Body = Curves | Grid | Boxes | Points


@dataclass(frozen=True)
class Figure:
    """A figure: one body, or one for each of several methods side by side.

    Args:
        name: of its files.
        title: what it shows.
        reading: how to read it, in one sentence.
        parts: caption and body; the caption is empty if there is one part.
        tab: figures of a section that have different tabs are shown one tab at a time.
    """

    name: str
    title: str
    reading: str
    parts: tuple[tuple[str, Body], ...]
    tab: str = ""


@dataclass(frozen=True)
class Table:
    """A table of texts; the first `keys` columns name the row."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    reading: str
    keys: int = 1


def titled(title: str, setting: str) -> str:
    """A title with its setting, where there are several."""
    return f"{title}: {setting}" if setting else title


def slug(*words: str) -> str:
    """Words as the name of a file."""
    texts = [re.sub(r"[^a-z0-9]+", "-", word.lower()).strip("-") for word in words]
    return "-".join(text for text in texts if text)[:100]
