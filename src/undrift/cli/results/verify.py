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
        str | None, typer.Option(help="A head that was noted before, or a node's heads.jsonl; the log must have it.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key that signed the log; without it UNDRIFT_AUDIT_KEY names it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Compare a run's files with its audit log, and print its head.

    Reads the log from its first line with all its signatures, and compares the
    files of the folder with it. With --key the signer must be the one given.
    Exit code 1 if something was changed, cut, replaced or added.

    Example: undrift verify runs/fedavg-fashion-mnist-seed0
    """
    from undrift.runs.folder.verify import render, verify

    with report_errors("verify"):
        found = verify(folder, anchor, key)
    typer.echo(json.dumps(found.row(), indent=2) if as_json else render(found))
    for problem in found.problems:
        typer.echo(f"undrift verify: {problem}", err=True)
    if not found.intact:
        raise typer.Exit(1)
