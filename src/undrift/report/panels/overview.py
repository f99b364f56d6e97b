"""The first section of a report: the settings of runs, and which differences from the baseline are real."""

from collections.abc import Iterator, Sequence
from typing import Any

from undrift.report.draw.description import Axis, Figure, Line, Table, line_panel
from undrift.report.loaded import LoadedRun, Material, shared_settings
from undrift.studies.statistics import LEVEL, summarise

_LOCAL = ("local.lr", "local.epochs", "local.batch_size")
_SETUP = ("data", "task", "partition", "clients", "cohort", "rounds", "model", *_LOCAL)
_OWN = "by method"


def setup(material: Material) -> Table:
    """The usual settings of the runs, and all others in which the settings of the report differ, one row each."""
    several = len(material.settings) > 1
    own = {setting: _values([run for g in material.within(setting) for run in g.runs]) for setting in material.settings}
    known = list(dict.fromkeys(key for values in own.values() for key in values))
    varying = [key for key in known if key not in _SETUP and len({values.get(key) for values in own.values()}) > 1]
    keys = [key for key in (*_SETUP, *varying) if any(values.get(key) for values in own.values())]
    rows = [[*[setting] * several, *(values.get(key) or "-" for key in keys)] for setting, values in own.items()]
    reading = "The settings of the runs"
    reading += f"; {_OWN} means that methods have values of their own" if any(_OWN in row for row in rows) else ""
    headings = [*["setting"] * several, *(key.removeprefix("local.").replace("_", " ") for key in keys)]
    return Table(headings, rows, f"{reading}. The section Make it again has all of them.", keys=int(several))


def _values(runs: Sequence[LoadedRun]) -> dict[str, str]:
    """The settings of some runs as texts, where they have one."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for key, value in {**shared_settings(run.config), "rounds": run.config.rounds}.items():
            found.setdefault(key, set()).add(_text(value))
    return {key: texts.pop() if len(texts) == 1 else _OWN for key, texts in found.items()}


def _text(value: Any) -> str:
    return "" if value is None or value == {} else str(value)


def differences(material: Material) -> Iterator[Figure]:
    """The mean difference of each method from the baseline with its interval, where there are several seeds."""
    lines, end = [], "late" if material.claims else "last"
    for number, setting in enumerate(material.settings):
        groups = material.within(setting)
        rows = summarise({group.label: group.results for group in groups}, material.baseline, material.claims)
        known = [row for row in rows if row.get(f"{end}_low") is not None]
        if known:
            low, high = ([row[f"{end}_{side}"] for row in known] for side in ("low", "high"))
            x, y = [row["label"] for row in known], [row[f"{end}_difference"] for row in known]
            lines.append(Line(setting or "mean and interval", number, x, y, low, high, dots=True, bars=True))
    judges = {group.judged_by.metric for group in material.groups}
    if not lines or len(judges) > 1:
        return
    metric = judges.pop()
    labels = tuple(label for label in material.labels if any(label in line.x for line in lines))
    title = f"difference in {metric.words}" + " (points)" * metric.percent
    axes = Axis("method", labels), Axis(title, percent=metric.percent)
    parts = tuple((line.label if len(lines) > 1 else "", line_panel(*axes, [line], True)) for line in lines)
    better = "below" if metric.minimised else "above"
    bars = f"their intervals, which together have {LEVEL:.0%}" if material.claims else f"their {LEVEL:.0%} intervals"
    reading = f"Points are mean differences within a seed, bars {bars}; a method whose bar is "
    reading += f"{better} 0 is better than {material.baseline} beyond the chance of seeds."
    yield Figure(
        "differences",
        f"Difference from {material.baseline} {'in late accuracy' if material.claims else 'at the end'}",
        reading,
        parts,
    )
