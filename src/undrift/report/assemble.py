"""Figures from one body per method."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undrift.report.drawing import Axis, Body, Curves, Figure, Grid, Series, slug

Matrix = np.ndarray[Any, np.dtype[np.float64]]

LAYER = Axis("layer")


def lines(
    found: Sequence[Series | None], name: Sequence[str], title: str, reading: str, axes: tuple[Axis, Axis], tab: str
) -> Iterator[Figure]:
    """A figure of the methods that have a line, or none.

    Args:
        found: the line of each method; None where it has none.
        name: words of the file's name.
        title: what it shows.
        reading: how to read it.
        axes: x and y; `LAYER` is filled with the names of the layers.
        tab: see `Figure`.
    """
    shown = tuple(line for line in found if line is not None)
    if shown:
        yield Figure(slug(*name), title, reading, (("", curves(*axes, shown)),), tab)


def curves(x: Axis, y: Axis, shown: tuple[Series, ...]) -> Curves:
    """Lines with their values marked; `LAYER` is filled with the names of the layers."""
    names = tuple(dict.fromkeys(str(label) for line in shown for label in line.y)) if y is LAYER else ()
    return Curves(x, replace(y, labels=names), shown, True)


def side_by_side(
    found: Sequence[tuple[str, Body | None]], name: Sequence[str], title: str, reading: str, tab: str
) -> Iterator[Figure]:
    """A figure with a part for each method that has one, all on one scale of colours; arguments as for `lines`."""
    parts = [(label, body) for label, body in found if body is not None]
    grids = [body for _, body in parts if isinstance(body, Grid)]
    if grids:
        low, high = min(grid.low for grid in grids), max(grid.high for grid in grids)
        parts = [(label, replace(grid, low=low, high=high)) for (label, _), grid in zip(parts, grids, strict=True)]
    if parts:
        yield Figure(slug(*name), title, reading, tuple(parts), tab)


def mean(found: Sequence[Any]) -> Matrix | None:
    """The mean over seeds of those that have the shape of the first; None if there is nothing to show."""
    arrays = [np.array(x, dtype=float) for x in found]
    alike = [x for x in arrays if x.shape == arrays[0].shape and x.size]
    return np.mean(alike, axis=0) if alike else None


def numbers(values: Matrix) -> list[list[float | None]]:
    """Plain numbers, None where there is none; six digits are enough for colours."""
    return [[float(f"{x:.6g}") if np.isfinite(x) else None for x in row] for row in values]
