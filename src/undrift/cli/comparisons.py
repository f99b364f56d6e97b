"""Comparisons and tuning: `undrift compare` and `undrift tune`."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from undrift.cli.app import app, reported, stoppable
from undrift.cli.progress import Progress
from undrift.cli.runs import Device, Engine, Preset, Workers, settings, slug, with_preset
from undrift.experiment.checkpoint import CheckpointError
from undrift.experiment.compare import Comparison, Trial, compare
from undrift.experiment.folder import RunError
from undrift.experiment.judge import GLOBAL, NAMES, Column, config_judged_by
from undrift.experiment.statistics import Columns, views
from undrift.experiment.strict import ConfigError, merged, read_toml
from undrift.experiment.tune import Tuning, tune

AsJson = Annotated[bool, typer.Option("--json", help="Print the file's content instead of a table.")]
Out = Annotated[Path | None, typer.Option(help="Folder of all its runs; an existing one is resumed.")]


@app.command("compare")
def compare_methods(
    file: Annotated[Path, typer.Argument(help="A TOML file with methods, seeds and settings.")],
    out: Out = None,
    preset: Preset = None,
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="accuracy or cost; repeat it for both. Default: the file's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods over seeds and settings, and print the table.

    Finished runs are not run again: after a crash, or with more methods or
    seeds in the file, the same command resumes. A run that fails does not
    stop the others; the exit code is then 1.

    Example: undrift compare examples/compare-fashion.toml --engine ray
    """
    with reported("compare", ConfigError, RunError):
        values = merged(_based(read_toml(file), preset), {"table": {"columns": columns or None}})
        comparison = Comparison.build(values, str(file))
        folder = out or Path("runs") / file.stem
        given = {"name": engine, "workers": workers, "device": device}
        trials = comparison.trials(given)
        with stoppable("the same command"), Progress(sum(trial.config.rounds for trial in trials)) as progress:
            table = compare(comparison, folder, Watching(progress).comparison, given)
    if as_json:
        typer.echo(json.dumps(table, indent=2))
    else:
        _show(table, comparison.table.columns, folder)
    for failure in table["failures"]:
        typer.echo(f"undrift compare: {failure['run']}: {failure['error']}", err=True)
    if table["failures"]:
        raise typer.Exit(1)


@app.command("tune")
def tune_method(
    what: Annotated[str, typer.Argument(help="An algorithm's name, or a TOML file with all settings.")],
    grid: Annotated[
        list[str] | None, typer.Option(help="lr=0.01,0.05,0.1, and optionally one argument: rho=0.01,0.1.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of a run, as for undrift run.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="fashion-mnist, cifar10, shakespeare, ...")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.1, classes:2, natural, ...")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds each trial runs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes everything random.")] = None,
    preset: Preset = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A fixed argument (rho=0.05) or a setting (local.epochs=5).")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Score a trial by its best or its last round.")] = None,
    widenings: Annotated[int | None, typer.Option(help="How often the grid may be widened; default 6.")] = None,
    out: Out = None,
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """Tune the learning rate, and optionally one argument of a method.

    The grid is widened until its best point is inside. Trials are scored on
    examples held out from every client, never on the test set.

    Example: undrift tune fedprox --grid lr=0.05,0.1 --grid mu=0.001,0.01
    """
    with reported("tune", ConfigError, RunError, CheckpointError):
        file = Path(what) if what.endswith(".toml") else None
        values: dict[str, Any] = read_toml(file) if file else {"method": what}
        given = {"data": data, "partition": partition, "rounds": rounds, "seed": seed}
        base = merged(merged(read_toml(config) if config else {}, given), settings(setting or []))
        fixed = {"arguments": base.pop("arguments", {}), "grid": _grid(grid or []), "by": by, "widenings": widenings}
        base.pop("method", None)
        engines = {"engine": {"name": engine, "workers": workers, "device": device}}
        tuning = Tuning.build(_based(merged(values, {**fixed, "base": merged(base, engines)}), preset), what)
        folder = out or Path("runs") / f"tune-{file.stem if file else slug(what)}"
        column = config_judged_by(tuning.config(tuple(values[0] for values in tuning.grid.values())))
        with stoppable("the same command"), Progress(None) as progress:
            summary = tune(tuning, folder, Watching(progress, column).tuning)
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        _show_grid(summary, tuning, folder)


def _based(values: dict[str, Any], preset: str | None) -> dict[str, Any]:
    """A comparison or a tuning with the preset of a flag in its base."""
    base = values.get("base", {})
    return {**values, "base": with_preset(base, preset)} if isinstance(base, dict) else values


