"""Figures of what every run has: learning curves, who has what, and how clients fare."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isfinite, nan
from typing import Any

import numpy as np

from undrift.report.draw.assemble import over_seeds
from undrift.report.draw.description import Axis, Box, Figure, Line, box_panel, line_panel, slug, with_setting
from undrift.report.loaded import Group, LoadedRun, Material
from undrift.report.panels.partition import partition_figure, thin
from undrift.runs.folder.judge import GLOBAL, PERSONAL, evaluated_columns
from undrift.runs.settings.goals import Column

Row = dict[str, Any]

VALUES = 400  # at most, of a distribution; more are thinned out evenly


@dataclass(frozen=True)
class _Measure:
    """A number of a row and how its figures are labelled."""

    key: str
    title: str
    axis: Axis
    reading: str


def _add_up(cost: Callable[[Row], float]) -> Callable[[Sequence[Row]], list[float]]:
    """Where rounds end on an axis on which each costs something."""
    return lambda rows: list(accumulate(map(cost, rows)))


_ACROSS: dict[str, tuple[Axis, Callable[[Sequence[Row]], list[float]]]] = {
    "rounds": (Axis("round"), _add_up(lambda _: 1)),
    "traffic": (
        Axis("traffic of all clients, up and down (MB)"),
        _add_up(lambda row: (row["bytes_up"] + row["bytes_down"]) / 1e6),
    ),
    "seconds": (Axis("training time without tests (s)"), _add_up(lambda row: row["seconds"])),
    "virtual time": (Axis("virtual time (s)"), lambda rows: [row.get("virtual_seconds", nan) for row in rows]),
}
_HIGHER, _LOWER = "Higher and further left is better", "Lower and further left is better"
_THIN = (
    "personal accuracy is the mean of clients' own models on their own tests; "
    "thin lines are the global models of personal methods, on the test set, as is all global accuracy"
)
JUDGED = {
    frozenset({GLOBAL}): ("Accuracy", "accuracy on the test set (%)"),
    frozenset({PERSONAL}): ("Personal accuracy", "accuracy on clients' own tests (%)"),
    frozenset({GLOBAL, PERSONAL}): ("Personal and global accuracy", "accuracy by which it is judged (%)"),
}
_BAND = "lines are means over seeds, bands one standard deviation to each side"
_MEASURES = (
    _Measure("test_loss", "Test loss", Axis("loss on the test set (mean per example)"), "Lower is better"),
    _Measure("drift", "Client drift", Axis("distance of clients from their mean (weights)"), "Higher is more drift"),
    _Measure(
        "client_distance",
        "Client distance",
        Axis("mean distance from the model received (weights)"),
        "Higher is more local movement, of which drift is the part that clients do not share",
    ),
)


def learning(material: Material) -> Iterator[Figure]:
    """Accuracy over rounds, traffic and time; test loss, other metrics, drift and the clients' distance over rounds.

    Accuracy, or another metric in its place, is that by which each method is judged.
    """
    for name in _ACROSS:
        for setting in material.settings:
            groups = material.within(setting)
            for metric in dict.fromkeys(group.judged_by.metric for group in groups):
                measure, lines = _judged_lines([group for group in groups if group.judged_by.metric == metric], name)
                if lines:
                    yield _curves(measure, name, setting, lines)
    others = dict.fromkeys(metric for group in material.groups for metric in _others(group))
    for measure in (*_MEASURES, *map(_metric, others)):
        for setting in material.settings:
            shown = [series(group, measure.key, "rounds") for group in material.within(setting)]
            if lines := [line for line in shown if line is not None]:
                yield _curves(measure, "rounds", setting, lines)


def _judged_lines(groups: Sequence[Group], across: str) -> tuple[_Measure, list[Line]]:
    """The judged accuracy of some methods: its labels and lines, then thin lines of personal methods' global models."""
    kinds = frozenset(group.judged_by for group in groups)
    metric = groups[0].judged_by.metric
    title, axis = judged_labels(kinds)
    lines, thin = [], []
    for group in groups:
        personal = group.judged_by.personal
        if line := series(group, group.judged_by, across):
            kind = ", personal" if personal else ", global"
            lines.append(replace(line, label=group.label + kind) if len(kinds) > 1 else line)
        if personal and (line := series(group, metric, across)):
            thin.append(replace(line, label=f"{group.label}, global model", low=None, high=None, thin=True))
    reading = _LOWER if metric.minimised else _HIGHER
    reading += f"; {_THIN.replace('accuracy', metric.words)}" if thin else ""
    return _Measure(metric, title, Axis(axis, percent=metric.percent), reading), [*lines, *thin]


