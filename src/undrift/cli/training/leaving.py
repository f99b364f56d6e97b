"""A client leaves a run: `undrift withdraw` and `undrift unlearn`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, print_warnings, report_errors

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is not in progress.")]
Client = Annotated[int, typer.Argument(metavar="CLIENT", help="The client's number, from 0.")]


@app.command("withdraw")
def withdraw_client(folder: Run, client: Client) -> None:
    """Take a client out of a run for good, and delete its states.

    The model is not changed: what its uploads moved stays in it. See undrift
    unlearn. Stop the run first; resumed, it goes without the client.

    Example: undrift withdraw runs/first 4
    """
    from undrift.runs.loop.leaving import withdraw

    with report_errors("withdraw"):
        for line in withdraw(folder, client):
            typer.echo(line)


@app.command("unlearn")
def unlearn_client(
    folder: Run,
    client: Client,
    out: Annotated[Path | None, typer.Option(help="The folder of the new run; default RUN-without-CLIENT.")] = None,
) -> None:
    """Train a run again as if a client had never been in it.

    It begins at the last checkpoint before the client's first round; the result
    is that of a run without the client, bit for bit. RUN is not changed; delete
    it if nothing of the client may remain.

    Example: undrift unlearn runs/first 4
    """
    from undrift.runs.loop.leaving import unlearn

    target = out or folder.with_name(f"{folder.name}-without-{client}")
    with report_errors("unlearn"), print_warnings("unlearn"):
        outcome = unlearn(folder, client, target)
    if outcome is None:
        typer.echo(f"{target} is ready; its nodes train it: give flwr run with -c 'run=\"{target.name}\"'")
    else:
        typer.echo(f"{outcome.folder}  sha256 {outcome.sha256[:16]}")
