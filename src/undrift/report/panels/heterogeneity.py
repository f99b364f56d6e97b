"""Figures and table of the quantities of convergence theory: length and variance of clients' gradients."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from undrift.report.draw.assemble import dotted_panel, over_seeds, side_by_side
from undrift.report.draw.description import PALETTE, Axis, Figure, Line, Panel, Table, number_text, with_setting
from undrift.report.loaded import Group, LoadedRun, Material, lookup

_PART = "heterogeneity"
_QUANTITIES = {
    "gradient": "squared norm of the gradient",
    "between": "variance between clients",
    "within": "variance within clients",
}
_VARIANCES = (
    "Dashed lines are after a filter, which lowers all three by construction if it is a projection: see the "
    "dissimilarity for whether it helps."
)
_DISSIMILARITY = (
    "1 means that all clients have the same gradient, and a filter helps where its dashed line is below the solid one; "
    "all lines rise as the gradient of the mean loss vanishes, so a method's higher line is no evidence against it."
)


def over_rounds(material: Material) -> Iterator[Figure]:
    """The quantities over the rounds, whole and filtered, with all methods in one frame."""
    for setting in material.settings:
        groups = material.within(setting)
        yield from side_by_side(
            [(title, _panel(groups, key, "")) for key, title in _QUANTITIES.items()],
            (_PART, setting),
            with_setting("Length and variance of gradients over the rounds", setting),
            _VARIANCES,
            "variances",
        )
        yield from side_by_side(
            [("", _panel(groups, "dissimilarity", "mean squared length of gradients / that of their mean"))],
            (_PART, "dissimilarity", setting),
            with_setting("Dissimilarity of clients' gradients over the rounds", setting),
            _DISSIMILARITY,
            "dissimilarity",
        )


def table(material: Material) -> Table | None:
    """The quantities at the last measured round, whole and filtered, of the first seed; None if not measured."""
    several, rows = len(material.settings) > 1, []
    for group in material.groups:
        measured = next((points for run in group.runs if (points := _measurements(run))), {})
        if not measured:
            continue
        round, last = max(measured.items())
        after = f"after {last.get('filter', 'a filter')}"
        for part, name in (("whole", "gradient"), ("kept", after), ("removed", "removed by it")):
            if part in last:
                numbers = [number_text(last[part].get(key)) for key in (*_QUANTITIES, "dissimilarity")]
                rows.append([*[group.setting] * several, group.label, name, str(round), *numbers])
    headings = ["method", "of", "round", "squared norm", "between clients", "within clients", "dissimilarity"]
    reading = (
        "F is the mean loss of the measured clients, weighted by their examples. The squared norm of its gradient and "
        "both variances add up to the mean squared length of a batch's gradient."
    )
    return Table([*["setting"] * several, *headings], rows, reading, keys=2 + several) if rows else None


def _panel(groups: Sequence[Group], key: str, axis: str) -> Panel | None:
    """A quantity of all methods, solid, and dashed after a filter."""
    drawn = [line for group in groups for line in (_line(group, "whole", key), _line(group, "kept", key))]
    return dotted_panel(Axis("round"), Axis(axis or "squared length"), drawn)


def _line(group: Group, part: str, key: str) -> Line | None:
    """A quantity over the rounds; after a filter, in the same colour with other dashes."""
    seeds = [found for run in group.runs if (found := _measurements(run))]
    points = [{n: (n, x) for n, row in found.items() if _finite(x := lookup(row, part, key))} for found in seeds]
    line = over_seeds(group.label, group.style, points)
    if line is None or part == "whole":
        return line
    filter = next((row["filter"] for found in seeds for row in found.values() if "filter" in row), "a filter")
    return replace(line, label=f"{group.label}, after {filter}", style=group.style + len(PALETTE))


def _measurements(run: LoadedRun) -> dict[int, Mapping[str, Any]]:
    """Rounds done -> what was measured during the run or, if nothing was, afterwards."""
    live = {row["round"]: row[_PART] for row in run.stream if row.get(_PART)}
    return live or {row["round"]: row[_PART] for row in run.looks if row.get(_PART)}


def _finite(value: Any) -> bool:
    return isinstance(value, float | int) and isfinite(value)
