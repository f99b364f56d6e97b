"""The catalogue of methods: `undrift list` and `undrift show`."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.names import FAMILIES, check_spelling, completion, methods
from undrift.util.naming.names import suggest

if TYPE_CHECKING:
    from rich.table import Table

    from undrift.core.method.algorithm import Cost

_LEGEND = """\
down, up: traffic per client and round; client, server: stored state; all in
multiples of the model, <1 is less than one. grads: gradients per local step.
sums: the server needs only sums of uploads; gathers: it keeps every upload.
undrift show NAME explains one method."""


@app.command("list")
def list_algorithms(
    only: Annotated[
        str | None,
        typer.Option("--family", help=f"One of {', '.join(FAMILIES)}.", autocompletion=completion(FAMILIES)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """List all methods with their costs and blocks.

    Traffic and state are in multiples of the model, per client and round.
    Methods that plug-ins add are included.

    Example: undrift list --family robust
    """
    with report_errors("list"):
        if only is not None and only not in FAMILIES:
            raise ValueError(f"no family is named {only!r}; {suggest(only, FAMILIES)}")
    from undrift.algorithms import ALGORITHMS, METHODS, make
    from undrift.cli.plugins import by_package, survey
    from undrift.cli.tables import open_console
    from undrift.compose.cards import family
    from undrift.core.method.algorithm import cost

    found = survey()
    packages = {plugin.name: plugin.package for plugin in found.working if plugin.group == METHODS.name}
    made = {name: make(name) for name in (*ALGORITHMS, *packages)}
    families = {name: family(algorithm) for name, algorithm in made.items()}
    costs = {name: cost(algorithm) for name, algorithm in made.items() if only in (None, families[name])}
    if as_json:
        rows = [
            row.row(name) | ({"package": packages[name]} if name in packages else {}) for name, row in costs.items()
        ]
        typer.echo(json.dumps(rows, indent=2))
    else:
        open_console().print(_table(costs, families))
        typer.echo(_LEGEND)
        for package, adds in by_package(found.working).items():
            typer.echo(f"{package} adds {adds}")
    for problem in found.problems:
        typer.echo(f"problem: {problem}", err=True)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A method's name, a composition, or your own: mypackage.methods:mymethod.",
            autocompletion=completion(methods),
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the page of docs/reference/methods.")] = False,
) -> None:
    """Explain a method: when to use it, equations, arguments, cost.

    Also its blocks, its limiting cases, its differences from the paper, and its
    references.

    Example: undrift show scaffold
    """
    with report_errors("show"):
        check_spelling(name)
    from rich.markdown import Markdown

    from undrift.cli.tables import WIDE, open_console
    from undrift.compose.cards import card, markdown

    with report_errors("show"):
        page = card(name)
    if as_json:
        typer.echo(json.dumps(asdict(page), indent=2))
    elif as_markdown or open_console().width == WIDE:
        typer.echo(markdown(page), nl=False)
    else:
        open_console().print(Markdown(markdown(page), code_theme="bw", hyperlinks=False))


def _table(costs: "dict[str, Cost]", families: dict[str, str]) -> "Table":
    """The costs, family by family."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("algorithm", no_wrap=True)
    for heading in ("down", "up", "client", "server", "grads"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("sum", no_wrap=True)
    table.add_column("blocks")
    for kind in FAMILIES:
        members = {name: own for name, own in costs.items() if families[name] == kind}
        if members:
            table.add_row(f"[bold]{kind}[/bold]")
        for name, own in members.items():
            table.add_row(*_cells(name, own))
    return table


def _cells(name: str, own: "Cost") -> list[str]:
    """The cells of one algorithm."""
    numbers = (own.down, own.up, own.kept, own.server_state, own.gradients_per_step)
    blocks = ", ".join(block.partition("(")[0] for block in own.slots.values()) or "-"
    return [f" {name}", *map(str, numbers), "sums" if own.plain_sum else "gathers", blocks]
