"""What a round costs before it is run: `undrift plan`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.names import ENGINES, check_spelling, completion, methods


@app.command("plan")
def plan_round(
    clients: Annotated[float | None, typer.Option(help="Number of clients; default 100.")] = None,
    cohort: Annotated[float | None, typer.Option(help="Clients per round; default 10.")] = None,
    parameters: Annotated[float | None, typer.Option(help="Parameters of the model; default 1e6.")] = None,
    workers: Annotated[float | None, typer.Option(help="Number of workers; default 1.")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="A name from undrift list or a composition.", autocompletion=completion(methods)),
    ] = None,
    examples: Annotated[float | None, typer.Option(help="Examples per client; default 60.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over them in a round; default 1.")] = None,
    batch_size: Annotated[float | None, typer.Option(help="Examples per local step; default 50.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="local, ray or flower; default ray with several workers, else local.",
            autocompletion=completion(ENGINES),
        ),
    ] = None,
    fan_in: Annotated[
        float | None,
        typer.Option(help="Replies merged into one on their way, a tree of sums; default: all go to the server."),
    ] = None,
    network: Annotated[
        float | None, typer.Option(help="Bits per second between server and workers (1e9); default: not counted.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="Bytes of memory of a machine (64e9); default this one's.")
    ] = None,
    disk: Annotated[float | None, typer.Option(help="Free bytes on the disk (1e12); default this one's.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="A privacy budget: print the noise that a private sum needs for it.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Rounds that spend the budget.")] = 100,
    delta: Annotated[float | None, typer.Option(help="What epsilon does not cover; default clients^-1.1.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="A run or its TOML file: take its sizes and measure the training of one client."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Predict the time, memory, traffic and disk space of a round.

    It also shows which resource runs out first. The prediction uses constants
    of this machine that undrift doctor --measure stores; without them, those of
    another machine.

    Example: undrift plan --clients 1e6 --cohort 1e4 --workers 1000
    """
    with report_errors("plan"):
        if method is not None:
            check_spelling(method)
        if engine is not None and engine not in ENGINES:
            raise ValueError(f"engine must be local, ray or flower, got {engine!r}")
    from undrift.cli.training.print_plan import show_plan

    with report_errors("plan"):
        sizes = {
            "clients": clients,
            "cohort": cohort,
            "parameters": parameters,
            "workers": workers,
            "examples": examples,
            "epochs": epochs,
            "batch": batch_size,
            "engine": engine,
            "fan_in": fan_in,
            "network": network,
        }
        show_plan(sizes, method, config, memory, disk, as_json, None if epsilon is None else (epsilon, rounds, delta))
