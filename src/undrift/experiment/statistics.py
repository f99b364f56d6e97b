"""Statistics over seeds: means, deviations and paired intervals, as rows of a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from undrift.experiment.costs import cost_cells, cost_note, costs, reached_text
from undrift.experiment.judge import GLOBAL, PERSONAL
from undrift.util.tables import markdown

Result = Mapping[str, Any]
Row = dict[str, Any]

Columns = Literal["accuracy", "cost"]

LEVEL = 0.95
"""The level of every interval."""

MIXED = "mixed"
"""In place of a column if the runs of a row are not judged by the same one."""

_SPREADS = {
    "client": "client_accuracy",
    "worst_tenth": "client_worst_tenth",
    "personal": "personal_accuracy",
    "personal_worst_tenth": "personal_worst_tenth",
}
_JUDGES = {GLOBAL: "global", PERSONAL: "personal"}
_MEANS = ("traffic", "seconds_per_round", "gradients")


@dataclass(frozen=True)
class Difference:
    """A mean difference of pairs and the ends of its interval; None with a single pair, which has no interval."""

    mean: float
    low: float | None
    high: float | None
    pairs: int


class TableView(NamedTuple):
    """A table to show: headings, the texts of each line, how many columns name a line, and a note."""

    headings: list[str]
    texts: list[list[str]]
    keys: int
    note: str


def paired(ours: Mapping[int, float], theirs: Mapping[int, float], level: float = LEVEL) -> Difference | None:
    """The mean of ours - theirs over the seeds that both have, with Student's interval; None if they share no seed.

    mean d +- t sd(d) / sqrt(n), t the quantile (1 + level) / 2 with n - 1 degrees of freedom

    Args:
        ours: seed -> value.
        theirs: seed -> value of the other method.
        level: the share of such intervals that contain the true difference.

    Example:
        >>> gap = paired({0: 0.5, 1: 0.75, 2: 1.0}, {0: 0.25, 1: 0.25, 2: 0.25})
        >>> gap.mean, round(gap.low, 4), round(gap.high, 4)
        (0.5, -0.121, 1.121)
    """
    if not 0 < level < 1:
        raise ValueError(f"paired: level must be a fraction in (0, 1), for example 0.95, got {level}")
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not differences:
        return None
    mean, pairs = fmean(differences), len(differences)
    if pairs == 1:
        return Difference(mean, None, None, 1)
    half = quantile(pairs - 1, level) * stdev(differences) / sqrt(pairs)
    return Difference(mean, mean - half, mean + half, pairs)


def quantile(freedom: int, level: float = LEVEL) -> float:
    """Student's quantile (1 + level) / 2: half the width of an interval in standard errors.

    Args:
        freedom: degrees of freedom.
        level: of the interval.

    Example:
        >>> round(quantile(2), 3)
        4.303
    """
    from scipy.special import stdtrit  # imported here so that other commands start without SciPy

    return float(stdtrit(freedom, (1 + level) / 2))


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard deviation (of a sample: n - 1); a single value has no deviation.

    Example:
        >>> spread([1.0, 2.0, 3.0]), spread([1.0])
        ((2.0, 1.0), (1.0, None))
    """
    return fmean(values), stdev(values) if len(values) > 1 else None


def summarise(runs: Mapping[str, Mapping[int, Result]], baseline: str) -> list[Row]:
    """One row per method, in the given order; methods without a run are skipped.

    Args:
        runs: label -> seed -> result of the run.
        baseline: the label of the row that the others are compared with.
    """
    theirs = runs.get(baseline, {})
    rows = [_row(label, own, baseline, {} if label == baseline else theirs) for label, own in runs.items() if own]
    targets = dict.fromkeys(
        target for own in runs.values() for run in own.values() for target in run.get("targets", ())
    )
    for row in rows:
        row["costs"] = costs(runs[row["label"]], theirs, targets)
        if targets:
            first = row["costs"][0]
            row |= {"rounds_to_target": first["rounds"], "reached": first["reached"]}
    return rows


