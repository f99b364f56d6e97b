"""Figures for the page: panels as plotly.js takes them. Colours of text and axes are the page's, so not here."""

from collections.abc import Sequence
from html import escape
from math import isfinite, sqrt
from typing import Any

from undrift.report.draw.description import LEVELS, Axis, Box, Dots, Grid, Line, Panel, style

Json = dict[str, Any]

FEW = 10  # whole numbers, such as rounds, each of which has a tick
NAMED = 60  # rows; with more, not every one is labelled
_MARKERS = {"triangle": "triangle-up"}
_BELOW = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"}
_MARGIN = {"l": 8, "r": 8, "t": 28, "b": 8}


def plotly(panel: Panel) -> Json:
    """A panel as plotly.js takes it: `data` and `layout`."""
    data = [trace for mark in panel.marks for trace in _traces(mark, panel)]
    if panel.grid is not None and panel.solid:
        return {"data": data, "layout": _scene(panel, panel.grid)}
    layout: Json = {"height": panel.pixels, "margin": _MARGIN, "hovermode": "closest"}
    layout |= {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y, rows=True)}
    if panel.counts and not panel.x.log and max(panel.places) - min(panel.places) <= FEW:
        layout["xaxis"]["dtick"] = 1  # no ticks between whole numbers
    if panel.grid is not None:
        layout["plot_bgcolor"] = "--raised"  # a name of the page's style
        layout["xaxis"]["showgrid"] = layout["yaxis"]["showgrid"] = False
    else:
        layout |= {"legend": _BELOW, "showlegend": True} if panel.legend else {"showlegend": False}
    return {"data": data, "layout": layout}


def _traces(mark: Line | Box | Dots | Grid, panel: Panel) -> list[Json]:
    match mark:
        case Line():
            return _line(mark, panel)
        case Box():
            return [_box(mark, panel)]
        case Dots():
            return [_dots(mark, panel)]
    return [_surface(mark) if panel.solid else _grid(mark, panel)]


def _line(line: Line, panel: Panel) -> list[Json]:
    look, traces = style(line.style), []
    shared = {"type": "scatter", "legendgroup": line.label, "name": _text(line.label)}
    shared["hovertemplate"] = _hover(panel.hover)
    marker = {"size": 9 if line.alone else 6, "symbol": _MARKERS.get(look.marker, look.marker)}
    drawn: Json = {"mode": "lines+markers" if line.marked else "lines", "marker": marker}
    if line.bars and panel.x.labels:
        drawn["mode"] = "markers"
    if (line.bars or line.alone) and line.low is not None and line.high is not None:
        middle, low, high = (_values(values, panel.y) for values in (line.y, line.low, line.high))
        above = [top - y for top, y in zip(high, middle, strict=True)]
        below = [y - bottom for bottom, y in zip(low, middle, strict=True)]
        drawn["error_y"] = {"type": "data", "array": above, "arrayminus": below, "symmetric": False, "width": 0}
    elif line.low is not None and line.high is not None:
        x, y = [*line.x, *line.x[::-1]], [*line.high, *line.low[::-1]]
        band: Json = {"fill": "toself", "fillcolor": _faint(look.colour), "line": {"width": 0}, "mode": "lines"}
        band |= {"x": _values(x, panel.x), "y": _values(y, panel.y), "hoverinfo": "skip", "showlegend": False}
        traces.append({**shared, **band})
    drawn["line"] = {"color": look.colour, "width": 1 if line.thin else 2, "dash": look.dash}
    return [*traces, {**shared, **drawn, "x": _values(line.x, panel.x), "y": _values(line.y, panel.y)}]


def _box(box: Box, panel: Panel) -> Json:
    return {
        "type": "box",
        "orientation": "h",
        "name": _text(box.label),
        "x": _values(box.values, panel.x),
        "boxpoints": "all" if len(box.values) <= 150 else "outliers",
        "jitter": 0.5,
        "pointpos": 0,
        "marker": {"color": style(box.style).colour, "size": 4, "opacity": 0.55},
        "line": {"width": 1.5},
    }


def _dots(dots: Dots, panel: Panel) -> Json:
    look = style(dots.style)
    symbol = _MARKERS.get(look.marker, look.marker)
    return {
        "type": "scatter",
        "x": _values(dots.x, panel.x),
        "y": _values(dots.y, panel.y),
        "mode": "markers",
        "marker": {"color": look.colour, "symbol": symbol, "size": 8, "opacity": 0.85},
        "text": [_text(name) for name in dots.names],
        "name": _text(dots.label),
        "hovertemplate": _hover(panel.hover) + "<extra></extra>",
    }


