"""Whether a private run keeps what it states: `undrift audit`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, print_warnings, report_errors


@app.command("audit")
def audit_privacy(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a private run that is not in progress.")],
    canaries: Annotated[int, typer.Option(help="How many canaries are added to the clients.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Measure what a private run reveals, with canaries.

    Trains the run's settings again, in this process, with clients that upload a
    random direction, and searches the model for these directions. The lower bound
    of epsilon is noted in the run's audit log. Exit code 1, now and in undrift
    verify, if it is above the epsilon that the run states.

    Example: undrift audit runs/private --canaries 200
    """
    from undrift.runs.loop.privacy_audit import audit_run

    with report_errors("audit"), print_warnings("audit"):
        found = audit_run(folder, canaries)
    typer.echo(json.dumps(found.row(), indent=2) if as_json else str(found))
    if not found.holds:
        raise typer.Exit(1)