def judged_labels(judges: frozenset[Column]) -> tuple[str, str]:
    """Title and axis of what some methods are judged by, all by one metric, of global or of personal models."""
    if judges in JUDGED:
        return JUDGED[judges]
    metric, personal = next(iter(judges)).metric, [judge.personal for judge in judges]
    kind = "Personal and global " if len(set(personal)) > 1 else "Personal " if all(personal) else ""
    words = metric.words if kind else metric.words.capitalize()
    where = "of what it is judged by" if len(set(personal)) > 1 else "on clients' own tests" if all(personal) else ""
    where = where or ("in training" if metric == "train_loss" else "on the test set")
    return f"{kind}{words}", f"{metric.words} {where}" + (" (%)" if metric.percent else "")


def _others(group: Group) -> list[Column]:
    """The metrics of the global model that were measured besides the judged one, in order."""
    names = dict.fromkeys(name for run in group.runs for row in run.rows for name in evaluated_columns(row))
    known = {group.judged_by.metric, "accuracy", "clean_accuracy", "test_loss"}
    return [Column(name) for name in names if name not in known and not name.startswith(("client_", "accuracy/"))]


def _metric(column: Column) -> _Measure:
    """The labels of a metric that judges nothing."""
    axis = Axis(f"{column.words} on the test set" + (" (%)" if column.percent else ""), percent=column.percent)
    return _Measure(column, column.words.capitalize(), axis, f"{'Lower' if column.minimised else 'Higher'} is better")


def _curves(measure: _Measure, across: str, setting: str, lines: Sequence[Line]) -> Figure:
    band = f"; {_BAND}" if any(line.low for line in lines) else ""
    return Figure(
        name=slug("curve", measure.key, across, setting),
        title=with_setting(f"{measure.title} over {across}", setting),
        reading=f"{measure.reading}{band}.",
        parts=(("", line_panel(_ACROSS[across][0], measure.axis, lines)),),
        tab=across if measure.reading.startswith((_HIGHER, _LOWER)) else measure.title.lower(),
    )


def series(group: Group, key: str, across: str) -> Line | None:
    """The line of a method: mean and deviation over the seeds, at the rounds that all of them have.

    Args:
        group: the runs.
        key: of the rows.
        across: "rounds", "traffic", "seconds" or "virtual time".
    """
    return over_seeds(group.label, group.style, [_points(run, key, across) for run in group.runs])


def _points(run: LoadedRun, key: str, across: str) -> dict[int, tuple[float, float]]:
    """Round -> how far along the axis it ends, and its value."""
    places = _ACROSS[across][1](run.rows)
    return {
        row["round"]: (place, row[key])
        for row, place in zip(run.rows, places, strict=True)
        if row.get(key) is not None and isfinite(row[key]) and isfinite(place)
    }


def partitions(material: Material) -> Iterator[Figure]:
    """Who has how many examples of which class, once for every setting: methods share it."""
    for setting in material.settings:
        run = material.within(setting)[0].runs[0]
        partition = run.read("partition.json")
        if partition and partition.get("histogram"):
            scheme = partition.get("scheme", run.config.partition)
            title = with_setting(f"Examples of each class at each client, {scheme}", setting)
            counts = np.array(partition["histogram"])
            yield partition_figure(counts, slug("partition", setting), title, run.config.seed)


def fairness(material: Material) -> Iterator[Figure]:
    """How accuracy is spread over the clients at the end, all seeds together."""
    for setting in material.settings:
        groups = material.within(setting)
        for metric in dict.fromkeys(group.judged_by.metric for group in groups):
            own = [group for group in groups if group.judged_by.metric == metric]
            boxes = [Box(group.label, group.style, _scores(group, metric)) for group in own]
            shown = [box for box in boxes if box.values]
            if shown:
                axis = Axis(
                    f"{metric.words} on the client's own test" + " (%)" * metric.percent, percent=metric.percent
                )
                yield Figure(
                    name=slug("clients", setting),
                    title=with_setting(f"{metric.words.capitalize()} of each client at the end", setting),
                    reading="A box holds the middle half of the clients and its line the median: a short box far to "
                    f"the {'left' if metric.minimised else 'right'} serves all of them well.",
                    parts=(("", box_panel(axis, "method", shown)),),
                )


def _scores(group: Group, metric: str) -> list[float]:
    """Every client's value of a metric, sorted; many are thinned out evenly, which keeps their distribution."""
    ended = [run for run in group.runs if not run.later]  # the others' clients are those of a later round
    clients = [x for run in ended for x in (run.read("clients.json") or {}).get(metric, [])]
    known = np.sort([x for x in clients if x is not None and isfinite(x)])
    values: list[float] = known[thin(len(known), VALUES)].tolist()
    return values
