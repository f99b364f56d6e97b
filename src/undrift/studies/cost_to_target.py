"""What reaching a target and a whole run cost: rounds, gradient evaluations, bytes and seconds, against the baseline.

Means are over the seeds that reached the target. Ratios are those of sums over the seeds in which both did, so that the
ratio one way is the reciprocal of the ratio the other way.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from undrift.runs.folder.judge import GLOBAL, measured_rows, result_column
from undrift.runs.settings.goals import Column
from undrift.runs.settings.targets import Target

Spent = dict[str, float]
Cost = dict[str, Any]

RESOURCES = ("rounds", "gradients", "bytes", "seconds")
"""What is counted; bytes of all clients together, up and down; seconds of training, without evaluation."""


def curve(rows: Sequence[Mapping[str, Any]], judged_by: str = GLOBAL) -> list[Spent]:
    """Every evaluation of a run, with what had been spent until then.

    Args:
        rows: of the rounds, in order; not every round is evaluated.
        judged_by: the column by which the run is judged.
    """
    points: list[Spent] = []
    total, kind = dict.fromkeys(RESOURCES, 0.0), Column(judged_by).kind
    for row in rows:
        new = (1, row["gradients"], row["bytes_up"] + row["bytes_down"], row["seconds"])
        total = {name: total[name] + x for name, x in zip(RESOURCES, new, strict=True)}
        points += [{kind: row[judged_by], **total} for row in measured_rows([row], judged_by)]
    return points


def costs(own: Mapping[int, Any], theirs: Mapping[int, Any], targets: Iterable[Target]) -> list[Cost]:
    """What a method needs for each target and, last, for the whole run (`target` None).

    A relative target is that of the seed: the best that the baseline reaches with the same data.

    Args:
        own: seed -> result of the method's run: `curve`, `spent` (the whole run's), `judged_by` and its best.
        theirs: the same of the baseline.
        targets: what to reach.

    Returns:
        For each: `target`; `accuracy` (of another metric `value`), its mean over the seeds; `seeds`, how many have one,
        and `reached`, how many reached it; the means of rounds, gradients, bytes and seconds; `pairs`, in how many
        seeds the baseline reached it too, `ratio`, the cost in units of the baseline's for the same target, and
        `speedup`, its reciprocal; `share`, the cost in units of the baseline's whole run.
    """
    return [_cost(own, theirs, target) for target in (*targets, None)]


def _cost(own: Mapping[int, Any], theirs: Mapping[int, Any], target: Target | None) -> Cost:
    bests = {seed: best_of(theirs.get(seed, {})) for seed in own}
    goals = {seed: target.accuracy(best) for seed, best in bests.items()} if target else {}
    known = [goal for goal in goals.values() if goal is not None]
    ours, before = (_spent_until(runs, goals) if target else _whole(runs) for runs in (own, theirs))
    return {
        "target": target.key if target else None,
        _kind(own): fmean(known) if known else None,
        "seeds": len(known) if target else len(own),
        "reached": len(ours),
        **{name: fmean(spent[name] for spent in ours.values()) if ours else None for name in RESOURCES},
        "pairs": len(ours.keys() & before.keys()),
        "ratio": _ratios(ours, before),
        "speedup": _ratios(before, ours),
        "share": _ratios(ours, _whole(theirs)),
    }


def _spent_until(runs: Mapping[int, Any], goals: Mapping[int, float | None]) -> dict[int, Spent]:
    """Seed -> what its run had spent when it first reached the goal of that seed; without runs that never did."""
    known = {seed: goal for seed in runs if (goal := goals.get(seed)) is not None}
    there = {
        seed: [x for x in runs[seed].get("curve", ()) if judge.reaches(x[judge.kind], goal)]
        for seed, goal in known.items()
        for judge in [result_column(runs[seed])]
    }
    return {seed: points[0] for seed, points in there.items() if points}


def best_of(result: Mapping[str, Any]) -> float | None:
    """The best value of the column by which a run is judged; None if it was never measured."""
    return result.get(result_column(result).best_key)


def _kind(runs: Mapping[int, Any]) -> str:
    """What the numbers to reach are: an accuracy, or the value of another metric."""
    return "accuracy" if all(result_column(run).percent for run in runs.values()) else "value"


def _whole(runs: Mapping[int, Any]) -> dict[int, Spent]:
    """Seed -> what its whole run spent."""
    return {seed: run["spent"] for seed, run in runs.items() if "spent" in run}


def _ratios(above: Mapping[int, Spent], below: Mapping[int, Spent]) -> dict[str, float | None]:
    """The ratios of sums over the seeds that both have; None where there is nothing to divide by."""
    seeds = sorted(above.keys() & below.keys())
    sums = {name: (sum(above[n][name] for n in seeds), sum(below[n][name] for n in seeds)) for name in RESOURCES}
    return {name: top / bottom if bottom else None for name, (top, bottom) in sums.items()}


def cost_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table of costs: one line per setting, target and method; the whole run comes last.

    Args:
        rows: of a comparison's table.
    """
    several = any(row.get("setting") for row in rows)
    lines = []
    for setting in dict.fromkeys(row.get("setting", "") for row in rows):
        within = [row for row in rows if row.get("setting", "") == setting]
        keys = dict.fromkeys(cost["target"] for row in within for cost in row["costs"] if cost["target"] is not None)
        for key in (*keys, None):
            found = [(row["label"], cost) for row in within for cost in row["costs"] if cost["target"] == key]
            lines += [[*[str(setting)] * several, _name(cost), str(label), *_texts(cost)] for label, cost in found]
    headings = ["target", "method", "rounds", "speedup", "gradients", "traffic", "time", "traffic/run", "MB", "s"]
    return [*["setting"] * several, *headings], lines


