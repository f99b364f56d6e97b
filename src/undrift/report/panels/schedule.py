"""Figures of runs in virtual time: who takes part how often, how old uploads are, and when everyone trained."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from undrift.core.tasks.durations import SECOND
from undrift.report.draw.assemble import dotted_panel, over_seeds
from undrift.report.draw.description import Axis, Figure, Line, Panel, line_panel, point_panel, slug, with_setting
from undrift.report.loaded import Group, LoadedRun, Material
from undrift.report.panels.instruments import FREQUENCY, band_line
from undrift.report.panels.partition import thin
from undrift.report.panels.training import series

SHOWN = 30  # clients in the time line
_TASKS = 20  # tasks of each of them, about
_POINTS = 400  # clients in the figure of participation
_RESULTS = (("accepted", 2), ("rejected or too old", 1), ("cancelled", 6), ("dropped", 3))  # with the style of each
_TIME = Axis("virtual time (s)")
_STALE = (
    (
        "agreement",
        "Stale displacements against fresh ones, by frequency",
        "Each client in flight trains from its own model and from the newest: 1 means that age changes nothing at a "
        "frequency, 0 that nothing of the fresh direction is left.",
        "cosine of stale and fresh",
    ),
    (
        "ratio",
        "Energy of stale displacements over fresh ones, by frequency",
        "Above 1 a stale displacement is longer than the fresh one of the same client at this frequency.",
        "energy, stale / fresh",
    ),
)
"""Figures of stale displacements: key, title, reading and axis."""


def timing(material: Material) -> Iterator[Figure]:
    """What the traces of arrivals show; the first seed of every method where clients are drawn one by one."""
    for setting in material.settings:
        groups = [group for group in material.within(setting) if any(run.arrivals for run in group.runs)]
        if not groups:
            continue
        ages = [line for group in groups if (line := _ages(group)) is not None]
        flying = [line for group in groups if (line := series(group, "in_flight", "virtual time")) is not None]
        shown = [(group, next(run for run in group.runs if run.arrivals)) for group in groups]
        found = (
            (
                "participation",
                "Participation of each client against its speed",
                "A point is a client: a level cloud has no bias, one that falls to the right trains fast clients more "
                "often than slow ones.",
                [(group.label, _participation(group, run)) for group, run in shown],
            ),
            (
                "ages",
                "Age of uploads",
                "An upload's age is the number of server steps since its client began: further right is staler.",
                [
                    (
                        "",
                        line_panel(
                            Axis("age (steps of the server)"), Axis("accepted uploads (%)", percent=True), ages, True
                        ),
                    )
                ],
            ),
            (
                "clients in flight",
                "Clients in flight",
                "How many clients train at the same time, after each step of the server.",
                [("", line_panel(_TIME, Axis("clients"), flying))],
            ),
            (
                "time line",
                f"Time line of up to {SHOWN} clients, the fastest at the top",
                "A bar is one task, from download to arrival; of clients with many tasks the first ones are shown.",
                [(group.label, _time_line(run)) for group, run in shown],
            ),
            *_stale(groups),
        )
        for tab, title, reading, parts in found:
            named = tuple((label if len(parts) > 1 else "", panel) for label, panel in parts)
            yield Figure(slug(tab, setting), with_setting(title, setting), reading, named, tab)


def _stale(groups: Sequence[Group]) -> Iterator[tuple[str, str, str, list[tuple[str, Panel]]]]:
    """Stale displacements against fresh ones of the same clients by band, of runs that the lens has measured."""
    for key, title, reading, axis in _STALE:
        panel = dotted_panel(FREQUENCY, Axis(axis), [band_line(group, False, "staleness", key) for group in groups])
        if panel is not None:
            yield f"stale {key}", title, reading, [("", panel)]


def _tasks(run: LoadedRun) -> list[dict[str, Any]]:
    """The tasks of a run that arrived or were given up."""
    return [task for row in run.arrivals for task in row["arrivals"]]


def _ages(group: Group) -> Line | None:
    """The share of accepted uploads of every age."""
    seeds = []
    for run in group.runs:
        counts = Counter(task["age"] for task in _tasks(run) if task["result"] == "accepted")
        whole = sum(counts.values())
        seeds.append({age: (float(age), counts[age] / whole) for age in range(max(counts, default=-1) + 1)})
    most = max(map(len, seeds), default=0)
    padded = [seed | {age: (float(age), 0.0) for age in range(len(seed), most)} for seed in seeds if seed]
    return over_seeds(group.label, group.style, padded)


def _lengths(run: LoadedRun) -> dict[int, float]:
    """The mean seconds of a task by client, the fastest client first."""
    seconds = defaultdict[int, list[float]](list)
    for task in _tasks(run):
        if task["result"] != "dropped":
            seconds[task["client"]].append((task["end"] - task["begun"]) / SECOND)
    means = {client: sum(own) / len(own) for client, own in seconds.items()}
    return dict(sorted(means.items(), key=lambda pair: (pair[1], pair[0])))


def _participation(group: Group, run: LoadedRun) -> Panel:
    """How many uploads of every client were accepted, over the mean length of its tasks."""
    lengths, counts = _lengths(run), Counter(task["client"] for task in _tasks(run) if task["result"] == "accepted")
    clients = [list(lengths)[place] for place in thin(len(lengths), _POINTS)]
    places = [(lengths[client], float(counts[client])) for client in clients]
    names = [f"client {client}: {counts[client]} uploads, {lengths[client]:.3g} s each" for client in clients]
    axes = Axis("mean length of the client's tasks (s)"), Axis("accepted uploads")
    return point_panel(axes, places, names, [group.style] * len(clients))


def _time_line(run: LoadedRun) -> Panel:
    """The tasks of some clients as bars in time."""
    lengths = list(_lengths(run))
    clients = [lengths[place] for place in thin(len(lengths), SHOWN)]
    tasks = sorted((task for task in _tasks(run) if task["client"] in set(clients)), key=lambda task: task["begun"])
    bars: dict[str, tuple[list[float | None], list[str]]] = {result: ([], []) for result, _ in _RESULTS}
    for task in tasks[: _TASKS * len(clients)]:
        known = task["result"] in bars
        x, y = bars[task["result"] if known else _RESULTS[1][0]]
        x += [task["begun"] / SECOND, task["end"] / SECOND, None]
        y += [str(task["client"])] * 3
    marks = [Line(result, style, *bars[result]) for result, style in _RESULTS if bars[result][0]]
    return line_panel(_TIME, Axis("client", tuple(map(str, clients))), marks)
