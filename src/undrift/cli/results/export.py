"""Models for other programs: `undrift export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from undrift.cli.app import app, report_errors


@app.command("export")
def export_model(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default model.safetensors, .pt or .onnx.")
    ] = None,
    format: Annotated[
        Literal["safetensors", "onnx", "torch"] | None,
        typer.Option(help="Default: by the extension of --out, else safetensors."),
    ] = None,
    client: Annotated[int | None, typer.Option(help="The number of a client, for its personal model.")] = None,
    round: Annotated[
        str | None, typer.Option(help="A round whose checkpoint was kept, or best; default the last.")
    ] = None,
) -> None:
    """Write the model of a run to a file for other programs.

    The tensors have the names of the plain module, for load_state_dict.

    Example: undrift export runs/fedavg-fashion-mnist-seed0 --out model.onnx
    """
    from undrift.runs import export
    from undrift.runs.reading.best_round import parse_round

    with report_errors("export"):
        path = export(run, out, format=format, client=client, round=parse_round(round))
    typer.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