def _row(label: str, own: Mapping[int, Result], baseline: str, theirs: Mapping[int, Result]) -> Row:
    """The row of a method, without numbers that no run has."""
    columns = {_judge(run) for run in own.values()}
    row: Row = {"label": label, "baseline": baseline, "seeds": sorted(own)}
    row["judged_by"] = columns.pop() if len(columns) == 1 else MIXED
    spreads = {"best": _judged(own, "best"), "last": _judged(own, "last")}
    spreads |= {name: _values(own, key) for name, key in _SPREADS.items()}
    spreads |= {"global": _values(own, GLOBAL)} if row["judged_by"] != GLOBAL else {}
    for name, values in spreads.items():
        if values:
            row[name], row[f"{name}_std"] = spread(list(values.values()))
    row |= {name: fmean(values.values()) for name in _MEANS if (values := _values(own, name))}
    for name in ("last", "best"):
        gap = paired(_judged(own, name), _judged(theirs, name))
        if gap:
            row |= {f"{name}_difference": gap.mean, f"{name}_low": gap.low, f"{name}_high": gap.high}
            row["pairs"] = gap.pairs
    return row


def _judge(run: Result) -> str:
    """The column by which a run is judged."""
    return str(run.get("judged_by", GLOBAL))


def _judged(runs: Mapping[int, Result], name: str) -> dict[int, float]:
    """Seed -> the best or the last of the accuracy by which its run is judged."""
    keys = {seed: "best_accuracy" if name == "best" else _judge(run) for seed, run in runs.items()}
    return {seed: runs[seed][key] for seed, key in sorted(keys.items()) if _has(runs[seed], key)}


def _values(runs: Mapping[int, Result], key: str) -> dict[int, float]:
    """Seed -> a number of its run, for runs that have it."""
    return {seed: runs[seed][key] for seed in sorted(runs) if _has(runs[seed], key)}


