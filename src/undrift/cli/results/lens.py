"""Measurements of a run's clients and of its minimum: `undrift lens`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.options import KeptRound


@app.command("lens")
def look_at_run(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, finished or in progress.")],
    parts: Annotated[
        str | None,
        typer.Option(
            help="What to measure: spectrum, divergence, heterogeneity, alignment, embedding, joint, views, curvature, "
            "surface, staleness; default all."
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="How many clients to measure.")] = 10,
    examples: Annotated[int, typer.Option(help="How many test examples to use.")] = 500,
    directions: Annotated[
        str, typer.Option(help="Directions of the surface: 'top eigenvectors' or random.")
    ] = "top eigenvectors",
    round: KeptRound = None,
    filter: Annotated[
        str | None,
        typer.Option(help="Also measure gradients after this filter: highpass(0.1), ...; default the method's own."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of clients and examples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the content of lens.json instead of tables.")] = False,
) -> None:
    """Measure a run's clients and its minimum, and write RUN/lens.json.

    How far clients agree in each band, in which layers they diverge, how similar
    their features are, how sharp the minimum is. The run itself is not changed.

    Example: undrift lens runs/fedavg-fashion-mnist-seed0 --parts spectrum
    """
    from undrift.cli.results.measurements import show_measurements
    from undrift.runs.reading.best_round import parse_round
    from undrift.runs.reading.open_checkpoint import lens_file, look

    with report_errors("lens"):
        wanted = [part.strip() for part in parts.split(",")] if parts else []
        measurements = look(
            folder,
            clients=clients,
            parts=wanted,
            seed=seed,
            examples=examples,
            directions=directions,
            round=parse_round(round),
            filter=filter,
        )
    if as_json:
        typer.echo(json.dumps(measurements, indent=1))
    else:
        show_measurements(measurements)
        typer.echo(lens_file(folder, measurements["round"] if round else None))
