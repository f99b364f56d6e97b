"""What there is: `undrift list`."""

import json
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from undrift.algorithm import cost
from undrift.algorithms import ALGORITHMS
from undrift.cli.app import app


@app.command("list")
def list_algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
) -> None:
    """List every algorithm with what it costs and what it can do.

    Traffic and state are in multiples of the model, per client and round.

    Example: undrift list --json
    """
    rows = [cost(make()).row(name) for name, make in ALGORITHMS.items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption="down, up: traffic per client and round; client, server: state; all in multiples of the model.\n"
        "grads: gradient evaluations per local step. --json gives every block with its settings.",
        caption_justify="left",
    )
    table.add_column("algorithm", no_wrap=True)
    for heading in ("down", "up", "client", "server", "grads"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("clients", "sum"):
        table.add_column(heading, no_wrap=True)
    table.add_column("blocks")
    for row in rows:
        numbers = [str(row[key]) for key in ("down", "up", "client_state", "server_state", "gradients_per_step")]
        flags = ["stateless" if row["stateless"] else "stateful", "plain" if row["plain_sum"] else "gathers"]
        blocks = ", ".join(block.partition("(")[0] for block in row["slots"].values()) or "-"
        table.add_row(row["name"], *numbers, *flags, blocks)
    Console().print(table)
