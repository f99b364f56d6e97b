"""What is done to a run's folder: a client leaves it, a backup is written and restored."""

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


@app.command("backup")
def backup_run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or in progress.")],
    out: Annotated[Path, typer.Option(help="The tar file to write.")],
) -> None:
    """Write a run's folder into a file, also while it runs.

    What is stored was verified: it can be resumed and gives the same bits. Keep
    the file on another machine. Clients' states on the nodes of a deployment are
    not in it.

    Example: undrift backup runs/first --out first.tar
    """
    from undrift.runs.folder.backup import backup

    with report_errors("backup"):
        found = backup(folder, out)
    typer.echo(f"{out}  {found.rows} rounds, head {found.head}")


@app.command("restore")
def restore_run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What undrift backup has written.")],
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder to make.")],
) -> None:
    """Write the folder of a run from a backup, to resume it.

    Example: undrift restore first.tar runs/first
    """
    from undrift.runs.folder.backup import restore
    from undrift.util.shell import resume_command

    with report_errors("restore"):
        found = restore(file, folder)
    typer.echo(f"{folder}  {found.rows} rounds; continue with: {resume_command(folder)}")
