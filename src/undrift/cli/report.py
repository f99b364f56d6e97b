"""Reports and single figures: `undrift report` and `undrift figure`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, reported
from undrift.experiment import ConfigError
from undrift.experiment.checkpoint import CheckpointError
from undrift.experiment.folder import RunError


@app.command("report")
def write_report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of undrift compare.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Also write every figure here, as PNG and PDF.")] = None,
) -> None:
    """Explain runs in one HTML file that works offline.

    Tables, learning curves, partitions, lens measurements, the methods and how
    to reproduce everything. Runs of one method over seeds become one line.

    Example: undrift report runs/compare-fashion --out report.html
    """
    from undrift.report import collect, sections, write_page, write_prints

    with reported("report", ConfigError):
        material = collect(runs)
        parts = sections(material)
        drawn = [figure for part in parts for figure in part.figures]
        written = write_prints(drawn, figures) if figures is not None else []
        path = write_page(material, out, parts)
    for note in material.notes:
        typer.echo(f"undrift report: {note}", err=True)
    if figures is not None:
        typer.echo(f"{figures}  {len(written)} files")
    typer.echo(f"{path}  {path.stat().st_size / 1e6:.1f} MB, {len(drawn)} figures")


@app.command("figure")
def draw_figure(
    kind: Annotated[str, typer.Argument(help="bands, layers, cka, pca, tsne, landscape, drift, ...; list shows all.")],
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN...", help="Folders of runs or of undrift compare.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder to write PNG and PDF files to.")] = Path("figures"),
    clients: Annotated[int, typer.Option(help="How many clients to measure, for runs without measurements.")] = 10,
    seed: Annotated[int, typer.Option(help="Fixes the choice of clients and examples.")] = 0,
) -> None:
    """Draw one kind of figure from runs, measuring what is missing.

    Example: undrift figure layers runs/fedavg runs/specgrad --out figures
    """
    from undrift.report import KINDS, draw_kind

    if kind == "list":
        for name, known in KINDS.items():
            typer.echo(f"{name:10} {known.shows}")
        return
    with reported("figure", ConfigError, RunError, CheckpointError):
        for path in draw_kind(kind, runs or [], out, clients=clients, seed=seed):
            typer.echo(path)
