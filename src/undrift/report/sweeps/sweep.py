"""Accuracy over a setting or an argument: one line per method, one frame per other setting, bars over seeds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isfinite, log10
from pathlib import Path
from typing import Any

from undrift.report.collect import collect
from undrift.report.draw.assemble import band
from undrift.report.draw.description import PALETTE, Axis, Figure, Line, Panel, line_panel, slug
from undrift.report.draw.print_figures import write_prints
from undrift.report.loaded import LoadedRun, ReportError
from undrift.report.panels.training import judged_labels
from undrift.report.sweeps.frames import Curve, frames_over
from undrift.studies.statistics import spread
from undrift.util.naming.names import suggest

DECADES = 1.5  # positive numbers that span more are drawn on a log axis
_SCHEME = re.compile(r"([a-z-]+)\(([0-9.e-]+)(.*)")
_SHARES = ("accuracy", "worst_tenth")  # in the names of numbers that are shares


def draw_sweep(
    runs: Sequence[Path],
    folder: Path,
    *,
    over: str,
    by: str = "last",
    minus: str = "",
    together: bool = False,
) -> list[Path]:
    """Write the figure of `sweep_figure` as PNG and PDF and return the paths.

    Args:
        runs: as `collect` takes them.
        folder: where to write.
        over: see `sweep_figure`, as for the other arguments.
        by: what is shown.
        minus: a label.
        together: whether all settings share a frame.
    """
    figure = sweep_figure(collect(runs).runs, over=over, by=by, minus=minus, together=together)
    return write_prints([figure], folder)


def sweep_figure(
    runs: Sequence[LoadedRun], *, over: str, by: str = "last", minus: str = "", together: bool = False
) -> Figure:
    """A number of each run, usually its accuracy, over a value in which the runs differ.

    A line is a method with its other arguments: means over seeds, with bars of one standard deviation to each side. A
    run without the value, such as FedAvg in a sweep over rho, is a dashed line through the frame, with a band. Runs
    that differ in other settings are in different frames; if some frames have several values, those with one are left
    out.

    Args:
        runs: the runs.
        over: a setting (`local.epochs`, `cohort`, `partition`), an argument of the method (`rho`), an attribute of a
            block (`perturbation.rho`), or `method`.
        by: "last" or "best", of the accuracy by which each run is judged, or another number of a run's result:
            "seconds_per_round", "rounds_to_target", "client_worst_tenth", ...
        minus: show the difference from the line with this label, seed by seed; empty shows the numbers themselves.
        together: whether all settings share a frame.
    """
    metrics = sorted({run.judged_by.metric for run in runs})
    if by in ("last", "best") and len(metrics) > 1:
        raise ReportError(
            f"the runs are judged by different metrics, {' and '.join(metrics)}, which share no axis: leave some out, "
            f"or choose a number that all have, for example --by {metrics[0]}"
        )
    frames = frames_over(runs, over)
    xs = list(dict.fromkeys(x for curves in frames.values() for curve in curves.values() for x in curve.runs))
    axis, place = _x_axis([x for x in xs if x is not None], over)
    number = {id(run): _number(run, by) for run in runs}
    if all(value is None for value in number.values()):
        known = [key for key, value in runs[0].result.items() if isinstance(value, int | float)]
        raise ReportError(f"no run has a number {by!r}; {suggest(by, ['last', 'best', *known])}")
    styles = {label: n for n, label in enumerate(dict.fromkeys(label for x in frames.values() for label in x))}
    if minus and minus not in styles:
        raise ReportError(f"no line is labelled {minus!r}; {suggest(minus, styles)}")
    title, y = _y_axis(runs, by, minus)
    lines = {name: _lines(curves, minus, styles, number, place) for name, curves in frames.items()}
    drawn = {"": _join_frames(lines)} if together else lines
    parts = [(name, _panel(axis, y, own)) for name, own in drawn.items() if any(line.bars for line in own)]
    if not parts:
        raise ReportError(f"nothing to draw: no setting has a line over {over}" + f" and {minus}" * bool(minus))
    return Figure(
        slug("sweep", over, "" if by == "last" else by, "minus" if minus else "", minus),
        f"{title} over {over}",
        "Points are means over seeds and bars one standard deviation to each side; dashed lines do not depend on "
        f"{over}.{_missing_note(number)}",
        tuple(parts),
    )


def _x_axis(xs: Sequence[Any], over: str) -> tuple[Axis, Mapping[Any, Any]]:
    """The axis, and the place of each value on it: a number if all are numbers, else its text."""
    title, places = over, {x: x for x in xs}
    schemes = [_SCHEME.fullmatch(str(x)) for x in xs]
    if over == "partition" and len({(m[1], m[3]) if m else None for m in schemes} - {None}) == 1 and all(schemes):
        first = schemes[0]
        title = f"partition {first[1]}(x{first[3]}" if first else over
        places = {x: float(m[2]) for x, m in zip(xs, schemes, strict=True) if m}
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in places.values())
    if not numbers or not all(map(isfinite, places.values())):  # infinity, which switches terms off, has no place
        ordered = sorted(xs) if numbers else xs
        texts = {x: str(x).lower() if isinstance(x, bool) else str(x) for x in ordered}
        return Axis(title, tuple(dict.fromkeys(texts.values()))), texts
    low, high = min(places.values()), max(places.values())
    return Axis(title, log=low > 0 and log10(high / low) > DECADES), places


def _number(run: LoadedRun, by: str) -> float | None:
    """What is shown of a run; None if it has no such number."""
    if by == "last" and run.result["lost"]:
        return None
    value = run.result.get({"best": run.judged_by.best_key, "last": run.judged_by}.get(by, by))
    return value if isinstance(value, int | float) and isfinite(value) else None


def _missing_note(number: Mapping[int, float | None]) -> str:
    """How many runs have no number: they diverged, or never reached a target."""
    without = sum(value is None for value in number.values())
    return f" {without} of {len(number)} runs have no such number and are left out of the means." if without else ""


def _y_axis(runs: Sequence[LoadedRun], by: str, minus: str) -> tuple[str, Axis]:
    """A title and the axis."""
    judged = frozenset(run.judged_by for run in runs)
    metric, label = next(iter(judged)).metric, judged_labels(judged)[1]
    known = {"best": f"best {label}", "last": f"last {label}"}
    percent = metric.percent if by in known else any(word in by for word in _SHARES)
    title = known.get(by, by.replace("_", " ") + (" (%)" if percent else ""))
    if minus:
        title = title.replace(" (%)", "") + f", minus {minus}" + (" (points)" if percent else "")
    judge = next(iter(judged)) if len(judged) == 1 else metric
    heading = f"{by} {judge.words}" if by in known else by.replace("_", " ")
    return heading.capitalize(), Axis(title, percent=percent)


def _lines(
    curves: Mapping[str, Curve],
    minus: str,
    styles: Mapping[str, int],
    number: Mapping[int, float | None],
    place: Mapping[Any, Any],
) -> list[Line]:
    """The lines of a frame; those of which the reference has no runs are left out."""
    reference = curves.get(minus) if minus else None
    shown = (
        {} if minus and reference is None else {label: x for label, x in curves.items() if not minus or label != minus}
    )
    lines = [_line(label, styles[label], curve, reference, number, place) for label, curve in shown.items()]
    return [line for line in lines if line is not None]


def _join_frames(frames: Mapping[str, Sequence[Line]]) -> list[Line]:
    """The lines of all frames; they are named by their settings alone if there is one method only."""
    one = len({line.label for lines in frames.values() for line in lines}) == 1
    every = [(name, line) for name, lines in frames.items() for line in lines]
    return [
        replace(
            line,
            label=name if one else ", ".join(filter(None, (line.label, name))),
            style=n if line.bars else len(PALETTE) + n,
        )
        for n, (name, line) in enumerate(every)
    ]


def _line(
    label: str,
    style: int,
    curve: Curve,
    reference: Curve | None,
    number: Mapping[int, float | None],
    place: Mapping[Any, Any],
) -> Line | None:
    """Means and deviations over seeds; None if there is nothing to show. The ends of a level are set by `_panel`."""
    points = []
    for x, seeds in curve.runs.items():
        own = {seed: value for seed, run in seeds.items() if (value := number[id(run)]) is not None}
        if reference is not None:
            theirs = reference.runs.get(x) or reference.runs.get(None, {})
            pairs = {seed: number[id(theirs[seed])] for seed in own if seed in theirs}
            own = {seed: own[seed] - base for seed, base in pairs.items() if base is not None}
        if own:
            points.append((place.get(x), *spread(list(own.values()))))
    if not points:
        return None
    if not curve.level:
        points.sort(key=lambda point: _order(point[0], place))
    middle, half = [mean for _, mean, _ in points], [deviation or 0.0 for _, _, deviation in points]
    known = any(deviation is not None for _, _, deviation in points)
    low, high = band(middle, half) if known else (None, None)
    if curve.level:
        return Line(label, len(PALETTE) + style, (), middle, low, high)
    return Line(label, style, [x for x, _, _ in points], middle, low, high, dots=True, bars=True)


def _order(x: Any, place: Mapping[Any, Any]) -> Any:
    """Numbers in order, texts as they come."""
    return list(place.values()).index(x) if isinstance(x, str) else x


def _panel(x: Axis, y: Axis, lines: Sequence[Line]) -> Panel:
    """The lines, with levels from the first value to the last."""
    ends = x.labels[:1] + x.labels[-1:] or _ends([place for line in lines for place in line.x])
    drawn = [line if line.bars else _level(line, ends) for line in lines]
    return line_panel(x, y, drawn)


def _ends(xs: Iterable[float]) -> tuple[float, float]:
    """The first and the last value, or a little to each side of a single one."""
    low, high = min(xs), max(xs)
    margin = 0.1 * abs(low) or 1.0
    return (low, high) if low < high else (low - margin, low + margin)


def _level(line: Line, ends: Sequence[Any]) -> Line:
    low, high = (None if band is None else [*band] * 2 for band in (line.low, line.high))
    return replace(line, x=list(ends), y=[*line.y] * 2, low=low, high=high)
