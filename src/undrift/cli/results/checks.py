"""Whether a run holds what it states: `undrift verify`, `undrift replay` and `undrift audit`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from undrift.cli.app import app, print_warnings, report_errors
from undrift.cli.options import EngineOptions

AsJson = Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")]


@app.command("verify")
def verify_run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or in progress.")],
    anchor: Annotated[
        str | None, typer.Option(help="A head that was noted before, or a node's heads.jsonl; the log must have it.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The public key that signed the log; without it UNDRIFT_AUDIT_KEY names it.")
    ] = None,
    as_json: AsJson = False,
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


@app.command("replay")
def replay_run(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run with a schedule or durations.")],
    task: Annotated[
        str | None, typer.Option(help="A reference to the task with the data of all clients, of a deployment.")
    ] = None,
    *,
    place: EngineOptions,
    as_json: AsJson = False,
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


@app.command("audit")
def audit_privacy(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is not in progress.")],
    canaries: Annotated[
        int | None, typer.Option(help="How many canaries are added to the clients; 100 if no attack is chosen.")
    ] = None,
    inversion: Annotated[
        bool, typer.Option("--inversion", help="Compute examples back from a client's upload.")
    ] = False,
    membership: Annotated[
        bool, typer.Option("--membership", help="Tell training examples from others by their losses.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a run reveals, with canaries or with attacks.

    Canaries are for private runs: trains the run's settings again, in this process,
    with clients that upload a random direction, and searches the model for these
    directions. Exit code 1, now and in undrift verify, if the lower bound of epsilon
    is above the epsilon that the run states.

    --inversion attacks the uploads of the first round, and --membership the last
    model; exit code 1 if it finds more members than the stated epsilon allows.
    All results are noted in the run's audit log and shown by undrift report.

    Example: undrift audit runs/private --canaries 200 --membership
    """
    from undrift.runs.loop.attacks import audit_inversion, audit_membership
    from undrift.runs.loop.privacy_audit import audit_run

    found: dict[str, Any] = {}
    with report_errors("audit"), print_warnings("audit"):
        if canaries is not None or not (inversion or membership):
            found["canaries"] = audit_run(folder, 100 if canaries is None else canaries)
        if inversion:
            found["inversion"] = audit_inversion(folder)
        if membership:
            found["membership"] = audit_membership(folder)
    holds = all(found[name].holds for name in ("canaries", "membership") if name in found)
    rows = {name: [x.row() for x in one] if isinstance(one, list) else one.row() for name, one in found.items()}
    lines = [str(x) for one in found.values() for x in (one if isinstance(one, list) else [one])]
    typer.echo(json.dumps({"holds": holds, **rows}, indent=2) if as_json else "\n".join(lines))
    if not holds:
        raise typer.Exit(1)
