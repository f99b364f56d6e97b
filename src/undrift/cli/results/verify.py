"""Whether a run's folder is what the run wrote: `undrift verify`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors


@app.command("verify")
def verify_run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or in progress.")],
    anchor: Annotated[
        str | None, typer.Option(help="A head of the log that was noted before; the log must contain it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Compare a run's files with its audit log, and print its head.

    Reads the log from its first line, and compares checkpoints, rows and result
    with it. With UNDRIFT_AUDIT_KEY=FILE it verifies the signatures of all events.
    Exit code 1 if something was changed, cut, replaced or added.

    Example: undrift verify runs/fedavg-fashion-mnist-seed0
    """
    from undrift.runs.folder.verify import render, verify

    with report_errors("verify"):
        found = verify(folder, anchor)
    typer.echo(json.dumps(found.row(), indent=2) if as_json else render(found))
    for problem in found.problems:
        typer.echo(f"undrift verify: {problem}", err=True)
    if not found.intact:
        raise typer.Exit(1)
