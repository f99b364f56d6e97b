"""Figures for the screen: plain values that plotly.js draws. Colours of text and lines are the page's, so not here."""

from collections.abc import Sequence
from html import escape
from math import isfinite, sqrt
from typing import Any

from undrift.report.drawing import DASHES, DIVERGING, PALETTE, SEQUENTIAL, Axis, Body, Boxes, Curves, Grid, Points

Json = dict[str, Any]

_MARKS = ("circle", "square", "diamond", "triangle-up")
NAMED = 60  # rows; of more not every one is named
_BELOW = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"}
_MARGIN = {"l": 8, "r": 8, "t": 28, "b": 8}


def plotly(body: Body) -> Json:
    """A body as plotly.js takes it: `data` and `layout`."""
    match body:
        case Curves():
            return _curves(body)
        case Boxes():
            return _boxes(body)
        case Points():
            return _points(body)
    return _surface(body) if body.kind == "surface" else _grid(body)


def colour(style: int) -> str:
    """The colour of a method."""
    return PALETTE[style % len(PALETTE)]


def dash(style: int) -> str:
    """The dashes of a method, for when there are more methods than colours."""
    return DASHES[style // len(PALETTE) % len(DASHES)]


def _curves(body: Curves) -> Json:
    data = []
    for line in body.series:
        shown = {"legendgroup": line.label, "name": _text(line.label)}
        if line.low is not None and line.high is not None:
            x, y = [*line.x, *line.x[::-1]], [*line.high, *line.low[::-1]]
            band = {"fill": "toself", "fillcolor": _faint(line.style), "line": {"width": 0}, "mode": "lines"}
            data.append({**_scatter(x, y, body), **shown, **band, "hoverinfo": "skip", "showlegend": False})
        style = {"color": colour(line.style), "width": 2, "dash": dash(line.style)}
        mode = "lines+markers" if body.points else "lines"
        data.append({**_scatter(line.x, line.y, body), **shown, "mode": mode, "line": style, "marker": {"size": 6}})
    rows = len(body.y.labels)
    height = 300 + (20 * rows if rows else 80) + 12 * len(body.series)
    return {"data": data, "layout": _layout(body.x, body.y, height, legend=_BELOW, showlegend=True)}


def _scatter(x: Sequence[Any], y: Sequence[Any], body: Curves) -> Json:
    told = "%{x}, %{y}" if not body.y.percent else "%{x:.4~g}, %{y:.2f} %"
    return {"type": "scatter", "x": _values(x, body.x), "y": _values(y, body.y), "hovertemplate": told}


def _boxes(body: Boxes) -> Json:
    data = [
        {
            "type": "box",
            "orientation": "h",
            "name": _text(label),
            "x": _values(values, body.x),
            "boxpoints": "all" if len(values) <= 150 else "outliers",
            "jitter": 0.5,
            "pointpos": 0,
            "marker": {"color": colour(style), "size": 4, "opacity": 0.55},
            "line": {"width": 1.5},
        }
        for label, style, values in body.boxes
    ]
    names = Axis(body.y.title, tuple(label for label, _, _ in body.boxes))
    return {"data": data, "layout": _layout(body.x, names, 140 + 64 * len(data), showlegend=False)}


def _points(body: Points) -> Json:
    data = []
    for group in sorted(set(body.groups)):
        own = [n for n, other in enumerate(body.groups) if other == group]
        x, y = ([_number(body.points[n][axis]) for n in own] for axis in (0, 1))
        symbol = _MARKS[group // len(PALETTE) % len(_MARKS)]
        trace: Json = {"type": "scatter", "x": x, "y": y, "mode": "markers", "hovertemplate": "%{text}<extra></extra>"}
        trace["marker"] = {"color": colour(group), "symbol": symbol, "size": 8, "opacity": 0.85}
        trace |= {"text": [_text(body.names[n]) for n in own], "name": _text(body.labels.get(group, ""))}
        data.append(trace)
    more = {"legend": _BELOW, "showlegend": True} if body.labels else {"showlegend": False}
    return {"data": data, "layout": _layout(body.x, body.y, 340 + 8 * len(body.labels), **more)}


def _grid(body: Grid) -> Json:
    trace: Json = {
        "type": "contour" if body.kind == "contour" else "heatmap",
        "x": _values(body.columns, body.x),
        "y": _values(body.rows, body.y),
        "z": [[_shade(value, body) for value in row] for row in body.values],
        "zmin": _shade(body.low, body),
        "zmax": _shade(body.high, body),
        "colorscale": _scale(body),
        "colorbar": _bar(body),
        "hovertemplate": f"{body.x.title} %{{x}}<br>{body.y.title} %{{y}}<br>%{{z:.4~g}} {body.scale}<extra></extra>",
    }
    if body.root:
        trace["text"] = [["" if value is None else f"{value:g}" for value in row] for row in body.values]
        trace["hovertemplate"] = trace["hovertemplate"].replace("%{z:.4~g}", "%{text}")
    if body.kind == "contour":
        step = (body.high - body.low) / 16 or 1.0
        trace["contours"] = {"start": body.low, "end": body.high, "size": step}
        trace |= {"line": {"width": 0.5}, "zauto": False, "autocontour": False}
    elif len(body.rows) * len(body.columns) <= 2500:
        trace |= {"xgap": 1, "ygap": 1}
    height = 340 if body.kind == "contour" else 150 + min(max(160, 20 * len(body.rows)), 20 * NAMED)
    layout = _layout(body.x, body.y, height, plot_bgcolor="--raised")  # a name of the page's style
    layout["xaxis"]["showgrid"] = layout["yaxis"]["showgrid"] = False
    return {"data": [trace], "layout": layout}


def _surface(body: Grid) -> Json:
    trace = {
        "type": "surface",
        "x": list(body.columns),
        "y": list(body.rows),
        "z": [[_number(value) for value in row] for row in body.values],
        "cmin": body.low,
        "cmax": body.high,
        "colorscale": _scale(body),
        "colorbar": _bar(body),
    }
    height = {"title": {"text": _text(body.scale.partition(" (")[0])}, "range": [body.low, body.high]}
    scene = {
        "xaxis": {"title": {"text": _text(body.x.title)}},
        "yaxis": {"title": {"text": _text(body.y.title)}},
        "zaxis": height,
        "aspectmode": "cube",
        "camera": {"eye": {"x": 1.9, "y": 1.9, "z": 1.1}},
    }
    return {"data": [trace], "layout": {"scene": scene, "height": 400, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}}


def _layout(x: Axis, y: Axis, height: int, **more: Any) -> Json:
    return {
        "height": height,
        "margin": _MARGIN,
        "xaxis": _axis(x),
        "yaxis": _rows(_axis(y)),
        "hovermode": "closest",
        **more,
    }


def _axis(axis: Axis) -> Json:
    told: Json = {"title": {"text": _text(axis.title), "standoff": 8}, "automargin": True, "zeroline": False}
    if axis.labels:
        names = [_text(name) for name in axis.labels]
        told |= {"type": "category", "categoryorder": "array", "categoryarray": names}
    return told


def _rows(axis: Json) -> Json:
    """An axis of names from the top down, all of them shown if they are not too many."""
    names = axis.get("categoryarray")
    if names is None:
        return axis
    return {**axis, "autorange": "reversed", "tickmode": "linear" if len(names) <= NAMED else "auto"}


def _values(values: Sequence[Any], axis: Axis) -> list[Any]:
    """Values as an axis takes them: names escaped, shares in percent."""
    if axis.percent:
        return [_number(value, 100) for value in values]
    return [_text(value) if isinstance(value, str) else _number(value) for value in values]


def _number(value: Any, times: float = 1.0) -> float | int | None:
    """A number that JSON knows, in six digits; None for what is none."""
    if value is None or not isfinite(value):
        return None
    return value if isinstance(value, int) and times == 1 else float(f"{value * times:.6g}")


def _text(text: str) -> str:
    """A text that plotly.js, which reads a little HTML, shows as it is."""
    return escape(str(text), quote=False)


def _faint(style: int) -> str:
    """The colour of a band."""
    red, green, blue = (int(colour(style)[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def _shade(value: float | None, body: Grid) -> float | None:
    """A value on the scale of colours."""
    return _number(sqrt(value) if body.root and value is not None else value)


def _scale(body: Grid) -> list[list[Any]]:
    colours = DIVERGING if body.diverging else SEQUENTIAL
    return [[n / (len(colours) - 1), shade] for n, shade in enumerate(colours)]


def _bar(body: Grid) -> Json:
    """The scale beside the figure; where colours follow the root its marks say the values themselves."""
    bar: Json = {"title": {"text": _text(body.scale), "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar["len"] = 0.8 if body.kind == "surface" else 1
    if body.kind == "contour":
        bar["tickformat"] = ".3~g"
    if body.root:
        marks = [round(body.high * share) for share in (0, 1 / 16, 1 / 4, 9 / 16, 1)]
        bar |= {"tickvals": [sqrt(mark) for mark in marks], "ticktext": [str(mark) for mark in marks]}
    return bar
