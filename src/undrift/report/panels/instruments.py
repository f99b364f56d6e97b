"""Figures of what the lens measured of clients: spectrum, layers and alignment."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from undrift.report.draw.assemble import LAYER, Matrix, dotted_panel, lines, mean, numbers, side_by_side
from undrift.report.draw.description import Axis, Figure, Grid, Line, Panel, grid_panel, with_setting
from undrift.report.loaded import Group, Material, lookup

FREQUENCY = Axis("frequency (share of the highest)")
_SOURCES = {
    "update": "updates",
    "gradient": "gradients",
    "perturbation": "perturbations",
    "filtered": "filtered gradients",
}
_BANDS = (
    (
        "consensus",
        ("consensus",),
        "What clients' {} share",
        "1 means that clients share all of a frequency and 1 / clients that they share nothing of it: a filter can "
        "help where it removes what is low here.",
        "energy of the mean / mean energy",
    ),
    (
        "distance",
        ("overall", "distance"),
        "How far apart clients' {} are",
        "A line that rises to the right belongs to clients that differ most in high frequencies; lines are scaled to "
        "length one, so compare their shapes.",
        "distance of clients (length one)",
    ),
    (
        "variance",
        ("overall", "variance"),
        "Variance of clients' {}",
        "The higher the line at a frequency, the more clients differ in it; it grows with the square of lengths.",
        "variance over clients (weights squared)",
    ),
)
"""Figures over frequencies: name, keys below the vectors' own, title, reading and axis."""
_DIVERGENCE = {
    "relative": (
        "distance / length of the mean",
        "The further right a layer, the less clients agree on it; 1 means that they differ by as much as they move "
        "together.",
    ),
    "update": (
        "distance of updates from their mean (weights)",
        "The further right a layer, the more clients' updates differ in it; large layers lie there by size alone.",
    ),
    "gradient": (
        "distance of gradients from their mean",
        "The further right a layer, the more clients' gradients differ in it; large layers lie there by size alone.",
    ),
}


def spectrum(material: Material) -> Iterator[Figure]:
    """Band by band: what clients share, how far apart they are, and the same by layer."""
    for source, vectors in _SOURCES.items():
        for setting in material.settings:
            groups = material.within(setting)
            for name, keys, title, reading, axis in _BANDS:
                if name != "variance" or source == "perturbation":
                    yield from lines(
                        [band_line(group, name == "distance", "spectrum", source, *keys) for group in groups],
                        (name, source, setting),
                        with_setting(title.format(vectors), setting),
                        reading,
                        (FREQUENCY, Axis(axis)),
                        vectors,
                    )
            yield from _apart_by_layer(groups, source, vectors, setting)
    for setting in material.settings:
        for source, vectors in _SOURCES.items():
            yield from _kept_rounds(material.within(setting), source, vectors, setting)
        yield from side_by_side(
            [(group.label, _over_rounds(group, "shared energy", "consensus")) for group in material.within(setting)],
            ("consensus-rounds", setting),
            with_setting("What clients' gradients share over the rounds", setting),
            "Rows that grow darker to the right are frequencies of which clients share less and less.",
            "over rounds",
        )


def _kept_rounds(groups: Sequence[Group], source: str, vectors: str, setting: str) -> Iterator[Figure]:
    """Distance and deviation after each measured round, if there are several."""
    panels = []
    for group in groups:
        looks = next((run.looks for run in group.runs if len(run.looks) > 1), [])
        for key, title in (("distance", "distance of pairs"), ("std", "its deviation")):
            rows = [(measured["round"], lookup(measured, "spectrum", source, "overall", key)) for measured in looks]
            drawn = [_line(f"round {round}", n, row) for n, (round, row) in enumerate(rows) if row]
            panels.append((f"{group.label}, {title}", dotted_panel(FREQUENCY, Axis(title), drawn)))
    return side_by_side(
        panels,
        ("bands", source, setting),
        with_setting(f"How far apart clients' {vectors} are, round by round", setting),
        "As measured, so that large layers count most: a line that falls to the right means that clients differ most "
        "in low frequencies.",
        "over rounds",
    )


