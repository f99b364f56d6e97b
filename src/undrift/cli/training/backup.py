"""A run's folder in one file, and back: `undrift backup` and `undrift restore`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors


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
