"""Figures from one line or one panel per method."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undrift.report.draw.description import Axis, Figure, Line, Panel, line_panel, slug
from undrift.studies.statistics import spread

Matrix = np.ndarray[Any, np.dtype[np.float64]]

LAYER = Axis("layer")


def lines(
    shown: Sequence[Line | None], name: Sequence[str], title: str, reading: str, axes: tuple[Axis, Axis], tab: str
) -> Iterator[Figure]:
    """A figure of the methods that have a line, or none.

    Args:
        shown: the line of each method; None where it has none.
        name: parts of the file's name.
        title: what it shows.
        reading: how to read it.
        axes: x and y; `LAYER` is filled with the names of the layers.
        tab: see `Figure`.
    """
    panel = dotted_panel(*axes, shown)
    if panel is not None:
        yield Figure(slug(*name), title, reading, (("", panel),), tab)


def dotted_panel(x: Axis, y: Axis, shown: Sequence[Line | None]) -> Panel | None:
    """Lines with their values marked, or None without any; `LAYER` is filled with the names of the layers."""
    present = [line for line in shown if line is not None]
    names = tuple(dict.fromkeys(str(label) for line in present for label in line.y)) if y is LAYER else ()
    return line_panel(x, replace(y, labels=names), present, True) if present else None


def side_by_side(
    panels: Sequence[tuple[str, Panel | None]], name: Sequence[str], title: str, reading: str, tab: str
) -> Iterator[Figure]:
    """A figure with one panel per method that has one, all on one colour scale; arguments as for `lines`."""
    parts = [(label, panel) for label, panel in panels if panel is not None]
    grids = [panel.grid for _, panel in parts if panel.grid is not None]
    if grids:
        low, high = min(grid.low for grid in grids), max(grid.high for grid in grids)
        shared = [replace(grid, low=low, high=high) for grid in grids]
        parts = [(label, replace(panel, marks=(grid,))) for (label, panel), grid in zip(parts, shared, strict=True)]
    if parts:
        yield Figure(slug(*name), title, reading, tuple(parts), tab)


def over_seeds(label: str, style: int, seeds: Sequence[Mapping[int, tuple[float, float]]]) -> Line | None:
    """A line with the mean and deviation over the seeds, at the rounds that all of them have; None without any.

    Seeds without a point do not count.

    Args:
        label: its name.
        style: the number of its style.
        seeds: of each seed, round -> x and y.
    """
    seeds = [points for points in seeds if points]
    rounds = sorted(set.intersection(*(set(points) for points in seeds))) if seeds else []
    if not rounds:
        return None
    x = [spread([points[n][0] for points in seeds])[0] for n in rounds]
    y = [spread([points[n][1] for points in seeds]) for n in rounds]
    middle, half = [mean for mean, _ in y], [deviation for _, deviation in y if deviation is not None]
    return Line(label, style, x, middle, *(band(middle, half) if half else ()))


def band(middle: Sequence[float], half: Sequence[float]) -> tuple[list[float], list[float]]:
    """The lower and the upper end of a band around a line."""
    pairs = list(zip(middle, half, strict=True))
    return [m - h for m, h in pairs], [m + h for m, h in pairs]


def mean(seeds: Sequence[Any]) -> Matrix | None:
    """The mean over the seeds whose shape is that of the first; None if there is nothing to show."""
    arrays = [np.array(x, dtype=float) for x in seeds]
    alike = [x for x in arrays if x.shape == arrays[0].shape and x.size]
    return np.mean(alike, axis=0) if alike else None


def numbers(values: Matrix) -> list[list[float | None]]:
    """Lists of numbers with None for what is not finite; six digits are enough for colours."""
    return [[float(f"{x:.6g}") if np.isfinite(x) else None for x in row] for row in values]