def _apart_by_layer(groups: Sequence[Group], source: str, vectors: str, setting: str) -> Iterator[Figure]:
    return side_by_side(
        [(group.label, _by_layer(group, source)) for group in groups],
        ("spectrum-layers", source, setting),
        with_setting(f"Distance of clients' {vectors} by layer", setting),
        "Brighter cells are the frequencies in which clients differ most; each row is scaled to length one.",
        vectors,
    )


def divergence(material: Material) -> Iterator[Figure]:
    """How far clients are from their mean by layer, at the end and over the rounds, and the angles between them."""
    for setting in material.settings:
        groups = material.within(setting)
        for key, (axis, reading) in _DIVERGENCE.items():
            shown = [_layers(group, "divergence", key) for group in groups]
            title = with_setting(f"Divergence by layer, {key}", setting)
            yield from lines(shown, ("divergence", key, setting), title, reading, (Axis(axis), LAYER), key)
        yield from side_by_side(
            [(group.label, _over_rounds(group, "distance / mean", "divergence", "relative")) for group in groups],
            ("divergence-rounds", setting),
            with_setting("Divergence by layer over the rounds", setting),
            "Rows that grow brighter to the right are layers on which clients agree less and less.",
            "over rounds",
        )
        yield from _through_filter(groups, setting)
        yield from _angles(groups, setting)


def _through_filter(groups: Sequence[Group], setting: str) -> Iterator[Figure]:
    """Distance of gradients before and after a filter, absolute and relative to the length of the mean."""
    for key, before, axis, reading in (
        (
            "gradient",
            "gradient",
            "distance of gradients from their mean",
            "A filter that only removes can but lower the distance, whatever the gradients: a decrease is no evidence.",
        ),
        (
            "relative",
            "gradient_relative",
            "distance / length of the mean",
            "A filter helps in layers whose points it moves to the left: clients agree more on what remains.",
        ),
    ):
        panels = []
        for group in groups:
            pair = _pair(_layers(group, "divergence", before), _layers(group, "divergence", "filtered", key))
            panels.append((group.label, dotted_panel(Axis(axis), LAYER, pair)))
        name, title = ("divergence-filtered", key, setting), f"Divergence before and after a filter, {key}"
        yield from side_by_side(panels, name, with_setting(title, setting), reading, "through a filter")


def _pair(before: Line | None, after: Line | None) -> tuple[Line, ...]:
    """The lines before and after, with names and colours of their own."""
    pairs = zip(("before", "after"), (before, after), strict=True)
    return tuple(replace(line, label=label, style=n) for n, (label, line) in enumerate(pairs) if line is not None)


def _angles(groups: Sequence[Group], setting: str) -> Iterator[Figure]:
    keys = ("divergence", "cosine", "matrix"), ("clients",)
    return side_by_side(
        [(group.label, _square(group, "cosine", -1, *keys)) for group in groups],
        ("cosine", setting),
        with_setting("Angles between clients' updates", setting),
        "Red pairs of clients pull the same way, blue ones against each other, white ones are at right angles.",
        "angles",
    )


def alignment(material: Material) -> Iterator[Figure]:
    """How alike the representations of clients' models are (linear CKA)."""
    for setting in material.settings:
        groups = material.within(setting)
        keys = ("alignment", "matrix"), ("alignment", "clients")
        yield from side_by_side(
            [(group.label, _square(group, "CKA", 0, *keys)) for group in groups],
            ("cka", setting),
            with_setting("Alignment of clients' representations", setting),
            "1 means that two clients' models see the same examples in the same way: the brighter, the less drift.",
            "pairs of clients",
        )
        yield from lines(
            [_alignment_line(group) for group in groups],
            ("cka-layers", setting),
            with_setting("Alignment by layer", setting),
            "The further left a layer, the more clients' models have grown apart in it.",
            (Axis("mean CKA of pairs of clients"), LAYER),
            "layers",
        )


