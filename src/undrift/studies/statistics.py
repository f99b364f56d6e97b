"""Statistics over seeds: means, deviations and paired intervals, as rows of a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, isnan, nan, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

from undrift.runs.folder.judge import GLOBAL, result_column
from undrift.runs.settings.goals import Column
from undrift.studies.cost_to_target import cost_cells, cost_note, costs, reached_text
from undrift.util.display.tables import markdown

Row = dict[str, Any]

MIXED = "mixed"
"""In place of a column if the runs of a row are not judged by the same one."""


def constant_note(rows: Sequence[Row]) -> str:
    """What a constant answer reaches on the test set, in the metrics that judge the rows; empty if not known."""
    found = dict.fromkeys(
        f"{constant_text(row['constant'], column)} on the test set"
        for row in rows
        if (column := result_column(row).metric) in (row.get("constant") or {})
    )
    return f"A constant answer: {'; '.join(found)}." if found else ""


def constant_text(constant: Mapping[str, Any], column: Column) -> str:
    """What a constant answer reaches, in a few words.

    Args:
        constant: of a summary.
        column: the metric.

    Example:
        >>> constant_text({"answer": "no", "accuracy": 0.936}, Column("accuracy"))
        "always 'no' has accuracy 93.60%"
    """
    answer = constant["answer"]
    said = answer if column.metric.minimised or answer.startswith("the ") else repr(answer)
    return f"always {said} has {column.words} {column.text(constant[column])}"


def judging_note(rows: Sequence[Row]) -> str:
    """What the numbers of a table mean if some of its methods are personal or not judged by accuracy; else empty."""
    columns = {result_column(row) for row in rows}
    others = sorted({column.metric for column in columns if not column.percent and column != MIXED})
    note = " ".join(
        f"{name.words.capitalize()}: {'lower' if name.minimised else 'higher'} is better, of the global model on the "
        "test data unless it is marked personal."
        for name in others
    )
    if not any(column.personal or column == MIXED for column in columns):
        return note
    kind = "accuracy" if not others else "value"
    note += (" " if note else "") + (
        f"Judged by personal: best, last, differences and rounds to target are of the mean {kind} of clients' own "
        "models on their own tests."
    )
    if not all(column.personal for column in columns):
        note += (
            f" Judged by global: of the {kind} of the global model on the test set. A difference between the two "
            f"kinds is one of these {'accuracies' if not others else 'values'}, on different tests; "
            f"clients {'% ' if not others else ''}is the global model on clients' own tests."
        )
    if MIXED in columns:
        note += (
            " Mixed: some runs of the row were made by a version that judged them by the global model; run them again."
        )
    return note


def idle_note(rows: Sequence[Row]) -> str:
    """Which rows have runs with rounds in which no upload was accepted, as after a divergence; else empty."""
    notes = [
        f"{row['label']}: no upload was accepted in {idle} of {rounds} rounds (seed {seed})."
        for row in rows
        for seed, (idle, rounds) in row.get("idle", {}).items()
    ]
    return " ".join(notes)


def protocol_note(row: Row) -> str:
    """How to read a table of the strict protocol, from one of its rows; else empty."""
    if "claims" not in row:
        return ""
    return (
        f"Strict protocol: late is the mean of the last {LATE} evaluations; the intervals are paired by seed and "
        f"contain all {row['claims']} true differences of the table together with {LEVEL:.0%} (Bonferroni, each "
        f"{corrected_level(row['claims']):.2%}). Rates were tuned on other seeds; ms/gradient is that of a run's "
        "quickest round."
    )


def lost_note(rows: Sequence[Row]) -> str:
    """Which rows have runs that diverged, whose last evaluation gave no number; else empty."""
    notes = [
        f"{row['label']}: diverged, the evaluation after round {round} gave no number (seed {seed})."
        for row in rows
        for seed, round in row.get("lost", {}).items()
    ]
    return " ".join(notes)


def table_note(rows: Sequence[Row], before: str = "") -> str:
    """How to read the table of some rows.

    Args:
        rows: of a comparison.
        before: what comes first.
    """
    notes = (judging_note(rows), constant_note(rows), lost_note(rows), idle_note(rows), protocol_note(rows[0]))
    return " ".join(filter(None, (before, *notes)))


Result = Mapping[str, Any]

Columns = Literal["accuracy", "cost"]

LEVEL = 0.95
"""The level of every interval; of several claims together under the strict protocol."""

LATE = 3
"""How many of a run's last evaluations its late accuracy is the mean of: that of a single round is noisy."""

