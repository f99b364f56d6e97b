"""What there is: `undrift list` and `undrift show`."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from undrift.algorithms import ALGORITHMS, make
from undrift.cli.app import app, reported
from undrift.compose.cards import FAMILIES, card, family, markdown
from undrift.core.algorithm import Cost, cost
from undrift.util.names import suggest

_LEGEND = """\
down, up: traffic per client and round; client, server: what they keep; all in
multiples of the model, <1 is less than one. grads: gradients per local step.
gathers: the server holds every upload of a round; plain: sums are enough.
undrift show NAME tells all about one."""


@app.command("list")
def list_algorithms(
    only: Annotated[str | None, typer.Option("--family", help=f"One of {', '.join(FAMILIES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects instead of a table.")] = False,
) -> None:
    """List every algorithm with what it costs and what it can do.

    Traffic and state are in multiples of the model, per client and round.

    Example: undrift list --family robust
    """
    with reported("list"):
        if only is not None and only not in FAMILIES:
            raise ValueError(f"no family is named {only!r}; {suggest(only, FAMILIES)}")
    made = {name: make(name) for name in ALGORITHMS}
    families = {name: family(algorithm) for name, algorithm in made.items()}
    costs = {name: cost(algorithm) for name, algorithm in made.items() if only in (None, families[name])}
    if as_json:
        typer.echo(json.dumps([found.row(name) for name, found in costs.items()], indent=2))
    else:
        Console().print(_table(costs, families))
        typer.echo(_LEGEND)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="An algorithm's name, as undrift list shows it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print an object.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the page of docs/methods.")] = False,
) -> None:
    """Show all about an algorithm.

    The idea, the equations, the arguments, the blocks, the cost, the limiting
    cases, the differences from the paper, and the references.

    Example: undrift show scaffold
    """
    with reported("show"):
        found = card(name)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    elif as_markdown:
        typer.echo(markdown(found), nl=False)
    else:
        Console().print(Markdown(markdown(found), code_theme="bw", hyperlinks=False))


def _table(costs: dict[str, Cost], families: dict[str, str]) -> Table:
    """The costs, family by family."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("algorithm", no_wrap=True)
    for heading in ("down", "up", "client", "server", "grads"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("sum", no_wrap=True)
    table.add_column("blocks")
    for kind in FAMILIES:
        members = {name: found for name, found in costs.items() if families[name] == kind}
        if members:
            table.add_row(f"[bold]{kind}[/bold]")
        for name, found in members.items():
            table.add_row(*_cells(name, found))
    return table


def _cells(name: str, found: Cost) -> list[str]:
    """The cells of one algorithm."""
    kept = str(found.client_state) if found.client_state or found.stateless else "<1"
    numbers = (found.down, found.up, kept, found.server_state, found.gradients_per_step)
    blocks = ", ".join(block.partition("(")[0] for block in found.slots.values()) or "-"
    return [f" {name}", *map(str, numbers), "plain" if found.plain_sum else "gathers", blocks]