def _grid(grid: Grid, panel: Panel) -> Json:
    low, high = grid.limits
    trace: Json = {
        "type": "contour" if grid.kind == "contour" else "heatmap",
        "x": _values(grid.columns, panel.x),
        "y": _values(grid.rows, panel.y),
        "z": [[_shade(value, grid) for value in row] for row in grid.values],
        "zmin": _shade(low, grid),
        "zmax": _shade(high, grid),
        "hovertemplate": _hover(panel.hover) + "<extra></extra>",
        **_scale(grid),
    }
    if grid.root or grid.numbers:
        trace["text"] = grid.texts
    if grid.numbers:
        trace["texttemplate"] = "%{text}"
    if grid.kind == "contour":
        trace["contours"] = {"start": low, "end": high, "size": (high - low) / LEVELS}
        trace |= {"line": {"width": 0.5}, "zauto": False, "autocontour": False}
        trace["colorbar"]["tickformat"] = ".3~g"
    elif len(grid.rows) * len(grid.columns) <= 2500:
        trace |= {"xgap": 1, "ygap": 1}
    return trace


def _surface(grid: Grid) -> Json:
    values = [[_number(value) for value in row] for row in grid.values]
    trace = {"type": "surface", "x": list(grid.columns), "y": list(grid.rows), "z": values, **_scale(grid, 0.8)}
    return {**trace, "cmin": grid.limits[0], "cmax": grid.limits[1]}


def _scene(panel: Panel, grid: Grid) -> Json:
    titles = {"xaxis": panel.x.title, "yaxis": panel.y.title, "zaxis": grid.scale.partition(" (")[0]}
    scene: Json = {name: {"title": {"text": _text(title)}} for name, title in titles.items()}
    scene["zaxis"]["range"] = list(grid.limits)
    scene |= {"aspectmode": "cube", "camera": {"eye": {"x": 1.9, "y": 1.9, "z": 1.1}}}
    return {"scene": scene, "height": panel.pixels, "margin": dict.fromkeys("lrtb", 0)}


def _scale(grid: Grid, length: float = 1) -> Json:
    """The colours and the bar beside them."""
    bar: Json = {"title": {"text": _text(grid.scale), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar["len"] = length
    if grid.ticks:
        bar |= {"tickvals": list(grid.ticks.values()), "ticktext": list(grid.ticks)}
    last = len(grid.colours) - 1
    return {"colorscale": [[n / last, shade] for n, shade in enumerate(grid.colours)], "colorbar": bar}


def _axis(axis: Axis, rows: bool = False) -> Json:
    """An axis; rows of names run from the top down, and all are named unless there are too many."""
    layout: Json = {"title": {"text": _text(axis.title), "standoff": 8}, "automargin": True, "zeroline": False}
    if axis.log:
        layout["type"] = "log"
    if axis.labels:
        names = [_text(name) for name in axis.labels]
        layout |= {"type": "category", "categoryorder": "array", "categoryarray": names}
    if axis.labels and rows:
        layout |= {"autorange": "reversed", "tickmode": "linear" if len(names) <= NAMED else "auto"}
    return layout


def _values(values: Sequence[Any], axis: Axis) -> list[Any]:
    """Values as an axis takes them: names escaped, numbers as JSON knows them."""
    return [_text(value) if isinstance(value, str) else _number(value) for value in axis.values(values)]


def _number(value: Any) -> float | int | None:
    """A number that JSON knows, in six digits; None for what is not finite."""
    if value is None or not isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _text(text: str) -> str:
    """A text that plotly.js, which reads a little HTML, shows as it is."""
    return escape(str(text), quote=False)


def _hover(template: str) -> str:
    """A hover text as plotly.js writes it: %{x:.4~g} for {x:.4g}."""
    return _text(template).replace("{", "%{").replace("g}", "~g}").replace("\n", "<br>")


def _faint(colour: str) -> str:
    """The colour of a band."""
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _shade(value: float | None, grid: Grid) -> float | None:
    """A value on the scale of colours."""
    return _number(sqrt(value) if grid.root and value is not None else value)