_SPREADS = {
    "client": "client_{}",
    "worst_tenth": "client_worst_tenth",
    "personal": "personal_{}",
    "personal_worst_tenth": "personal_worst_tenth",
}
_MEANS = ("traffic", "seconds_per_round", "gradients", "gradient_ms")


@dataclass(frozen=True)
class Difference:
    """A mean difference of pairs and the ends of its interval; None with a single pair or an infinite difference."""

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


def paired_difference(
    ours: Mapping[int, float], theirs: Mapping[int, float], level: float = LEVEL
) -> Difference | None:
    """The mean of ours - theirs over the seeds that both have, with Student's interval; None if they share no seed.

    mean d +- t sd(d) / sqrt(n), t the quantile (1 + level) / 2 with n - 1 degrees of freedom

    Args:
        ours: seed -> value.
        theirs: seed -> value of the other method.
        level: the share of such intervals that contain the true difference.

    Example:
        >>> gap = paired_difference({0: 0.5, 1: 0.75, 2: 1.0}, {0: 0.25, 1: 0.25, 2: 0.25})
        >>> gap.mean, round(gap.low, 4), round(gap.high, 4)
        (0.5, -0.121, 1.121)
    """
    if not 0 < level < 1:
        raise ValueError(f"paired_difference: level must be a fraction in (0, 1), for example 0.95, got {level}")
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not differences:
        return None
    mean, deviation = spread(differences)
    pairs = len(differences)
    if deviation is None:
        return Difference(mean, None, None, pairs)
    half = quantile(pairs - 1, level) * deviation / sqrt(pairs)
    return Difference(mean, mean - half, mean + half, pairs)


def corrected_level(claims: int, level: float = LEVEL) -> float:
    """The level of each of several intervals so that all of them together have the given one (Bonferroni).

    1 - (1 - level) / claims: the probability that any of them misses its value is at most the sum of the probabilities.

    Args:
        claims: how many intervals there are.
        level: of all together.

    Example:
        >>> corrected_level(1), corrected_level(10)
        (0.95, 0.995)
    """
    if claims < 1:
        raise ValueError(f"corrected_level: claims counts intervals, 1 or more, got {claims}")
    return 1 - (1 - level) / claims if claims > 1 else level


def late_mean(values: Sequence[float]) -> float:
    """The mean of the last `LATE` values, of all if there are fewer; nan without any.

    Example:
        >>> late_mean([0.1, 0.2, 0.3, 0.4])
        0.3
    """
    return fmean(values[-LATE:]) if values else nan


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
    """Mean and standard deviation (of a sample: n - 1); a single value and infinite ones have no deviation.

    Example:
        >>> spread([1.0, 2.0, 3.0]), spread([1.0]), spread([1.0, float("inf")])
        ((2.0, 1.0), (1.0, None), (inf, None))
    """
    if not all(map(isfinite, values)):
        return sum(values) / len(values), None
    return fmean(values), stdev(values) if len(values) > 1 else None


def summarise(runs: Mapping[str, Mapping[int, Result]], baseline: str, claims: int = 0) -> list[Row]:
    """One row per method, in the given order; methods without a run are skipped.

    Args:
        runs: label -> seed -> result of the run.
        baseline: the label of the row that the others are compared with.
        claims: under the strict protocol, how many differences its table has: rows then have the late accuracy, the
            only one that is compared, with intervals that hold for all of them together. 0 otherwise.
    """
    theirs = runs.get(baseline, {})
    rows = [
        _row(label, own, baseline, {} if label == baseline else theirs, claims) for label, own in runs.items() if own
    ]
    targets = dict.fromkeys(
        target for own in runs.values() for run in own.values() for target in run.get("targets", ())
    )
    for row in rows:
        row["costs"] = costs(runs[row["label"]], theirs, targets)
        if targets:
            first = row["costs"][0]
            row |= {"rounds_to_target": first["rounds"], "reached": first["reached"]}
    return rows