def cost_note(baseline: str) -> str:
    """How to read the table of costs."""
    return (
        "rounds: mean over the seeds that reached the target, and how many did; MB, s: up and down of all clients, and "
        f"seconds of training, until then. speedup: the rounds of {baseline} to the same target / own rounds; "
        f"gradients, traffic, time: cost to the target in units of {baseline}'s, in seeds in which both reached it; "
        f"traffic/run: in units of the whole run of {baseline}."
    )


def reached_text(cost: Mapping[str, Any]) -> str:
    """The mean rounds over the seeds that reached a target, and how many did; empty if there was none to reach."""
    if not cost["seeds"]:
        return ""
    rounds = "-" if cost["rounds"] is None else f"{cost['rounds']:.1f}"
    return f"{rounds} ({cost['reached']}/{cost['seeds']})"


def _name(cost: Mapping[str, Any]) -> str:
    """A target in a table: its accuracy and, if it is relative, to what."""
    if cost["target"] is None:
        return "whole run"
    percent = "accuracy" in cost
    if not isinstance(cost["target"], str):
        return f"{100 * cost['target']:g} %" if percent else f"{cost['target']:g}"
    mean = cost["accuracy" if percent else "value"]
    if mean is None:
        return cost["target"]
    return f"{100 * mean:.2f} % ({cost['target']})" if percent else f"{mean:.4g} ({cost['target']})"


def _texts(cost: Mapping[str, Any]) -> list[str]:
    ratios = [cost["speedup"]["rounds"], *(cost["ratio"][name] for name in RESOURCES[1:]), cost["share"]["bytes"]]
    amounts = [None if cost["bytes"] is None else cost["bytes"] / 1e6, cost["seconds"]]
    return [
        reached_text(cost) or "-",
        *("-" if ratio is None else f"{ratio:.2f}x" for ratio in ratios),
        *("-" if x is None else amount_text(x) for x in amounts),
    ]


def amount_text(value: float) -> str:
    """Megabytes or seconds in a table, with three digits or more.

    Example:
        >>> amount_text(1234.5), amount_text(0.12345)
        ('1234', '0.123')
    """
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
