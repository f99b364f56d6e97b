"""Data sets and the machine: `undrift partition` and `undrift doctor`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.names import check_spelling, completion, data_sets, methods
from undrift.cli.options import Device
from undrift.cli.training.run import Partition


@app.command("partition")
def draw_partition(
    data: Annotated[
        str,
        typer.Option(
            help="A data set's name, a path, or package.module:function.", autocompletion=completion(data_sets)
        ),
    ] = "fashion-mnist",
    partition: Partition = None,
    clients: Annotated[
        int | None,
        typer.Option(help="Number of clients; default 100, fewer for small data, or all of a natural partition."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    out: Annotated[Path, typer.Option(help="The PNG or PDF file to write.")] = Path("partition.png"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the description as JSON, with the file's path.")
    ] = False,
) -> None:
    """Partition a data set over clients; draw and describe the result.

    Example: undrift partition --data fashion-mnist --partition dirichlet:0.1
    """
    with report_errors("partition"):
        check_spelling(data=data)
    from undrift.report import write_partition
    from undrift.runs import Config
    from undrift.runs.setup.prepare import prepare

    with report_errors("partition"):
        settings = {"data": data, "clients": clients, "seed": seed}
        settings |= {} if partition is None else {"partition": partition}
        split = prepare(Config.build(settings, "partition")).partition
        assert split is not None  # there is no task of its own
        path = write_partition(split, out, data=data)
        typer.echo(json.dumps({**split.describe(), **({"figure": str(path)} if as_json else {})}, indent=2))
    if not as_json:
        typer.echo(path)


@app.command()
def doctor(
    device: Device = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="With --device: a method to check. Repeatable; default: all.", autocompletion=completion(methods)
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        typer.Option("--deterministic", help="With --device: deterministic kernels; two runs must be bit-identical."),
    ] = False,
    measure: Annotated[
        bool | None,
        typer.Option(
            "--measure/--no-measure",
            help="Measure this machine's constants for undrift plan; with --device: steps, memory and Ray.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="A run or its TOML file: measure one client and show how many workers fit.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --device: the report's path; default undrift-DEVICE (.json and .md).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Check the installation, the data sets and this machine's devices.

    With --device, train every method on it for two rounds, compare with the
    CPU, and write a report that can be attached to an issue. With --config,
    measure the training of one client of a run and show how many workers fit.
    With --measure, measure what the parts of a round cost, for undrift plan.

    Example: undrift doctor --device cuda
    """
    with report_errors("doctor"):
        if device is None or config is not None:
            given = {"--method": method, "--deterministic": deterministic, "--out": out}
            ignored = [option for option, value in given.items() if value]
            if ignored:
                raise ValueError(f"{', '.join(ignored)}: only with --device and without --config; leave it out")
    from undrift.cli.choosing.installed import examine, show_machine

    if measure and config is None and device is None:
        from undrift.cli.training.print_plan import measure_machine

        with report_errors("doctor"):
            measure_machine(as_json)
        return
    if config is not None or device is not None:
        from undrift.cli.choosing.devices import examine_device, examine_run

        with report_errors("doctor"):
            if config is not None:
                examine_run(config, device, as_json)
                return
            failed = examine_device(device or "auto", method, deterministic, measure is not False, out, as_json)
        if failed:
            raise typer.Exit(1)
        return
    with report_errors("doctor"):
        found = examine()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        show_machine(found)
