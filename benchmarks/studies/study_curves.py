"""The accuracy of a study's rows over rounds or time, as a figure of docs/evidence."""

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.figure import Figure

from row_texts import personal_rows
from shared import svg

COLOURS = [colormaps["tab20"](i) for i in (*range(14), *range(16, 20))]
"""For the rows; without the greys, of which one is the baseline's."""
MARKERS = "os^vD"

Curve = list[tuple[int, float]]


def mean_curve(lines: Iterable[Mapping[str, Any]], setting: str, label: str) -> Curve:
    """Rounds and accuracies in percent of a row in one setting, the mean over its seeds; empty without a run.

    Args:
        lines: the raw results.
        setting: the part of the study.
        label: the row.
    """
    found: dict[int, list[float]] = {}
    for line in lines:
        if (line["setting"], line["label"]) == (setting, label):
            for at, value in line["curve"]:
                found.setdefault(at, []).append(100 * value)
    return [(at, fmean(values)) for at, values in sorted(found.items())]


def curves(study: Mapping[str, Any], lines: list[dict[str, Any]], over: str = "round") -> str:
    """The mean accuracy of every row over rounds, setting by setting, as SVG; the baseline is the thick grey line.

    Args:
        study: the tuned comparison.
        lines: the raw results.
        over: what the first numbers of the curves count.
    """
    labels = [row["label"] for row in study["methods"]]
    measured = {line["setting"] for line in lines}
    settings = [setting for setting in study["settings"] if setting in measured]
    columns = min(2, len(settings))
    rows = -(-len(settings) // columns)
    others = [label for label in labels if label != study["baseline"]]
    personal = set(personal_rows(line for line in lines if "config" in line).values())
    axis = {frozenset({True}): "personal accuracy %", frozenset({True, False}): "accuracy %"}.get(
        frozenset(personal), "test accuracy %"
    )
    drawn_as = {label: {"color": COLOURS[i % 18], "marker": MARKERS[i % 5]} for i, label in enumerate(others)}
    with rc_context({"svg.hashsalt": "undrift", "font.size": 9}):
        drawn = Figure(figsize=(8.4, 0.4 + rows * max(2.6, 0.17 * len(labels))), layout="constrained")
        parts = drawn.subplots(rows, columns, sharex=True, squeeze=False)
        for axes, setting in zip(parts.flat, settings, strict=False):
            found = {label: x for label in labels if (x := mean_curve(lines, setting, label))}
            for label, curve in sorted(found.items(), key=lambda item: -item[1][-1][1]):
                baseline = label == study["baseline"]
                style: dict[str, Any] = {"color": "#777777", "linewidth": 3} if baseline else drawn_as[label]
                axes.plot(*zip(*curve, strict=True), label=label, **{"linewidth": 1.2, "markersize": 3, **style})
            axes.set_title(setting, fontsize=9, loc="left")
            axes.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        for axes in parts.flat[len(settings) :]:
            axes.set_axis_off()
        for axes in parts[:, 0]:
            axes.set_ylabel(axis)
        for axes in parts[-1]:
            axes.set_xlabel(over)
        return svg(drawn)
