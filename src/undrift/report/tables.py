"""Tables: the summary of `undrift compare`, what it takes to reach a target, and how sharp the minima are."""

from collections.abc import Sequence
from math import floor
from statistics import fmean

from undrift.experiment.judge import GLOBAL, rounds_to
from undrift.experiment.statistics import LEVEL, cells, judging_note, summarise
from undrift.report.collect import Group, LoadedRun, Material
from undrift.report.drawing import Table


def summary(material: Material) -> Table:
    """The table of a comparison, over all settings."""
    rows = []
    for setting in material.settings:
        runs = {group.label: group.results for group in material.within(setting)}
        rows += [{"setting": setting, **row} for row in summarise(runs, material.baseline)]
    headings, texts = cells(rows)
    reading = (
        f"± is the standard deviation over seeds; vs {material.baseline} is the mean difference in points within a "
        f"seed and its {LEVEL:.0%} interval, and one that holds 0 does not tell the two apart."
    )
    return Table(headings, texts, f"{reading} {judging_note(rows)}".strip(), keys=headings.index("seeds"))


def reach(material: Material) -> Table:
    """Rounds, traffic and time until the target, and what a round and a whole run cost."""
    several, rows = len(material.settings) > 1, []
    for setting in material.settings:
        groups = material.within(setting)
        wanted = target(groups)
        theirs = next((group for group in groups if group.label == material.baseline), None)
        before = _rounds(theirs, wanted) if theirs else None
        rows += [[*[setting] * several, group.label, *_reached(group, wanted, before)] for group in groups]
    headings = ["method", "target %", "rounds", f"vs {material.baseline}", "reached", "MB to target", "s to target"]
    headings += ["MB up a round", "MB down a round", "MB in all"]
    reading = (
        "Means over the seeds that reached the target, which is the runs' own or, if they have none, the highest whole "
        "percent that every run reaches; traffic is that of all clients together, up and down."
    )
    if any(group.judged_by != GLOBAL for group in material.groups):
        reading += " Personal methods reach it by their personal accuracy, and only in rounds in which it was measured."
    return Table([*["setting"] * several, *headings], rows, reading, keys=1 + several)


def target(groups: Sequence[Group]) -> float | None:
    """The accuracy to reach: the runs' own target or, without one, the highest whole percent that all of them reach."""
    own = [run.config.target for group in groups for run in group.runs if run.config.target is not None]
    if own:
        return max(own)
    best = [run.result.get("best_accuracy", 0.0) for group in groups for run in group.runs]
    return floor(100 * min(best)) / 100 or None


def _rounds(group: Group, wanted: float | None) -> float | None:
    """The mean number of rounds to a target."""
    counts = [count for _, count in _there(group, wanted)]
    return fmean(counts) if counts else None


def _there(group: Group, wanted: float | None) -> list[tuple[LoadedRun, int]]:
    """The runs that reached a target by the accuracy that judges them, and after how many rounds."""
    counts = [(run, rounds_to(run.rows, wanted, run.judged_by)) for run in group.runs]
    return [(run, count) for run, count in counts if count is not None]


def _reached(group: Group, wanted: float | None, before: float | None) -> list[str]:
    """The cells of a method."""
    there = _there(group, wanted)
    mean = _rounds(group, wanted)
    spent = [_number(fmean(_sum(run, count, *keys) for run, count in there)) if there else "-" for keys in _SPENT]
    rounds = fmean(len(run.rows) for run in group.runs)
    up, down = (fmean(_sum(run, None, key) for run in group.runs) for key in ("bytes_up", "bytes_down"))
    return [
        "-" if wanted is None else f"{100 * wanted:g}",
        "-" if mean is None else f"{mean:.1f}",
        "-" if mean is None or before is None else f"{mean / before:.2f}x",
        f"{len(there)}/{len(group.runs)}",
        *spent,
        *(_number(value) for value in (up / rounds, down / rounds, up + down)),
    ]


_SPENT = (("bytes_up", "bytes_down"), ("seconds",))


def _sum(run: LoadedRun, count: int | None, *keys: str) -> float:
    """The total over the first rounds, in megabytes or seconds."""
    total = sum(row[key] for row in run.rows[:count] for key in keys)
    return float(total) / 1e6 if keys[0].startswith("bytes") else float(total)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def curvature(material: Material) -> Table | None:
    """How sharp the final models are; None if curvature was not measured."""
    several, rows = len(material.settings) > 1, []
    for group in material.groups:
        for measurement in group.lens("curvature")[:1]:
            error = measurement.get("trace_error")
            trace = _cell(measurement, "trace") + (f" ± {error:.2g}" if isinstance(error, float | int) else "")
            top = ", ".join(f"{value:.3g}" for value in measurement.get("top") or []) or "-"
            numbers = [top, trace, *(_cell(measurement, key) for key in ("sharpness", "gradient_norm", "examples"))]
            rows.append([*[group.setting] * several, group.label, *numbers])
    headings = ["method", "largest eigenvalues", "trace", "sharpness", "gradient norm", "examples"]
    reading = "Lower is flatter: eigenvalues and trace of the Hessian, and how much one step uphill raises the loss."
    return Table([*["setting"] * several, *headings], rows, reading, keys=1 + several) if rows else None


def _cell(measurement: dict[str, float], key: str) -> str:
    value = measurement.get(key)
    return f"{value:.4g}" if isinstance(value, float | int) else "-"
