"""Tables for people: they fit a terminal, and are as wide as they need in a pipe or a file."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from undrift.cli.console import open_console
from undrift.runs.folder.files import read_summary
from undrift.runs.settings.goals import Column
from undrift.studies.statistics import Columns, constant_text, views
from undrift.studies.tune import Tuning
from undrift.util.shell import as_argument


def show_comparison(table: dict[str, Any], columns: Sequence[Columns], folder: Path) -> None:
    """Print the tables of a comparison, split into parts if they are wider than the terminal."""
    console = open_console()
    console.print(table["name"], markup=False)
    for name, view in zip(columns, views(table["rows"], columns), strict=False):  # no view without rows
        _print_parts(console, view.headings, view.texts, view.keys)
        if name == "accuracy" and "claims" not in table:
            points = ", in points" if any(heading.endswith(" %") for heading in view.headings) else ""
            typer.echo(
                f"± standard deviation over seeds; vs {table['baseline']}: paired {table['level']:.0%} interval{points}"
            )
        if view.note:
            console.print(view.note, markup=False, highlight=False)
    typer.echo(folder / "table.md")


def show_rows(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], keys: int | None = None) -> None:
    """Print a title and a table.

    Args:
        title: the line above it; empty has none.
        headings: of the columns.
        rows: the cells.
        keys: how many columns name the row; the others are numbers, and a table wider than the terminal is split. None
            has texts only, which wrap.
    """
    console = open_console()
    if title:
        console.print(title, markup=False, highlight=False)
    if keys is None:
        console.print(_table(headings, rows, range(len(headings)), len(headings)))
    else:
        _print_parts(console, headings, rows, keys)


def _print_parts(console: Console, headings: Sequence[str], rows: Sequence[Sequence[Any]], keys: int) -> None:
    """Print a table, split into parts that fit the terminal; each begins with the key columns."""
    widths = [max(map(len, column)) + 2 for column in zip(headings, *rows, strict=True)]
    for part in _parts(widths, keys, console.width):
        console.print(_table(headings, rows, part, keys))


def _table(headings: Sequence[str], rows: Sequence[Sequence[Any]], columns: Sequence[int], keys: int) -> Table:
    """Some columns of a table, of which the first are aligned to the left."""
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        drawn.add_column(escape(headings[column]), justify="left" if column < keys else "right")
    for row in rows:
        drawn.add_row(*(escape(str(row[column])) for column in columns))
    return drawn


def _parts(widths: list[int], keys: int, room: int) -> list[list[int]]:
    """Groups of columns that fit the width; each begins with the key columns, which name the row."""
    first, parts = list(range(keys)), [list(range(keys))]
    for column in range(keys, len(widths)):
        if len(parts[-1]) > keys and sum(widths[c] for c in [*parts[-1], column]) > room:
            parts.append(list(first))
        parts[-1].append(column)
    return parts


def show_grid(summary: dict[str, Any], tuning: Tuning, folder: Path) -> None:
    """Print the trials as a grid, the choice, and how to run it."""
    first, *second = summary["axes"]
    judge = Column(summary["judged_by"])
    scores = {tuple(trial[name] for name in summary["axes"]): trial["score"] for trial in summary["trials"]}
    lines = summary["axes"][second[0]] if second else [None]
    drawn = Table(
        first,
        *([f"{second[0]} {v:g}" for v in lines] if second else ["accuracy %" if judge.percent else judge.words]),
        box=SIMPLE_HEAD,
    )
    for value in summary["axes"][first]:
        points = [(value, *others) for others in product(*(summary["axes"][name] for name in second))]
        values = [scores[point] for point in points]
        drawn.add_row(f"{value:g}", *("diverged" if x is None else judge.text(x).rstrip("%") for x in values))
    open_console().print(drawn)
    if not tuning.base.get("holdout") and summary["holdout"]:
        typer.echo(f"holdout was 0: {summary['holdout']:.0%} of every client's examples were held out to score trials")
    for name, value in summary["choice"].items():
        typer.echo(f"{name} = {value:g}, {summary['edges'][name]}")
    typer.echo(f"{judge.words} on held-out examples {judge.text(summary['score'])} ({summary['by']} round)")
    trial = next((folder / "trials").rglob("summary.json"), None)
    constant = {} if trial is None else (read_summary(trial.parent) or {}).get("constant", {})
    if judge.metric in constant:
        typer.echo(f"{constant_text(constant, judge.metric)} on the test set")
    typer.echo(f"Next: undrift run --config {as_argument(folder / 'choice.toml')}")