def _has(run: Result, key: str) -> bool:
    """Whether a run has a number; one that diverged may have nan."""
    return run.get(key) is not None and not isnan(run[key])


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of a table: accuracies in percent, without columns in which no row has a value."""
    table = [(heading, [text(row) for row in rows]) for heading, text in _columns(rows)]
    shown = [(heading, texts) for heading, texts in table if any(texts)]
    return [heading for heading, _ in shown], [[texts[n] or "-" for _, texts in shown] for n in range(len(rows))]


def views(rows: Sequence[Row], columns: Sequence[Columns] = ("accuracy",)) -> Iterator[TableView]:
    """The tables that show rows, in the given order.

    Args:
        rows: of a comparison.
        columns: "accuracy" for the table of accuracies, "cost" for what reaching the targets costs.
    """
    for name in columns if rows else ():
        headings, texts = cells(rows) if name == "accuracy" else cost_cells(rows)
        keys = headings.index("seeds" if name == "accuracy" else "rounds")
        notes = [cost_note(rows[0]["baseline"])] if name == "cost" else [judging_note(rows)]
        notes += [judging_note(rows)] if "accuracy" not in columns else []
        yield TableView(headings, texts, keys, " ".join(filter(None, notes)))


def to_markdown(rows: Sequence[Row], columns: Sequence[Columns] = ("accuracy",)) -> str:
    """The tables in Markdown, each with its note below; arguments as for `views`."""
    return "\n".join(_markdown(view) for view in views(rows, columns))


def _markdown(view: TableView) -> str:
    left = view.keys if "target" in view.headings else 1
    return markdown(view.headings, view.texts, left=left) + "\n" + (f"\n{view.note}\n" if view.note else "")


def judging_note(rows: Sequence[Row]) -> str:
    """What the accuracies of a table mean if some of its methods are personal; empty if none is."""
    columns = {row.get("judged_by", GLOBAL) for row in rows}
    if columns <= {GLOBAL}:
        return ""
    note = (
        "Judged by personal: best, last, differences and rounds to target are of the mean accuracy of clients' own "
        "models on their own tests."
    )
    if columns != {PERSONAL}:
        note += (
            " Judged by global: of the accuracy of the global model on the test set. A difference between the two "
            "kinds is one of these accuracies, on different tests; clients % is the global model on clients' own tests."
        )
    if MIXED in columns:
        note += (
            " Mixed: some runs of the row were made by a version that judged them by the global model; run them again."
        )
    return note


def _columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """Headings, and functions that give a row's text in each column; empty if it has no value."""
    baseline = rows[0]["baseline"] if rows else ""
    several = any(row.get("judged_by", GLOBAL) != GLOBAL for row in rows)
    return [
        ("setting", lambda row: str(row.get("setting", ""))),
        ("method", lambda row: str(row["label"])),
        ("judged by", lambda row: _JUDGES.get(row.get("judged_by", GLOBAL), MIXED) if several else ""),
        ("seeds", lambda row: str(len(row["seeds"]))),
        ("best %", lambda row: _accuracy(row, "best")),
        ("last %", lambda row: _accuracy(row, "last")),
        (f"last vs {baseline}", lambda row: _difference(row, "last")),
        (f"best vs {baseline}", lambda row: _difference(row, "best")),
        *_targets(rows, baseline),
        ("traffic", lambda row: _number(row, "traffic", "{:.2f}x")),
        ("s/round", lambda row: _number(row, "seconds_per_round", "{:.3g}")),
        ("gradients", lambda row: _number(row, "gradients", "{:.0f}")),
        ("clients %", lambda row: _accuracy(row, "client")),
        ("worst tenth %", lambda row: _accuracy(row, "worst_tenth")),
        ("global %", lambda row: _accuracy(row, "global")),
        ("personal %", lambda row: "" if row.get("judged_by") == PERSONAL else _accuracy(row, "personal")),
        ("personal worst tenth %", lambda row: _accuracy(row, "personal_worst_tenth")),
    ]


def _number(row: Row, name: str, text: str) -> str:
    return "" if row.get(name) is None else text.format(row[name])


def _accuracy(row: Row, name: str) -> str:
    """Mean and deviation in percent."""
    if row.get(name) is None:
        return ""
    deviation = row[f"{name}_std"]
    return f"{row[name]:.2%}".rstrip("%") + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def _difference(row: Row, name: str) -> str:
    """A difference in percentage points with its interval, if it has one."""
    if f"{name}_difference" not in row:
        return ""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    interval = "-" if low is None else f"[{100 * low:+.2f}, {100 * high:+.2f}]"
    return f"{100 * row[f'{name}_difference']:+.2f} {interval}"


def _targets(rows: Sequence[Row], baseline: str) -> list[tuple[str, Callable[[Row], str]]]:
    """One column for each target, or a single one if every row has one number to reach."""
    found = [[cost for cost in row.get("costs", ()) if cost["target"] is not None] for row in rows]
    if all(len(own) <= 1 and not isinstance(cost["target"], str) for own in found for cost in own):
        return [("rounds to target", lambda row: next(map(reached_text, row.get("costs", ())[:-1]), ""))]
    keys = dict.fromkeys(cost["target"] for own in found for cost in own)
    return [(f"rounds to {_heading(key, baseline)}", partial(_rounds, key=key)) for key in keys]


def _heading(key: float | str, baseline: str) -> str:
    """A target in a heading: "70 %" or "0.95 * fedavg's best"."""
    return key.replace("baseline", f"{baseline}'s best") if isinstance(key, str) else f"{100 * key:g} %"


def _rounds(row: Row, key: float | str) -> str:
    return next((reached_text(cost) for cost in row.get("costs", ()) if cost["target"] == key), "")
