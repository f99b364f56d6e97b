"""Our results beside the published ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from typing import Any

from undrift.papers.catalogue import Cell, Item, Paper, split_measure
from undrift.studies.statistics import LEVEL, quantile

Row = Mapping[str, Any]
Measured = tuple[str, float | str | None]  # as `split_measure` returns it
Cells = Mapping[Measured, float]

_ACCURACY, _STD = ("accuracy", None), ("std", None)


@dataclass(frozen=True)
class ResultLine:
    """One number of a table: ours, the published one, and their difference with its interval.

    Args:
        setting: the part of the table.
        label: the row.
        measure: what it is, with its unit.
        ours: the mean over seeds; None if it was not measured or, for rounds, not reached.
        std: its standard deviation over seeds.
        seeds: how many seeds; for the cost of a target, those that reached it.
        published: the published number; None if there is none.
        published_std: its published standard deviation.
        gap: our difference from the baseline; None for the baseline.
        gap_interval: its paired interval over seeds; None with a single seed.
        published_gap: the published difference from the baseline.
    """

    setting: str
    label: str
    measure: str
    ours: float | None
    std: float | None
    seeds: int
    published: float | None
    published_std: float | None = None
    gap: float | None = None
    gap_interval: tuple[float, float] | None = None
    published_gap: float | None = None

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.ours is None or self.published is None else self.ours - self.published

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the difference: Student's, for the mean of our seeds; the published number is taken as exact.

        None with a single seed.
        """
        if self.difference is None or self.std is None or self.seeds < 2:
            return None
        half = quantile(self.seeds - 1, LEVEL) * self.std / sqrt(self.seeds)
        return self.difference - half, self.difference + half


_TEXTS: Mapping[str, str] = {
    "rounds": "rounds to {}",
    "cost": "traffic to {}, the baseline's run = 1",
    "total_seconds": "seconds to {}",
}
"""Measure of reaching a target -> its name."""


def compare_with_published(paper: Paper, item: Item, table: Mapping[str, Any]) -> list[ResultLine]:
    """Every number of an item, ours and published.

    A row has a line for each measure that is published for some row of its part. If measures of targets are published,
    it has one for each target of the comparison, so that ours are shown also where the paper's method did not reach it,
    and where the targets are those of a smaller scale. Accuracy is left out if only other measures are published.

    Args:
        paper: the paper.
        item: the table or figure.
        table: the result of `compare`.
    """
    published = paper.published.get(paper.key(item), {})
    rows: Sequence[Row] = table["rows"]
    baselines = {row["setting"]: row for row in rows if row["label"] == table["baseline"]}
    lines = []
    for row in rows:
        part = {label: _cells(cell) for label, cell in published.get(row["setting"] or "all", {}).items()}
        cells, base = part.get(row["label"], {}), part.get(table["baseline"], {})
        first = baselines.get(row["setting"])
        for measure in _measures(part, row):
            if measure == _ACCURACY:
                lines.append(_accuracy(item, row, cells, base, first if first is not row else None))
            else:
                lines.append(_cost(row, measure, cells.get(measure)))
    return [line for line in lines if line.ours is not None or line.published is not None]


def _measures(part: Mapping[str, Cells], row: Row) -> list[Measured]:
    """What the lines of a row show, in the order of the published numbers."""
    published = dict.fromkeys(measure for cells in part.values() for measure in cells if measure != _STD)
    targets = [cost["target"] for cost in row.get("costs", ()) if cost["target"] is not None]
    shown = [[(name, at) for at in targets] if target is not None else [(name, None)] for name, target in published]
    return list(dict.fromkeys(chain.from_iterable(shown))) or [_ACCURACY]


def _cost(row: Row, measure: Measured, published: float | None) -> ResultLine:
    """Seconds per round, or what a row needs to reach a target: the mean over the seeds that reached it."""
    named, (name, target) = (row["setting"], row["label"]), measure
    if name == "seconds":
        ours = row.get("seconds_per_round")
        return ResultLine(*named, "seconds per round", ours, None, len(row["seeds"]), published)
    targets = [cost for cost in row.get("costs", ()) if cost["target"] is not None]
    cost = next((cost for cost in targets if target in (None, cost["target"])), None)
    text = _TEXTS[name].format(_goal(target))
    if cost is None:
        return ResultLine(*named, text, None, None, 0, published)
    values = {"rounds": cost["rounds"], "cost": cost["share"]["bytes"], "total_seconds": cost["seconds"]}
    return ResultLine(*named, text, values[name], None, cost["reached"], published)


def _goal(target: float | str | None) -> str:
    """A target in the name of a measure."""
    if target is None:
        return "target"
    return f"{100 * target:g} %" if isinstance(target, float) else target.replace("baseline", "the baseline's best")


def _accuracy(item: Item, row: Row, cells: Cells, base: Cells, first: Row | None) -> ResultLine:
    """The accuracy of a row, in percent."""
    ours, std = row.get(item.reads), row.get(f"{item.reads}_std")
    theirs, reference = cells.get(_ACCURACY), base.get(_ACCURACY)
    gap = None if first is None else row.get(f"{item.reads}_difference")
    return ResultLine(
        row["setting"],
        row["label"],
        "accuracy %",
        None if ours is None else 100 * ours,
        None if std is None else 100 * std,
        len(row["seeds"]),
        theirs,
        cells.get(_STD),
        None if gap is None else 100 * gap,
        None if first is None or row.get(f"{item.reads}_low") is None else _points(row, item.reads),
        None if first is None or theirs is None or reference is None else theirs - reference,
    )


def _points(row: Row, name: str) -> tuple[float, float]:
    """The ends of a row's paired interval, in percentage points."""
    return 100 * row[f"{name}_low"], 100 * row[f"{name}_high"]


def _cells(cell: Cell) -> Cells:
    """A published cell by measure."""
    if isinstance(cell, tuple):
        return {_ACCURACY: cell[0], _STD: cell[1]}
    return {split_measure(text): value for text, value in cell.items()} if isinstance(cell, dict) else {_ACCURACY: cell}


def result_cells(lines: Sequence[ResultLine], baseline: str) -> tuple[list[str], list[list[str]]]:
    """Headings and texts of the table.

    Args:
        lines: from `beside`.
        baseline: the row that the others are compared with.
    """
    headings = [
        "setting",
        "method",
        "measure",
        "ours",
        "published",
        "difference",
        f"ours vs {baseline}",
        "published vs",
    ]
    table = [
        [
            line.setting or "-",
            line.label,
            line.measure,
            _number(line.ours, line.std),
            _number(line.published, line.published_std),
            _format_signed(line.difference, line.interval),
            _format_signed(line.gap, line.gap_interval),
            _format_signed(line.published_gap),
        ]
        for line in lines
    ]
    shown = [n for n, _ in enumerate(headings) if n < 2 or any(row[n] != "-" for row in table)]
    if {line.measure for line in lines} == {"accuracy %"}:
        shown.remove(2)
    return [headings[n] for n in shown], [[row[n] for n in shown] for row in table]


def _number(value: float | None, std: float | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if std is None else f" ± {std:.2f}")


def _format_signed(value: float | None, interval: tuple[float, float] | None = None) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f}" + ("" if interval is None else f" [{interval[0]:+.2f}, {interval[1]:+.2f}]")
