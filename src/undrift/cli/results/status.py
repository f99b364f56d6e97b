"""How runs are doing: `undrift status`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undrift.cli.app import app, printable, report_errors

if TYPE_CHECKING:
    from undrift.cli.results.health import Health


@app.command("status")
def show_status(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="The folders of runs.")],
    within: Annotated[
        float | None,
        typer.Option(help="Seconds a round may take before the run is stalled; default twice its deadline, or 600."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print metrics in Prometheus's text format.")
    ] = False,
    serve: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Serve /metrics and /healthz, on 127.0.0.1:9400 for example.")
    ] = None,
) -> None:
    """Show how runs are doing: rounds, nodes, who is missing and why.

    For a health check the exit code is 0 if the run is running or has ended, 1 if
    no round was closed for too long, 2 if it failed or its process has died.

    Example: undrift status runs/first --within 900
    """
    from undrift.cli.results.health import health

    with report_errors("status"):
        if serve is not None:
            from undrift.cli.results.prometheus import listen

            with listen(folders, serve, within) as server:
                typer.echo(f"serving http://{serve.rpartition(':')[0]}:{server.server_port}/metrics and /healthz")
                try:
                    server.serve_forever()
                except KeyboardInterrupt:
                    raise typer.Exit(130) from None
        found = [health(folder, within) for folder in folders]
    if prometheus:
        from undrift.cli.results.prometheus import exposition

        typer.echo(exposition(found), nl=False)
        return
    if as_json:
        facts = [asdict(run) for run in found]
        typer.echo(json.dumps(facts[0] if len(facts) == 1 else facts, indent=1))
    else:
        typer.echo("\n\n".join(describe(run) for run in found))
    raise typer.Exit(max(run.code for run in found))


def describe(found: "Health") -> str:
    """The health of a run, in a few lines.

    Args:
        found: of the run.
    """
    lines = [f"{found.run}: {found.state}" + (f": {found.detail}" if found.detail else "")]
    score = "" if found.score is None else f", {found.judged_by} {found.score:.4g}"
    age = "" if found.age is None else f", the last closed {_span(found.age)} ago"
    lines.append(f"round {found.round} of {found.rounds}{age}{score}")
    if found.phase:
        lines.append(
            f"phase {found.phase}" + (f", written {_span(found.quiet)} ago" if found.quiet is not None else "")
        )
    for node, facts in found.nodes.items():
        hosted, named = int(facts.get("hosted", 0)), facts.get("clients", [])
        who = ", ".join(map(str, named[:12])) + (", ..." if hosted > len(named[:12]) else "")
        where = "connected" if facts.get("connected") else "GONE"
        waited = ", its reply is awaited" if int(node) in found.waiting else ""
        counts = [f"{facts[name]} {name}" for name in ("rejected", "failed", "absent") if facts.get(name)]
        faults = f"; so far {', '.join(counts)}" if counts else ""
        lines.append(f"node {node}: {where}{waited}; {hosted} clients: {who or 'not known yet'}{faults}")
    lines += [f"missing in the last round: client {client}, {why}" for client, why in found.absent[:20]]
    lines += [f"and {found.missing - 20} more"] * (found.missing > 20)
    lines += [f"rejected so far: {count} for {reason}" for reason, count in sorted(found.rejected.items())]
    lines += [f"in quarantine: client {client}, {text}" for client, text in sorted(found.quarantine.items())]
    if found.abandoned:
        lines.append(f"{found.abandoned} rounds without a server step")
    if found.restarts:
        lines.append(f"resumed {found.restarts} times")
    return "\n".join(map(printable, lines))


def _span(seconds: float) -> str:
    """A time in words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
