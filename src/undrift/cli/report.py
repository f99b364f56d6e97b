"""Reports: `undrift report`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, reported
from undrift.experiment import ConfigError


@app.command("report")
def write_report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of undrift compare.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Also write every figure here, as PNG and PDF.")] = None,
) -> None:
    """Explain runs in one HTML file that works offline.

    Tables, learning curves, who has what, what the lens saw, the methods and
    how to make it all again. Runs of one method over seeds are one line.

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
