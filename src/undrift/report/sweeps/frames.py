"""Runs as the lines of a sweep: what makes a line, and what makes a frame."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from undrift.report.loaded import LoadedRun, ReportError, shared_settings
from undrift.report.sweeps.values import values, without_value

METHOD = "method"


@dataclass
class Curve:
    """The runs of one line in one frame.

    Args:
        runs: value -> seed -> run; the runs of a level, which have no value, are under None.
    """

    runs: dict[Any, dict[int, LoadedRun]] = field(default_factory=dict)

    @property
    def level(self) -> bool:
        """Whether the line does not depend on the value."""
        return None in self.runs


Frames = dict[str, dict[str, Curve]]


def frames_over(runs: Sequence[LoadedRun], over: str) -> Frames:
    """Setting -> label -> runs: a line is a method with its other arguments, a frame the other settings.

    If some frames have several values, those with one are left out.

    Args:
        runs: the runs.
        over: the name of the value: see `values`; "method" is the first part of a composition, or the label.
    """
    found = _methods(runs) if over == METHOD else [(one.value, one.method) for one in values(runs, over)]
    names = _labels(runs, found, over)
    shown = {id(run): name for run, name in zip(runs, names, strict=True)}
    keys = _frame_keys(runs, names, over)
    frames: Frames = {}
    for run, (x, _) in zip(runs, found, strict=True):
        own = _settings(run, runs, over)
        frame = frames.setdefault(", ".join(f"{key} {own[key]}" for key in keys), {})
        seeds = frame.setdefault(shown[id(run)], Curve()).runs.setdefault(x, {})
        if run.config.seed in seeds:
            twin = seeds[run.config.seed].folder
            raise ReportError(f"{twin} and {run.folder} are both {shown[id(run)]} with {over} {x}: leave one out")
        seeds[run.config.seed] = run
    counts = {name: len({x for curve in frame.values() for x in curve.runs} - {None}) for name, frame in frames.items()}
    least = min(2, max(counts.values()))
    return {name: frame for name, frame in frames.items() if counts[name] >= least}


def _methods(runs: Sequence[LoadedRun]) -> list[tuple[str, str]]:
    """A composition whose first part is a run of its own is that run's label and what is added; others are labels."""
    plain = {run.config.method: run.label for run in runs if "+" not in run.config.method}
    found = []
    for run in runs:
        first, plus, rest = (part.strip() for part in run.config.method.partition("+"))
        found.append((plain[first], f"+ {rest}") if plus and first in plain else (run.label, ""))
    return found


def _labels(runs: Sequence[LoadedRun], found: Sequence[tuple[Any, str]], over: str) -> list[str]:
    """The name of each run's line: its label without the swept value, the same for all runs of the line."""
    if over == METHOD:
        composed = any(rest for _, rest in found)
        return [rest or ("alone" if composed else "") for _, rest in found]
    alike: dict[str, list[str]] = {}
    for run, (x, method) in zip(runs, found, strict=True):
        key = f"{run.label}, level" if x is None else method
        alike.setdefault(key, []).append(run.label if x is None else without_value(run.label, over, x))
    names = {key: min(labels, key=len) for key, labels in alike.items()}
    taken: dict[str, int] = {}
    for key, name in names.items():
        taken[name] = taken.get(name, 0) + 1
        names[key] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return [names[f"{run.label}, level" if x is None else method] for run, (x, method) in zip(runs, found, strict=True)]


def _settings(run: LoadedRun, runs: Sequence[LoadedRun], over: str) -> dict[str, Any]:
    """The settings of a run; over `clients`, a cohort that grows with them is given as a share of them."""
    own, config = shared_settings(run.config), run.config
    if over == "clients" and config.cohort and config.clients and _cohort_grows(runs):
        own["cohort"] = f"{config.cohort / config.clients:.3g} of the clients"
    return own


def _cohort_grows(runs: Sequence[LoadedRun]) -> bool:
    """Whether cohorts differ more than their shares of the clients do."""
    pairs = {(run.config.cohort, run.config.clients) for run in runs}
    sized = [(cohort, clients) for cohort, clients in pairs if cohort and clients]
    return len(sized) == len(pairs) and len({c / n for c, n in sized}) < len({c for c, _ in sized})


def _frame_keys(runs: Sequence[LoadedRun], lines: Sequence[str], over: str) -> list[str]:
    """The settings that tell frames apart: those that differ, but not local settings that each method has of its own.

    A comparison of tuned methods has such settings (`own_local`).
    """
    settings = [_settings(run, runs, over) for run in runs]
    keys = []
    for key in settings[0]:
        if key == over or len({str(own[key]) for own in settings}) == 1:
            continue
        pairs = {(line, str(own[key])) for line, own in zip(lines, settings, strict=True)}
        if not key.startswith("local.") or len(pairs) > len({line for line, _ in pairs}):
            keys.append(key)
    return keys
