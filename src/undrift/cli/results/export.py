"""Trained models in use: `undrift export` and `undrift predict`."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from undrift.cli.app import app, report_errors
from undrift.cli.options import KeptRound


@app.command("export")
def export_model(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write, or a file .safetensors, .pt or .onnx; default model.")
    ] = None,
    format: Annotated[
        Literal["folder", "safetensors", "onnx", "torch", "adapter", "merged"] | None,
        typer.Option(help="Default: by the extension of --out, a folder without one."),
    ] = None,
    client: Annotated[int | None, typer.Option(help="The number of a client, for its personal model.")] = None,
    round: KeptRound = None,
) -> None:
    """Write the model of a run for other programs.

    A folder has the weights, preprocess.json, a program with a script that
    predicts in plain PyTorch, and a model card. A file has the weights by
    their names in the plain module, or a graph of ONNX. The formats adapter
    and merged are folders for from_pretrained of peft and transformers.

    Example: undrift export runs/fedavg-fashion-mnist-seed0 --out model
    """
    from undrift.runs import export
    from undrift.runs.reading.best_round import parse_round

    with report_errors("export"):
        path = export(run, out, format=format, client=client, round=parse_round(round))
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    names = f": {', '.join(file.name for file in files)}" if path.is_dir() else ""
    typer.echo(f"{path}  {sum(file.stat().st_size for file in files) / 1e6:.1f} MB{names}")


@app.command("predict")
def predict_new(
    folder: Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run or of an export.")],
    data: Annotated[
        Path, typer.Argument(metavar="FILE", help="A table, an image, a folder of images, or a text file.")
    ],
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; default standard output.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the table to keep beside its predictions; may be repeated.")
    ] = None,
    client: Annotated[int | None, typer.Option(help="The number of a client, for its personal model.")] = None,
    round: KeptRound = None,
) -> None:
    """Predict for new rows, images or texts, prepared as in training.

    The predictions are a CSV: the class and its probability, or the numbers.

    Example: undrift predict runs/mine patients.csv --keep patient --out predictions.csv
    """
    import csv

    from undrift.runs import load_model
    from undrift.runs.reading.best_round import parse_round

    with report_errors("predict"):
        found = load_model(folder, client=client, round=parse_round(round)).predict(data, keep or ())
        rows = [list(found), *zip(*found.values(), strict=True)]
        with nullcontext(sys.stdout) if out is None else out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows
            )
    if out is not None:
        typer.echo(f"{out}  {len(rows) - 1} predictions")