def _row(label: str, own: Mapping[int, Result], baseline: str, theirs: Mapping[int, Result], claims: int) -> Row:
    """The row of a method, without numbers that no run has."""
    columns = {result_column(run) for run in own.values()}
    row: Row = {"label": label, "baseline": baseline, "seeds": sorted(own)}
    judge = columns.pop() if len(columns) == 1 else Column(MIXED)
    row |= {"judged_by": judge, **judge.direction_entry}
    metric = GLOBAL if judge == MIXED else judge.metric
    row |= {"claims": claims} if claims else {}
    compared, level = (("late",), corrected_level(claims)) if claims else (("last", "best"), LEVEL)
    spreads = {name: _judged_values(own, name) for name in ("best", "last", *compared)}
    spreads |= {name: _values(own, key.format(metric)) for name, key in _SPREADS.items()}
    spreads |= {"global": _values(own, metric)} if judge != metric else {}
    for name, values in spreads.items():
        if values and not any(map(isnan, values.values())):  # a mean without those that diverged is biased
            row[name], row[f"{name}_std"] = spread(list(values.values()))
    row |= {name: fmean(values.values()) for name in _MEANS if (values := _values(own, name))}
    idle = {seed: [run["idle_rounds"], run["rounds"]] for seed, run in sorted(own.items()) if run.get("idle_rounds")}
    row |= {"idle": idle} if idle else {}
    lost = {seed: run["lost"] for seed, run in sorted(own.items()) if run.get("lost")}
    row |= {"lost": lost} if lost else {}
    constant = next((run["constant"] for run in own.values() if run.get("constant")), None)
    row |= {"constant": constant} if constant else {}
    comparable = {
        seed: run
        for seed, run in theirs.items()
        if seed in own and result_column(run).metric == result_column(own[seed]).metric
    }
    for name in compared:
        gap = paired_difference(_judged_values(own, name), _judged_values(comparable, name), level)
        if gap and not isnan(gap.mean):
            row |= {f"{name}_difference": gap.mean, f"{name}_low": gap.low, f"{name}_high": gap.high}
            row["pairs"] = gap.pairs
    return row


def _judged_values(runs: Mapping[int, Result], name: str) -> dict[int, float]:
    """Seed -> best, last or late value of the column that judges its run; nan if its last evaluation has none."""
    judges = {seed: result_column(run) for seed, run in sorted(runs.items())}
    keys = {seed: {"best": judge.best_key, "last": judge, "late": "late"}[name] for seed, judge in judges.items()}
    lost = {seed: nan for seed, run in runs.items() if name != "best" and run.get("lost")}
    return {seed: runs[seed][key] for seed, key in keys.items() if _has(runs[seed], key)} | lost


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
        notes = [cost_note(rows[0]["baseline"]) if name == "cost" else table_note(rows)]
        notes += [judging_note(rows)] if "accuracy" not in columns else []
        yield TableView(headings, texts, keys, " ".join(filter(None, notes)))


def to_markdown(rows: Sequence[Row], columns: Sequence[Columns] = ("accuracy",)) -> str:
    """The tables in Markdown, each with its note below; arguments as for `views`."""
    return "\n".join(_markdown(view) for view in views(rows, columns))


def _markdown(view: TableView) -> str:
    left = view.keys if "target" in view.headings else 1
    return markdown(view.headings, view.texts, left=left) + "\n" + (f"\n{view.note}\n" if view.note else "")


