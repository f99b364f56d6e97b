"""The catalogue of methods: `undrift list` and `undrift show`."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.names import check_spelling, completion, has_plugins, methods
from undrift.compose.stored import FAMILIES, stored_methods
from undrift.util.naming.names import normalize_name, suggest

_LEGEND = """\
down, up: traffic per client and round; client, server: stored state; all in
multiples of the model, <1 is less than one. grads: gradients per local step.
sums: the server needs only sums of uploads; gathers: it keeps every upload."""

_NEXT = "undrift show NAME explains a method; undrift list --costs compares costs."

_FIRST = "fedavg"

Facts = dict[str, dict[str, Any]]


@app.command("list")
def list_algorithms(
    only: Annotated[
        str | None,
        typer.Option("--family", help=f"One of {', '.join(FAMILIES)}.", autocompletion=completion(FAMILIES)),
    ] = None,
    stateless: Annotated[
        bool, typer.Option("--stateless", help="Only methods whose clients keep nothing between rounds.")
    ] = False,
    one_gradient: Annotated[
        bool, typer.Option("--one-gradient", help="Only methods with one gradient per local step, as FedAvg.")
    ] = False,
    personal: Annotated[bool, typer.Option("--personal", help="Only methods with a model for each client.")] = False,
    private: Annotated[
        bool, typer.Option("--private", help="Only methods that can have a private sum, in simulations.")
    ] = False,
    overlapping: Annotated[
        bool, typer.Option("--overlapping", help="Only methods that take a schedule without a barrier.")
    ] = False,
    costs: Annotated[bool, typer.Option("--costs", help="Show traffic, state, gradients and blocks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """List all methods, each in a sentence.

    Methods that plug-ins add are included.

    Example: undrift list --stateless --one-gradient
    """
    with report_errors("list"):
        if only is not None and only not in FAMILIES:
            raise ValueError(f"no family is named {only!r}; {suggest(only, FAMILIES)}")

    found, notes, problems = dict(stored_methods()), list[str](), list[str]()
    if has_plugins() or found.keys() < set(methods()):
        from undrift.algorithms import ALGORITHMS, METHODS
        from undrift.cli.plugins import by_package, survey
        from undrift.compose.cards import facts

        surveyed = survey()
        packages = {plugin.name: plugin.package for plugin in surveyed.working if plugin.group == METHODS.name}
        found |= {name: facts(name) for name in ALGORITHMS if name not in found}  # before `make cards`
        found |= {name: facts(name) | {"package": package} for name, package in packages.items()}
        notes = [f"{package} adds {adds}" for package, adds in by_package(surveyed.working).items()]
        problems = surveyed.problems
    wanted = {
        name: own
        for name, own in found.items()
        if only in (None, own["family"])
        and (own["cost"]["stateless"] or not stateless)
        and (own["cost"]["gradients_per_step"] == 1 or not one_gradient)
        and (own["personal"] or not personal)
        and (own["private"] or not private)
        and (own["overlapping"] or not overlapping)
    }
    if as_json:
        shown = ("title", "family", "personal", "private", "overlapping", "package")
        rows = [own["cost"] | {key: own[key] for key in shown if key in own} for own in wanted.values()]
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print_list(wanted, costs)
        typer.echo("\n".join([_LEGEND if costs else _NEXT, *notes]))
    for problem in problems:
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

    from undrift.cli.console import WIDE, open_console

    stored = {normalize_name(own): facts["page"] for own, facts in stored_methods().items()}
    text = None if as_json else stored.get(normalize_name(name))
    if text is None:
        from undrift.compose.cards import card, markdown

        with report_errors("show"):
            page = card(name)
        if as_json:
            typer.echo(json.dumps(asdict(page), indent=2))
            return
        text = markdown(page)
    if as_markdown or open_console().width == WIDE:
        typer.echo(text, nl=False)
    else:
        open_console().print(Markdown(text, code_theme="bw", hyperlinks=False))


def _print_list(methods: Facts, costs: bool) -> None:
    """Print methods family by family, FedAvg before all others."""
    from rich.markup import escape
    from rich.table import Table

    from undrift.cli.console import open_console

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("algorithm", no_wrap=True)
    for heading in ("down", "up", "client", "server", "grads") if costs else ():
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("sum", "blocks") if costs else ("what it is",):
        table.add_column(heading, no_wrap=heading == "sum")
    cells = _cost_cells if costs else _sentence
    if _FIRST in methods:
        table.add_row(_FIRST, *cells(methods[_FIRST]))
    for kind in FAMILIES:
        members = {name: own for name, own in methods.items() if own["family"] == kind and name != _FIRST}
        if members:
            table.add_row(f"[bold]{kind}[/bold]")
        for name, own in members.items():
            table.add_row(f" {name}", *map(escape, cells(own)))
    open_console().print(table, highlight=False)


def _sentence(own: dict[str, Any]) -> list[str]:
    """What a method is, without the name before the colon."""
    title = str(own["title"])
    name, colon, rest = title.partition(": ")
    return [rest[:1].upper() + rest[1:] if colon and len(name.split()) < 4 else title]


def _cost_cells(own: dict[str, Any]) -> list[str]:
    """The costs of a method and its blocks."""
    cost = own["cost"]
    numbers = (f"{cost['down']:g}", f"{cost['up']:g}", own["kept"], cost["server_state"], cost["gradients_per_step"])
    blocks = ", ".join(block.partition("(")[0] for block in cost["slots"].values()) or "-"
    return [*map(str, numbers), "sums" if cost["plain_sum"] else "gathers", blocks]