class Watching:
    """Shows the progress of many runs on one bar, which counts their rounds; trials are `judged_by` one column."""

    def __init__(self, progress: Progress, judged_by: Column = GLOBAL) -> None:
        self.progress, self.judged_by, self.before, self.name = progress, judged_by, 0, ""

    def comparison(self, trial: Trial, row: dict[str, Any] | None) -> None:
        """Show a row of one of the runs, or count a run that has ended (None)."""
        if row is None:
            self.before += trial.config.rounds
            self.progress.bar.update(self.progress.task, completed=self.before)
        else:
            self._show(trial.name, row, config_judged_by(trial.config))

    def tuning(self, name: str, row: dict[str, Any]) -> None:
        """Show a row of a trial."""
        self._show(name, row, self.judged_by)

    def _show(self, name: str, row: dict[str, Any], judged_by: Column) -> None:
        if name != self.name:
            self.name, self.progress.accuracy = name, ""
        self.progress.bar.update(self.progress.task, description=escape(name))
        self.progress.row({**row, "round": self.before + row["round"]}, judged_by)


def _grid(texts: list[str]) -> dict[str, Any]:
    """`NAME=V1,V2,...` texts as axes."""
    axes: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--grid {text}: write NAME=V1,V2,..., for example --grid lr=0.05,0.1")
        axes |= settings([f"grid.{name}=[{values}]"])["grid"]
    return axes


def _show(table: dict[str, Any], columns: Sequence[Columns], folder: Path) -> None:
    """Print the tables of a comparison, split into parts if they are wider than the terminal."""
    console = Console()
    console.print(table["name"], markup=False)
    for name, view in zip(columns, views(table["rows"], columns), strict=False):  # no view without rows
        print_table(console, view.headings, view.texts, view.keys)
        if name == "accuracy":
            typer.echo(
                f"± standard deviation over seeds; vs {table['baseline']}: paired {table['level']:.0%} interval, "
                "in points"
            )
        if view.note:
            console.print(view.note, markup=False, highlight=False)
    typer.echo(folder / "table.md")


def print_table(console: Console, headings: Sequence[str], texts: Sequence[Sequence[str]], keys: int) -> None:
    """Print a table, split into parts if it is wider than the terminal.

    Args:
        console: where to print.
        headings: of the columns.
        texts: the rows.
        keys: how many columns name the row; every part begins with them.
    """
    widths = [max(map(len, column)) + 2 for column in zip(headings, *texts, strict=True)]
    for part in _parts(widths, keys, console.width):
        drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for column in part:
            drawn.add_column(escape(headings[column]), justify="left" if column < keys else "right")
        for row in texts:
            drawn.add_row(*(escape(row[column]) for column in part))
        console.print(drawn)


def _parts(widths: list[int], keys: int, room: int) -> list[list[int]]:
    """Groups of columns that fit the width; each begins with the key columns, which name the row."""
    first, parts = list(range(keys)), [list(range(keys))]
    for column in range(keys, len(widths)):
        if len(parts[-1]) > keys and sum(widths[c] for c in [*parts[-1], column]) > room:
            parts.append(list(first))
        parts[-1].append(column)
    return parts


def _show_grid(summary: dict[str, Any], tuning: Tuning, folder: Path) -> None:
    """Print the trials as a grid, the choice, and how to run it."""
    first, *second = summary["axes"]
    scores = {tuple(trial[name] for name in summary["axes"]): trial["score"] for trial in summary["trials"]}
    lines = summary["axes"][second[0]] if second else [None]
    drawn = Table(first, *([f"{second[0]} {v:g}" for v in lines] if second else ["accuracy %"]), box=SIMPLE_HEAD)
    for value in summary["axes"][first]:
        points = [(value, *others) for others in product(*(summary["axes"][name] for name in second))]
        values = [scores[point] for point in points]
        drawn.add_row(f"{value:g}", *("diverged" if x is None else f"{x:.2%}".rstrip("%") for x in values))
    Console().print(drawn)
    if not tuning.base.get("holdout"):
        typer.echo(f"holdout was 0: {summary['holdout']:.0%} of every client's examples were held out to score trials")
    for name, value in summary["choice"].items():
        typer.echo(f"{name} = {value:g}, {summary['edges'][name]}")
    typer.echo(f"{NAMES[summary['judged_by']]} on held-out examples {summary['score']:.2%} ({summary['by']} round)")
    typer.echo(f"Next: undrift run --config {folder / 'choice.toml'}")
