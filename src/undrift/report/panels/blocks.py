"""Figures of what blocks report of every round: one curve per scalar, and a table of cells per family."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from undrift.core.method.algorithm import SLOTS
from undrift.report.draw.assemble import side_by_side
from undrift.report.draw.description import Axis, Figure, Grid, Line, Panel, grid_panel, line_panel, slug, with_setting
from undrift.report.loaded import Group, Material
from undrift.report.panels.training import series

_SPREAD = ("_std", "_min", "_max")
_CLIENTS = (
    "Lines are means over the clients of a round (and over seeds), bands one standard deviation of the clients to each "
    "side, no further than their smallest and largest value"
)
_SERVER = "One number of the server in every round; lines are means over seeds"


def block_reports(material: Material) -> Iterator[Figure]:
    """The scalars that blocks report, methods in one frame; then families, such as one number per layer."""
    for setting in material.settings:
        groups = material.within(setting)
        names = list(dict.fromkeys(name for group in groups for name in _names(group)))
        for name in names:
            if "/" not in name:
                yield from _curve(name, setting, groups)
        for family in dict.fromkeys(name.partition("/")[0] for name in names if "/" in name):
            yield from _cells(family, setting, groups)


def _names(group: Group) -> Iterator[str]:
    """The columns of blocks in the rows of a method, without those of their spread."""
    rows = [row for run in group.runs for row in run.rows]
    known = dict.fromkeys(name for row in rows for name in row if name.partition(".")[0] in SLOTS and "." in name)
    for name in known:
        if not any(name.endswith(end) and name.removesuffix(end) in known for end in _SPREAD):
            yield name


def _curve(name: str, setting: str, groups: Sequence[Group]) -> Iterator[Figure]:
    """The lines of a scalar, of the methods that have it."""
    lines = [line for group in groups if (line := _line(group, name)) is not None]
    clients = any(f"{name}_std" in row for group in groups for run in group.runs for row in run.rows)
    if lines:
        what, slot = _words(name)
        title = with_setting(f"{slot}: {what}{', mean and deviation over clients' if clients else ''}", setting)
        panel = line_panel(Axis("round"), Axis(what), lines)
        reading = f"{_CLIENTS if clients else _SERVER}."
        yield Figure(slug("block", name, setting), title, reading, (("", panel),), f"{slot}: {what}")


def _line(group: Group, name: str) -> Line | None:
    """The mean over seeds, with the spread over clients as its band if there is one."""
    line = series(group, name, "rounds")
    spread = [series(group, f"{name}{end}", "rounds") for end in _SPREAD]
    if line is None or any(other is None or list(other.x) != list(line.x) for other in spread):
        return line
    deviation, least, most = (other.y for other in spread if other is not None)
    low = [max(m - d, x) for m, d, x in zip(line.y, deviation, least, strict=True)]
    high = [min(m + d, x) for m, d, x in zip(line.y, deviation, most, strict=True)]
    return replace(line, low=low, high=high)


def _cells(family: str, setting: str, groups: Sequence[Group]) -> Iterator[Figure]:
    """A table of cells for each method that has the family: members by rounds."""
    what, slot = _words(family)
    yield from side_by_side(
        [(group.label, _table(group, family, what)) for group in groups],
        ("block", family, setting),
        with_setting(f"{slot}: {what}, mean over clients", setting),
        "Every cell is the mean over the clients of a round (and over seeds), brighter is more.",
        f"{slot}: {what}",
    )


def _table(group: Group, family: str, what: str) -> Panel | None:
    names = [name for name in _names(group) if name.startswith(f"{family}/")]
    lines = {name: line for name in names if (line := series(group, name, "rounds")) is not None}
    if not lines:
        return None
    rounds = sorted({int(x) for line in lines.values() for x in line.x})
    values = [dict(zip(map(int, line.x), line.y, strict=True)) for line in lines.values()]
    cells = [[row.get(round) for round in rounds] for row in values]
    low, high = (float(of([of(line.y) for line in lines.values()])) for of in (np.min, np.max))
    members = tuple(name.partition("/")[2] for name in lines)
    grid = Grid(rounds, members, cells, what, min(low, 0.0), max(high, 0.0))
    return grid_panel(Axis("round"), Axis("", members), grid)


def _words(name: str) -> tuple[str, str]:
    """What a column is, and its slot."""
    slot, _, what = name.partition(".")
    return what.replace("_", " "), slot.replace("_", " ").capitalize()