def _columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """Headings, and functions that give a row's text in each column; empty if it has no value."""
    baseline = rows[0]["baseline"] if rows else ""
    judges = [result_column(row) for row in rows]
    several, unit = any(judge != GLOBAL for judge in judges), " %" if all(map(_shares, judges)) else ""
    return [
        ("setting", lambda row: str(row.get("setting", ""))),
        ("method", lambda row: str(row["label"])),
        ("judged by", lambda row: _judge(row) if several else ""),
        ("seeds", lambda row: str(len(row["seeds"]))),
        (f"best{unit}", lambda row: _accuracy(row, "best")),
        (f"last{unit}", lambda row: _accuracy(row, "last")),
        (f"late{unit}", lambda row: _accuracy(row, "late")),
        (f"late vs {baseline}", lambda row: _difference(row, "late")),
        (f"last vs {baseline}", lambda row: _difference(row, "last")),
        (f"best vs {baseline}", lambda row: _difference(row, "best")),
        *_targets(rows, baseline),
        ("traffic", lambda row: _number(row, "traffic", "{:.2f}x")),
        ("s/round", lambda row: _number(row, "seconds_per_round", "{:.3g}")),
        ("gradients", lambda row: _number(row, "gradients", "{:.0f}")),
        ("ms/gradient", lambda row: _number(row, "gradient_ms", "{:.3g}") if "claims" in row else ""),
        (f"clients{unit}", lambda row: _accuracy(row, "client")),
        (f"worst tenth{unit}", lambda row: _accuracy(row, "worst_tenth")),
        (f"global{unit}", lambda row: _accuracy(row, "global")),
        (f"personal{unit}", lambda row: "" if result_column(row).personal else _accuracy(row, "personal")),
        (f"personal worst tenth{unit}", lambda row: _accuracy(row, "personal_worst_tenth")),
    ]


def _number(row: Row, name: str, text: str) -> str:
    return "" if row.get(name) is None else text.format(row[name])


def _shares(judge: Column) -> bool:
    """Whether numbers are shares, shown in percent; runs of a row that differ are judged by accuracies."""
    return judge.percent or judge == MIXED


def _judge(row: Row) -> str:
    """By what a row is judged: the model, and the metric if it is not the accuracy."""
    judge = result_column(row)
    if judge == MIXED:
        return MIXED
    model = "personal" if judge.personal else "global"
    return model if judge.metric == GLOBAL else judge.words


def _accuracy(row: Row, name: str) -> str:
    """Mean and deviation, those of accuracies in percent."""
    if name == "last" and "lost" in row:
        return f"diverged ({len(row['lost'])}/{len(row['seeds'])})"
    if row.get(name) is None:
        return ""
    deviation = row[f"{name}_std"]
    if not _shares(result_column(row)):
        return f"{row[name]:.4g}" + ("" if deviation is None else f" ± {deviation:.2g}")
    return f"{row[name]:.2%}".rstrip("%") + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def _difference(row: Row, name: str) -> str:
    """A difference with its interval, if it has one; of accuracies in percentage points."""
    if f"{name}_difference" not in row:
        return ""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if not _shares(result_column(row)):
        interval = "" if low is None else f" [{low:+.3g}, {high:+.3g}]"
        return f"{row[f'{name}_difference']:+.3g}{interval}"
    interval = "" if low is None else f" [{100 * low:+.2f}, {100 * high:+.2f}]"
    return f"{100 * row[f'{name}_difference']:+.2f}{interval}"


def _targets(rows: Sequence[Row], baseline: str) -> list[tuple[str, Callable[[Row], str]]]:
    """One column for each target, or a single one if every row has one number to reach."""
    found = [[cost for cost in row.get("costs", ()) if cost["target"] is not None] for row in rows]
    if all(len(own) <= 1 and not isinstance(cost["target"], str) for own in found for cost in own):
        return [("rounds to target", lambda row: next(map(reached_text, row.get("costs", ())[:-1]), ""))]
    keys = dict.fromkeys(cost["target"] for own in found for cost in own)
    percent = all("accuracy" in cost for own in found for cost in own)
    return [(f"rounds to {_heading(key, baseline, percent)}", partial(_rounds, key=key)) for key in keys]


def _heading(key: float | str, baseline: str, percent: bool) -> str:
    """A target in a heading: "70 %" or "0.95 * fedavg's best"."""
    if isinstance(key, str):
        return key.replace("baseline", f"{baseline}'s best")
    return f"{100 * key:g} %" if percent else f"{key:g}"


def _rounds(row: Row, key: float | str) -> str:
    return next((reached_text(cost) for cost in row.get("costs", ()) if cost["target"] == key), "")
