"""Figures for print: panels as matplotlib draws them, PNG and PDF."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from undrift.report.draw.description import LEVELS, Box, Dots, Figure, Grid, Line, Panel, style
from undrift.report.loaded import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

FORMATS = ("png", "pdf")
DOTS = 300  # per inch
WIDE = 6.5  # inches: the width of the text on a page
LETTERS = 72  # characters in a line as wide as a sheet
LABELLED = 40  # rows; with more, not every one is labelled
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle": "^"}
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
    "pdf.fonttype": 42,  # embed TrueType fonts: text in the PDF can be searched and edited
}


def write_prints(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write every figure as NAME.png and NAME.pdf and return their paths.

    Args:
        figures: what to draw.
        folder: where; made if missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [path for figure in figures for path in _write(figure, folder / figure.name, *FORMATS)]


def write_print(figure: Figure, path: Path) -> Path:
    """Write one figure to a file that ends in .png or .pdf and return its path."""
    if path.suffix[1:] not in FORMATS:
        raise ReportError(f"{path}: figures are written as .png or .pdf; give the file one of these endings")
    return _write(figure, path.with_suffix(""), path.suffix[1:])[0]


def _write(figure: Figure, stem: Path, *formats: str) -> list[Path]:
    """Draw once, write in some formats."""
    try:
        from matplotlib import rc_context
    except ImportError:
        raise ReportError("figures need matplotlib: pip install 'undrift[plots]'") from None
    written = [stem.with_name(f"{stem.name}.{kind}") for kind in formats]
    with rc_context(_STYLE):
        sheet = draw(figure)
        for path in written:
            # Without a date the file is reproducible.
            sheet.savefig(path, dpi=DOTS, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
    return written


def draw(figure: Figure) -> "Sheet":
    """A figure on a sheet of its own; its reading is left to the caption of the text."""
    from matplotlib.figure import Figure as Sheet

    count, first = len(figure.parts), figure.parts[0][1]
    columns = min(count, 2 if first.solid or count == 4 else 3)
    lines = ceil(count / columns)
    height = first.inches[columns > 1]
    sheet = Sheet(figsize=(WIDE, 0.5 + lines * height), layout="constrained")
    sheet.suptitle(_escape(figure.title), fontsize=10)
    for n, (caption, panel) in enumerate(figure.parts):
        axes = sheet.add_subplot(lines, columns, n + 1, **({"projection": "3d"} if panel.solid else {}))
        if caption:
            axes.set_title(_escape(caption), fontsize=9)
        _draw_panel(axes, panel)
        if n % columns and not panel.solid and panel.y == figure.parts[n - 1][1].y:
            axes.set_ylabel("")
            axes.tick_params(labelleft=not panel.y.labels)
        axes.set_xlabel(fill(axes.get_xlabel(), LETTERS // columns))
        axes.set_ylabel(fill(axes.get_ylabel(), int(LETTERS * height / WIDE)))
    if first.grid is not None:
        _draw_scale(sheet, first.grid)
    _draw_legend(sheet)
    return sheet


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    for place, mark in enumerate(panel.marks):
        match mark:
            case Line():
                _draw_line(axes, mark, panel, _bar_shift(panel, mark))
            case Box():
                _draw_box(axes, mark, place, panel)
            case Dots():
                _draw_dots(axes, mark)
            case Grid():
                _draw_surface(axes, mark) if panel.solid else _draw_grid(axes, mark)
    axes.set(xlabel=_escape(panel.x.title), ylabel=_escape(panel.y.title))
    if panel.x.labels and panel.grid is None and panel.legend:
        _set_column_names(axes, panel.x.labels)
    if panel.x.log:
        _set_log_scale(axes, panel)
    elif panel.counts:
        _set_integer_ticks(axes)
    names = panel.y.labels
    if names:
        shown = range(0, len(names), ceil(len(names) / LABELLED))
        axes.set_yticks(shown, [_escape(names[n]) for n in shown])
        axes.set_ylim(len(names) - 0.5, -0.5)


def _set_integer_ticks(axes: "Axes") -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def _bar_shift(panel: Panel, line: Line) -> float:
    """How far a line of bars is moved to the side of a category, so that several are seen."""
    lines = [mark for mark in panel.marks if isinstance(mark, Line) and mark.bars]
    return 0.6 * ((lines.index(line) + 0.5) / len(lines) - 0.5) if panel.x.labels and line in lines else 0.0


def _set_column_names(axes: "Axes", names: Sequence[str]) -> None:
    """Names below the columns of a categorical axis, at an angle if they do not fit."""
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if sum(map(len, names)) > LETTERS // 2 else {}
    axes.set_xticks(range(len(names)), [_escape(name) for name in names], **turned)
    axes.set_xlim(-0.5, len(names) - 0.5)


def _set_log_scale(axes: "Axes", panel: Panel) -> None:
    """A logarithmic x axis with the values of the lines as ticks."""
    from matplotlib.ticker import NullLocator

    ticks = sorted({x for mark in panel.marks if isinstance(mark, Line) and mark.bars for x in mark.x})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _draw_line(axes: "Axes", line: Line, panel: Panel, shift: float = 0.0) -> None:
    look, rows = style(line.style), {name: n for n, name in enumerate(panel.y.labels)}
    columns = {name: n + shift for n, name in enumerate(panel.x.labels)}
    x = [columns[name] for name in line.x] if columns else line.x
    y = [rows[name] for name in line.y] if rows else panel.y.values(line.y)
    joined = not (columns and line.bars)
    drawn: dict[str, Any] = {"color": look.colour, "linestyle": _LINES[look.dash] if joined else ""}
    drawn["linewidth"] = 0.6 if line.thin else 1.4
    axes.plot(
        x,
        y,
        label=_escape(line.label),
        marker=_MARKERS[look.marker] if line.marked else None,
        markersize=5 if line.alone else 3,
        **drawn,
    )
    if line.low is not None and line.high is not None:
        low, high = panel.y.values(line.low), panel.y.values(line.high)
        if line.bars or line.alone:
            axes.vlines(x, low, high, color=look.colour, linewidth=1)
        else:
            axes.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.grid(color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def _draw_box(axes: "Axes", box: Box, n: int, panel: Panel) -> None:
    values, colour = np.array(panel.x.values(box.values)), style(box.style).colour
    low, middle, high = np.percentile(values, (25, 50, 75))
    inside = values[(values >= low - 1.5 * (high - low)) & (values <= high + 1.5 * (high - low))]
    axes.barh(n, high - low, left=low, height=0.55, color=colour, alpha=0.35)
    axes.hlines([n, n], [inside.min(), high], [low, inside.max()], color=colour, linewidth=1.2)
    axes.vlines(middle, n - 0.275, n + 0.275, color="black", linewidth=1.4)
    wave = n + 0.2 * np.sin(2.4 * np.arange(len(values)))  # a deterministic jitter
    axes.plot(values, wave, ".", color=colour, markersize=3, alpha=0.6)


def _draw_dots(axes: "Axes", dots: Dots) -> None:
    look = style(dots.style)
    drawn = axes.scatter(dots.x, dots.y, color=look.colour, marker=_MARKERS[look.marker], s=14, alpha=0.85, linewidth=0)
    if dots.label:
        drawn.set_label(_escape(dots.label))


def _draw_grid(axes: "Axes", grid: Grid) -> None:
    values = np.array(grid.values, dtype=float)
    if grid.kind == "contour":
        axes.contourf(grid.columns, grid.rows, values, np.linspace(*grid.limits, LEVELS + 1), **_colours(grid))
        axes.set_aspect("equal")
        return
    axes.imshow(values, aspect="auto", interpolation="nearest", **_colours(grid))
    shown = np.unique(np.linspace(0, len(grid.columns) - 1, min(len(grid.columns), 6)).round().astype(int))
    axes.set_xticks(shown, [_escape(_short(grid.columns[n])) for n in shown])
    if grid.heights:
        bars = axes.inset_axes((0, 1.03, 1, 0.25), sharex=axes)
        bars.bar(range(len(grid.heights)), grid.heights, width=0.8, color=grid.colours[2])
        bars.tick_params(labelbottom=False)
        bars.set_ylabel(_escape(grid.scale))
    for row, texts in enumerate(grid.texts if grid.numbers else ()):
        for column, text in enumerate(texts):
            dark = text and _colours(grid)["norm"](grid.values[row][column]) < 0.6
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")


def _draw_surface(axes: Any, grid: Grid) -> None:
    x, y = np.meshgrid(np.array(grid.columns, dtype=float), np.array(grid.rows, dtype=float))
    axes.plot_surface(x, y, np.array(grid.values, dtype=float), rcount=60, ccount=60, linewidth=0, **_colours(grid))
    axes.set_zlim(*grid.limits)  # untitled: its colours name the height
    axes.tick_params(labelsize=7, pad=-1)
    axes.locator_params(nbins=4)
    axes.set_box_aspect(None, zoom=0.8)


def _draw_scale(sheet: "Sheet", grid: Grid) -> None:
    """One scale for all parts, which share it."""
    from matplotlib.cm import ScalarMappable

    drawn = ScalarMappable(**_colours(grid))
    sheet.colorbar(drawn, ax=sheet.axes, label=_escape(grid.scale), shrink=0.8, pad=0.02)


def _draw_legend(sheet: "Sheet") -> None:
    """The names of lines and of groups of points, once for all parts."""
    legends = [axes.get_legend_handles_labels() for axes in sheet.axes]
    named = {name: drawn for handles, names in legends for drawn, name in zip(handles, names, strict=True)}
    if named:
        columns = max(1, min(4, len(named), LETTERS // (max(map(len, named)) + 6)))  # 6 for the mark
        sheet.legend(named.values(), named, loc="outside lower center", ncols=columns, frameon=False)


def _colours(grid: Grid) -> dict[str, Any]:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    low, high = grid.limits
    shades = LinearSegmentedColormap.from_list("undrift", grid.colours)
    return {"cmap": shades, "norm": PowerNorm(0.5 if grid.root else 1.0, vmin=low, vmax=high)}


def _short(value: Any) -> str:
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def _escape(text: str) -> str:
    """A text that matplotlib does not read as mathematics."""
    return str(text).replace("$", r"\$")
