"""Data sets and the machine: `undrift partition` and `undrift doctor`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, reported
from undrift.cli.names import PARTITIONS, check_spelling, completing, data_sets


@app.command("partition")
def draw_partition(
    data: Annotated[
        str,
        typer.Option(
            help="A data set's name, a path, or package.module:function.", autocompletion=completing(data_sets)
        ),
    ] = "fashion-mnist",
    partition: Annotated[
        str,
        typer.Option(
            help="iid, dirichlet:0.1, column:NAME, file:clients.json, package.module:function, ...",
            autocompletion=completing(PARTITIONS),
        ),
    ] = "dirichlet:0.1",
    clients: Annotated[
        int | None,
        typer.Option(help="How many clients; default 100, fewer for small data, or all of a natural partition."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the draw.")] = 0,
    out: Annotated[Path, typer.Option(help="The PNG or PDF file to write.")] = Path("partition.png"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one object, with the file's path.")] = False,
) -> None:
    """Split a data set over clients, draw the partition and describe it.

    Example: undrift partition --data fashion-mnist --partition dirichlet:0.1
    """
    with reported("partition"):
        check_spelling(data=data)
    from undrift.experiment import Config
    from undrift.experiment.setup import prepare
    from undrift.report import write_partition

    with reported("partition"):
        settings = {"data": data, "partition": partition, "clients": clients, "seed": seed}
        split = prepare(Config.build(settings, "partition")).partition
        assert split is not None  # there is no task of its own
        path = write_partition(split, out, data=data)
        typer.echo(json.dumps({**split.describe(), **({"figure": str(path)} if as_json else {})}, indent=2))
    if not as_json:
        typer.echo(path)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print an object instead of tables.")] = False,
) -> None:
    """Show what is installed, which data sets are available and what this machine can run.

    Example: undrift doctor
    """
    from undrift.cli.machine import examine, show_machine

    found = examine()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        show_machine(found)
