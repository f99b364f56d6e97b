"""Comparisons and tuning: `undrift compare` and `undrift tune`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from undrift.cli.app import app, print_failures, report_errors, stop_cleanly
from undrift.cli.names import check_spelling, completion, methods
from undrift.cli.options import TrainingOptions
from undrift.cli.training.run import Data, Partition, PrecisionName, Preset, settings, slug, with_preset
from undrift.util.storage.jsonable import to_json

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the runs; an existing one is resumed.")]


@app.command("compare")
def compare_methods(
    file: Annotated[Path, typer.Argument(help="A TOML file with methods, seeds and settings.")],
    out: Out = None,
    preset: Preset = None,
    precision: PrecisionName = None,
    *,
    place: TrainingOptions,
    columns: Annotated[
        list[str] | None, typer.Option(help="accuracy or cost. Repeatable; default: as in FILE.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="strict tunes every row first, on seeds of its own; plain takes FILE's rates.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare methods over seeds and settings, and print the table.

    Finished runs are not run again: after a crash, or with more methods or
    seeds in the file, the same command resumes. A run that fails does not
    stop the others; the exit code is then 1.

    With --protocol strict every row is tuned in every setting, with as many
    trials as the others, until its best rate lies inside its grid. Final seeds
    are never tuned on, and intervals hold for the whole table together.

    Example: undrift compare examples/compare-fashion.toml --engine ray
    """
    from undrift.cli.progress import RunProgress
    from undrift.cli.tables import show_comparison
    from undrift.runs.settings.schema import merge_settings, read_toml
    from undrift.studies.compare import Comparison, compare

    with report_errors("compare"):
        values = merge_settings(
            _add_to_base(read_toml(file), preset, precision),
            {"table": {"columns": columns or None}, "protocol": protocol},
        )
        comparison = Comparison.build(values, str(file))
        folder = out or Path("runs") / file.stem
        given = place.settings()
        trials = comparison.trials(given)
        place.check_workers(*(trial.config.engine.name for trial in trials))
        rounds = None if comparison.strict else sum(trial.config.rounds for trial in trials)
        with stop_cleanly("the same command"), RunProgress(rounds, folder) as progress:
            table = compare(comparison, folder, progress.of_trial, given)
    if as_json:
        typer.echo(to_json(table))
    else:
        show_comparison(table, comparison.table.columns, folder)
    print_failures("compare", table["failures"])


@app.command("tune")
def tune_method(
    what: Annotated[
        str,
        typer.Argument(help="A method's name, or a TOML file with all settings.", autocompletion=completion(methods)),
    ],
    grid: Annotated[
        list[str] | None,
        typer.Option(help="Values to try: lr=0.01,0.05,0.1, and optionally one argument: rho=0.01,0.1. Repeatable."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="Settings of a run, as for undrift run.")
    ] = None,
    data: Data = None,
    partition: Partition = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds of each trial.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(help="Seed of every random choice. Repeatable: a point's score is the mean over the seeds."),
    ] = None,
    preset: Preset = None,
    precision: PrecisionName = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A fixed argument (rho=0.05) or a setting (local.epochs=5). Repeatable."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Score a trial by best, last or late: one round, or the last three.")
    ] = None,
    widenings: Annotated[int | None, typer.Option(help="How often the grid may be widened; default 6.")] = None,
    out: Out = None,
    *,
    place: TrainingOptions,
    as_json: AsJson = False,
) -> None:
    """Tune the learning rate, and optionally one argument of a method.

    While its best point is on an edge, the grid is widened, at most 6 times.
    Trials are scored on examples held out from every client; a task of your own
    without client tests on its test data.

    Example: undrift tune fedprox --grid lr=0.05,0.1 --grid mu=0.001,0.01
    """
    with report_errors("tune"):
        check_spelling(None if what.endswith(".toml") else what, data)
    from undrift.cli.progress import RunProgress
    from undrift.cli.tables import show_grid
    from undrift.runs.settings.schema import merge_settings, read_toml
    from undrift.studies.tune import Tuning, tune

    with report_errors("tune"):
        file = Path(what) if what.endswith(".toml") else None
        values: dict[str, Any] = read_toml(file) if file else {"method": what}
        given = {"data": data, "partition": partition, "rounds": rounds, "seed": seed[0] if seed else None}
        chosen = settings(setting or [])
        if "method" in chosen:
            raise ValueError(f"--set method={chosen['method']}: it comes from {what}, the first argument; leave it out")
        base = merge_settings(merge_settings(read_toml(config) if config else {}, given), chosen)
        fixed = {"arguments": base.pop("arguments", {}), "grid": _grid(grid or []), "by": by, "widenings": widenings}
        fixed["seeds"] = (seed if len(seed) > 1 else []) if seed else None  # one --seed replaces the file's seeds too
        base.pop("method", None)
        tuning = Tuning.build(
            _add_to_base(
                merge_settings(values, {**fixed, "base": merge_settings(base, {"engine": place.settings()})}),
                preset,
                precision,
            ),
            what,
        )
        folder = out or Path("runs") / f"tune-{file.stem if file else slug(what)}"
        first = tuning.config(tuple(values[0] for values in tuning.grid.values()))
        place.check_workers(first.engine.name)
        with stop_cleanly("the same command"), RunProgress(None, folder) as progress:
            summary = tune(tuning, folder, progress.of_tuning(first))
    if as_json:
        typer.echo(to_json(summary))
    else:
        show_grid(summary, tuning, folder)


def _add_to_base(values: dict[str, Any], preset: str | None, precision: str | None) -> dict[str, Any]:
    """A comparison or a tuning with the preset and the precision of flags in its base."""
    from undrift.runs.settings.schema import merge_settings

    base = values.get("base", {})
    if not isinstance(base, dict):
        return values
    return {
        **values,
        "base": merge_settings(with_preset(base, preset), {"local": {"precision": precision}} if precision else {}),
    }


def _grid(texts: list[str]) -> dict[str, Any]:
    """`NAME=V1,V2,...` texts as axes."""
    axes: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--grid {text}: write NAME=V1,V2,..., for example --grid lr=0.05,0.1")
        axes |= settings([f"grid.{name}=[{values}]"])["grid"]
    return axes
