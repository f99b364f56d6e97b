"""A run again from its trace of arrivals: `undrift replay`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, print_warnings, report_errors
from undrift.cli.options import EngineOptions


@app.command("replay")
def replay_run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run with a schedule or durations.")],
    task: Annotated[
        str | None, typer.Option(help="A reference to the task with the data of all clients, of a deployment.")
    ] = None,
    *,
    place: EngineOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Replay a run from its arrivals and compare every hash.

    Reads arrivals.jsonl of RUN, which is not changed: who trained from which
    model and in which step each upload was added. Exit code 1 if a step ends
    with another model.

    Example: undrift replay runs/fedbuff-fashion-mnist-seed0 --engine ray
    """
    from undrift.runs.loop.replay import replay
    from undrift.runs.setup.custom_tasks import find_task

    with report_errors("replay"), print_warnings("replay"):
        place.check_workers(place.engine or "local")
        found = replay(folder, task=None if task is None else find_task(task), **place.settings())
    if as_json:
        typer.echo(json.dumps({**vars(found), "folder": str(found.folder), "same": found.same}, indent=2))
    else:
        typer.echo(f"{found.folder}: {found.steps} steps, {found.uploads} uploads  sha256 {found.sha256[:16]}")
        where = "every step ended as in the run" if found.same else f"step {found.differs} ended with another state"
        typer.echo(where)
    if not found.same:
        raise typer.Exit(1)
