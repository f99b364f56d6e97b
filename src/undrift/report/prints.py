"""Figures for print: PNG and PDF of every figure, by matplotlib."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.report.drawing import DIVERGING, PALETTE, SEQUENTIAL, Axis, Body, Boxes, Curves, Figure, Grid, Points
from undrift.report.figures import colour, dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

DOTS = 300  # per inch
WIDE = 6.5  # inches: the text of a page
LETTERS = 72  # in a line as long as a sheet is wide
LABELLED = 40  # of more rows not every one is named
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKS = ("o", "s", "D", "^")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "pdf.fonttype": 42,  # fonts as fonts: texts of the PDF can be searched and edited
}


def write_prints(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write every figure as NAME.png and NAME.pdf and return their paths.

    Args:
        figures: what to draw.
        folder: where; made if missing.
    """
    from matplotlib import rc_context

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(_STYLE):
        for figure in figures:
            sheet = draw(figure)
            for kind in ("png", "pdf"):
                path = folder / f"{figure.name}.{kind}"
                # Without its date a file is the same whenever it is made.
                sheet.savefig(path, dpi=DOTS, metadata={"CreationDate": None} if kind == "pdf" else None)
                written.append(path)
    return written


def draw(figure: Figure) -> "Sheet":
    """A figure on a sheet of its own; its reading is left to the caption of the text."""
    from matplotlib.figure import Figure as Sheet

    count = len(figure.parts)
    surface = isinstance(figure.parts[0][1], Grid) and figure.parts[0][1].kind == "surface"
    columns = min(count, 2 if surface or count == 4 else 3)
    lines = ceil(count / columns)
    height = _height(figure.parts[0][1], columns)
    sheet = Sheet(figsize=(WIDE, 0.5 + lines * height), layout="constrained")
    sheet.suptitle(_plain(figure.title), fontsize=10)
    for n, (caption, body) in enumerate(figure.parts):
        axes = sheet.add_subplot(lines, columns, n + 1, **({"projection": "3d"} if surface else {}))
        if caption:
            axes.set_title(_plain(caption), fontsize=9)
        _draw(axes, body)
        if n % columns and not surface and body.y == figure.parts[n - 1][1].y:
            axes.set_ylabel("")
            axes.tick_params(labelleft=not body.y.labels)
        axes.set_xlabel(fill(axes.get_xlabel(), LETTERS // columns))
        axes.set_ylabel(fill(axes.get_ylabel(), int(LETTERS * height / WIDE)))
    _bar(sheet, figure)
    _legend(sheet)
    return sheet


def _height(body: Body, columns: int) -> float:
    """Inches of one line of parts."""
    if isinstance(body, Boxes):
        return 1 + 0.45 * len(body.boxes)
    if isinstance(body, Grid) and body.kind == "cells":
        return 1 + float(np.clip(0.2 * len(body.rows), 1.4, 7))
    if isinstance(body, Grid) and body.kind == "surface":
        return 3
    rows = 0.2 * len(body.y.labels)
    return max(3.4 if columns == 1 else 2.4, 1.2 + rows)


def _draw(axes: "Axes", body: Body) -> None:
    match body:
        case Curves():
            _curves(axes, body)
        case Boxes():
            _boxes(axes, body)
        case Points():
            _points(axes, body)
        case Grid():
            _surface(axes, body) if body.kind == "surface" else _grid(axes, body)


def _curves(axes: "Axes", body: Curves) -> None:
    places = {name: n for n, name in enumerate(body.y.labels)}
    for line in body.series:
        y = [places[name] for name in line.y] if places else _share(line.y, body.y)
        mark = "o" if body.points else None
        style: dict[str, Any] = {"color": colour(line.style), "linestyle": _LINES[dash(line.style)], "linewidth": 1.4}
        axes.plot(line.x, y, label=_plain(line.label), marker=mark, markersize=3, **style)
        if line.low is not None and line.high is not None:
            low, high = _share(line.low, body.y), _share(line.high, body.y)
            axes.fill_between(line.x, low, high, color=colour(line.style), alpha=0.18, linewidth=0)
    _axes(axes, body.x, body.y)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _boxes(axes: "Axes", body: Boxes) -> None:
    for n, (_, style, values) in enumerate(body.boxes):
        shares = np.array(_share(values, body.x))
        low, middle, high = np.percentile(shares, (25, 50, 75))
        inside = shares[(shares >= low - 1.5 * (high - low)) & (shares <= high + 1.5 * (high - low))]
        axes.barh(n, high - low, left=low, height=0.55, color=colour(style), alpha=0.35)
        axes.hlines([n, n], [inside.min(), high], [low, inside.max()], color=colour(style), linewidth=1.2)
        axes.vlines(middle, n - 0.275, n + 0.275, color="black", linewidth=1.4)
        wave = n + 0.2 * np.sin(2.4 * np.arange(len(shares)))  # spreads the points, without chance
        axes.plot(shares, wave, ".", color=colour(style), markersize=3, alpha=0.6)
    _axes(axes, body.x, Axis(body.y.title, tuple(label for label, _, _ in body.boxes)))


def _points(axes: "Axes", body: Points) -> None:
    points = np.array(body.points, dtype=float)
    for group in sorted(set(body.groups)):
        own = points[np.array(body.groups) == group]
        mark = _MARKS[group // len(PALETTE) % len(_MARKS)]
        drawn = axes.scatter(own[:, 0], own[:, 1], color=colour(group), marker=mark, s=14, alpha=0.85, linewidth=0)
        if group in body.labels:
            drawn.set_label(_plain(body.labels[group]))
    _axes(axes, body.x, body.y)


def _grid(axes: "Axes", body: Grid) -> None:
    values = np.array(body.values, dtype=float)
    if body.kind == "contour":
        levels = np.linspace(body.low, body.high, 17) if body.high > body.low else 16
        axes.contourf(body.columns, body.rows, values, levels, **_colours(body))
        axes.set_aspect("equal")
        return _axes(axes, body.x, body.y)
    axes.imshow(values, aspect="auto", interpolation="nearest", **_colours(body))
    shown = np.unique(np.linspace(0, len(body.columns) - 1, min(len(body.columns), 6)).round().astype(int))
    axes.set_xticks(shown, [_plain(_short(body.columns[n])) for n in shown])
    _axes(axes, body.x, body.y)


def _surface(axes: Any, body: Grid) -> None:
    x, y = np.meshgrid(np.array(body.columns, dtype=float), np.array(body.rows, dtype=float))
    axes.plot_surface(x, y, np.array(body.values, dtype=float), rcount=60, ccount=60, linewidth=0, **_colours(body))
    axes.set_zlim(body.low, body.high if body.high > body.low else None)
    axes.set(xlabel=_plain(body.x.title), ylabel=_plain(body.y.title))  # the height is the colour's
    axes.tick_params(labelsize=7, pad=-1)
    axes.locator_params(nbins=4)
    axes.set_box_aspect(None, zoom=0.8)


def _axes(axes: "Axes", x: Axis, y: Axis) -> None:
    axes.set(xlabel=_plain(x.title), ylabel=_plain(y.title))
    if y.labels:
        shown = range(0, len(y.labels), ceil(len(y.labels) / LABELLED))
        axes.set_yticks(shown, [_plain(y.labels[n]) for n in shown])
        axes.set_ylim(len(y.labels) - 0.5, -0.5)


def _bar(sheet: "Sheet", figure: Figure) -> None:
    """One scale for all parts, which share it."""
    from matplotlib.cm import ScalarMappable

    body = figure.parts[0][1]
    if isinstance(body, Grid):
        drawn = ScalarMappable(cmap=_colours(body)["cmap"], norm=_colours(body)["norm"])
        sheet.colorbar(drawn, ax=sheet.axes, label=_plain(body.scale), shrink=0.8, pad=0.02)


def _legend(sheet: "Sheet") -> None:
    """The names of lines and of groups of points, once for all parts."""
    found = [axes.get_legend_handles_labels() for axes in sheet.axes]
    named = {name: drawn for handles, names in found for drawn, name in zip(handles, names, strict=True)}
    if named:
        columns = max(1, min(4, len(named), LETTERS // (max(map(len, named)) + 6)))  # 6 for the mark
        sheet.legend(named.values(), named, loc="outside lower center", ncols=columns, frameon=False)


def _colours(body: Grid) -> dict[str, Any]:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    shades = LinearSegmentedColormap.from_list("undrift", DIVERGING if body.diverging else SEQUENTIAL)
    top = body.high if body.high > body.low else body.low + 1
    return {"cmap": shades, "norm": PowerNorm(0.5 if body.root else 1.0, vmin=body.low, vmax=top)}


def _share(values: Sequence[float], axis: Axis) -> list[float]:
    return [100 * value for value in values] if axis.percent else list(values)


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _plain(text: str) -> str:
    """A text that matplotlib shows as it is and not as mathematics."""
    return str(text).replace("$", r"\$")