def band_line(group: Group, unit: bool, *keys: str) -> Line | None:
    """A value per band, over the bands' middles; None without a measurement.

    Args:
        group: the runs of a method.
        unit: scale the values to length one.
        keys: where they are in the measurements of the lens.
    """
    values = mean(group.lens(*keys))
    if values is None:
        return None
    if unit:
        values = values / (np.sqrt(np.square(values).sum()) or 1.0)
    return _line(group.label, group.style, values.tolist())


def _line(label: str, style: int, values: Sequence[float]) -> Line:
    """A line over the bands' middles."""
    return Line(label, style, [(n + 0.5) / len(values) for n in range(len(values))], values)


def _layers(group: Group, part: str, *keys: str) -> Line | None:
    """A value per layer."""
    values = mean(group.lens(part, *keys))
    names = (group.lens(part, "layers") or [[]])[0]
    if values is None or len(names) != len(values):
        return None
    return Line(group.label, group.style, values.tolist(), [str(name) for name in names])


def _alignment_line(group: Group) -> Line | None:
    """The mean alignment of each layer, given as a number or as the whole matrix."""
    layers = (group.lens("alignment", "layers") or [None])[0]
    if not isinstance(layers, dict) or not layers:
        return None
    values = [_off_diagonal(np.array(value, dtype=float)) for value in layers.values()]
    return Line(group.label, group.style, values, list(map(str, layers)))


def _off_diagonal(value: Matrix) -> float:
    if value.ndim < 2 or len(value) < 2:
        return float(value.mean())
    return float(value[~np.eye(len(value), dtype=bool)].mean())


def _by_layer(group: Group, source: str) -> Panel | None:
    """Layers by bands, each layer of length one."""
    values = mean(group.lens("spectrum", source, "normalised"))
    layers = (group.lens("spectrum", source, "layers") or [[]])[0]
    if values is None or len(layers) != len(values):
        return None
    columns = (np.arange(values.shape[1]) + 0.5) / values.shape[1]
    high = float(np.max(values, initial=0, where=np.isfinite(values)))
    return _cells(FREQUENCY, columns.tolist(), "layer", list(layers), values, "distance (unit rows)", high)


def _over_rounds(group: Group, scale: str, *keys: str) -> Panel | None:
    """Rounds by layers or by bands, from the first run with live measurements; rows of another length are left out."""
    watched = next((run.stream for run in group.runs if run.stream), [])
    rows = [(row, column) for row in watched if (column := lookup(row, *keys))]
    if not rows:
        return None
    first, shown = rows[0]
    layers = lookup(first, "divergence", "layers") if "divergence" in keys else None
    names = list(layers or [f"{(n + 0.5) / len(shown):.2g}" for n in range(len(shown))])
    kept = [(row["round"], column) for row, column in rows if len(column) == len(names)]
    values = np.array([column for _, column in kept], dtype=float).T
    high = float(np.max(values, initial=0, where=np.isfinite(values)))
    title = "layer" if layers else FREQUENCY.title
    return _cells(Axis("round"), [round for round, _ in kept], title, names, values, scale, high) if high else None


def _square(group: Group, scale: str, low: float, keys: tuple[str, ...], names: tuple[str, ...]) -> Panel | None:
    """Clients by clients, of the first seed that has them."""
    matrices = group.lens(*keys)
    if not matrices:
        return None
    values = np.array(matrices[0], dtype=float)
    known = (group.lens(*names) or [[]])[0]
    clients = [str(name) for name in (known if len(known) == len(values) else range(len(values)))]
    axis, rows = Axis("client", tuple(clients)), numbers(values)
    return grid_panel(axis, axis, Grid(clients, clients, rows, scale, low, 1, diverging=low < 0))


def _cells(x: Axis, columns: list[Any], title: str, rows: list[Any], values: Matrix, scale: str, high: float) -> Panel:
    names = [str(name) for name in rows]
    return grid_panel(x, Axis(title, tuple(names)), Grid(columns, names, numbers(values), scale, 0, high))
