"""Data sets and the machine: `undrift partition` and `undrift doctor`."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from undrift.cli.app import app, reported
from undrift.data import available
from undrift.experiment import Config, ConfigError

_EXTRAS = {
    "ray": "ray",
    "flower": "flwr",
    "data": "datasets",
    "vision": "timm",
    "plots": "matplotlib",
    "report": "plotly",
    "analysis": "scikit-learn",
    "tensorboard": "tensorboard",
}


@app.command("partition")
def draw_partition(
    data: Annotated[str, typer.Option(help="A data set's name.")] = "fashion-mnist",
    partition: Annotated[str, typer.Option(help="iid, dirichlet:0.1, classes:2, natural, ...")] = "dirichlet:0.1",
    clients: Annotated[
        int | None, typer.Option(help="How many clients; default 100, or all of a natural partition.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the draw.")] = 0,
    out: Annotated[Path, typer.Option(help="The PNG or PDF file to write.")] = Path("partition.png"),
) -> None:
    """Split a data set over clients, draw the partition and describe it.

    Example: undrift partition --data fashion-mnist --partition dirichlet:0.1
    """
    from undrift.experiment.setup import prepare
    from undrift.report import write_partition

    with reported("partition", ConfigError):
        settings = {"data": data, "partition": partition, "clients": clients, "seed": seed}
        split = prepare(Config.build(settings, "partition")).partition
        typer.echo(json.dumps(split.describe(), indent=2))
        typer.echo(write_partition(split, out, data=data))


@app.command()
def doctor() -> None:
    """Show what is installed, which data sets are available and what this machine can run.

    Example: undrift doctor
    """
    console = Console()
    console.print(f"undrift {version('undrift')}, Python {platform.python_version()}, torch {torch.__version__}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    console.print(f"{os.cpu_count()} processors, {_memory():.0f} GB of memory, {gpus} GPUs")
    engines = ["local"] + [name for name, package in (("ray", "ray"), ("flower", "flwr")) if _version(package)]
    console.print(
        f"engines: {', '.join(engines)}" + ("" if len(engines) == 3 else "  (pip install 'undrift\\[ray,flower]')")
    )
    console.print(_extras())
    console.print(_data())


def _extras() -> Table:
    """The optional extras, and how to install the missing ones."""
    table = Table("extra", "library", "installed", box=SIMPLE_HEAD, pad_edge=False)
    for extra, package in _EXTRAS.items():
        table.add_row(extra, package, _version(package) or f"no: pip install 'undrift\\[{extra}]'")
    return table


def _data() -> Table:
    """The data sets and where they are, or how to get them."""
    table = Table("data", "found", "where, or how to get it", box=SIMPLE_HEAD, pad_edge=False)
    for item in available():
        table.add_row(item.name, "yes" if item.available else "no", item.where if item.available else item.how_to_get)
    return table


def _version(package: str) -> str | None:
    """The installed version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _memory() -> float:
    """Gigabytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
