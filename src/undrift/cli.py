"""The command line."""

import json
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from undrift.algorithm import cost
from undrift.algorithms import ALGORITHMS

app = typer.Typer(
    name="undrift",
    help="Federated learning that stays on course when clients' data differ.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _undrift() -> None:
    """Federated learning that stays on course when clients' data differ."""


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


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")],
    name: Annotated[str | None, typer.Option(help="The app's name; without it the folder's.")] = None,
) -> None:
    """Write a Flower app, with a test deployment around it.

    FOLDER must be new or empty. The README there says how to run the app;
    app/task.py is what to replace by a task of your own.

    Example: undrift new my-app
    """
    name = folder.resolve().name if name is None else name
    try:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
            raise ValueError(f"{name!r} cannot be an app's name: set --name, of letters, digits, '.', '_' and '-'")
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: name a new folder, or move away what is in this one")
        written = _fill(folder, files("undrift") / "templates" / "deployment", name)
    except (OSError, ValueError) as error:
        typer.echo(f"undrift new: {error}", err=True)
        raise typer.Exit(2) from error
    for path in written:
        typer.echo(path)
    typer.echo(f"Next: cd {quote(str(folder))} && python deploy.py up && python deploy.py run; python deploy.py down")


def _fill(folder: Path, template: Traversable, name: str) -> list[Path]:
    """Write what lies in a folder of the template; its files end in .in, so that no tool takes them for ours."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for item in sorted(template.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            written += _fill(folder / item.name, item, name)
        elif item.name.endswith(".in"):
            path, content = folder / item.name.removesuffix(".in"), item.read_bytes()
            if path.name == "pyproject.toml":
                content = content.replace(b'"undrift-deployment"', f'"{name}"'.encode())
            path.write_bytes(content)
            written.append(path)
    return written


if __name__ == "__main__":
    app()
