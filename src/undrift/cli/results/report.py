"""Reports and single figures: `undrift report` and `undrift figure`."""

from pathlib import Path
from typing import Annotated

import typer

from undrift.cli.app import app, report_errors


@app.command("report")
def write_report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or of undrift compare.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    figures: Annotated[Path | None, typer.Option(help="Also write every figure here, as PNG and PDF.")] = None,
    index: Annotated[
        bool | None,
        typer.Option(
            "--index/--no-index", help="A table of all runs; default for a folder of many.", show_default=False
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="With the index, a report in the folder of each run or comparison.")
    ] = False,
) -> None:
    """Write a report on runs: one HTML file that works offline.

    It has tables, learning curves, partitions, lens measurements, the methods
    and how to reproduce the runs. Seeds of one method are drawn as one line.
    Of a folder with many runs it is an index: a table to filter and sort.

    Example: undrift report runs/compare-fashion --out report.html

    Example: undrift report runs --each
    """
    from undrift.report import collect, is_collection, sections, write_each, write_index, write_page, write_prints

    with report_errors("report"):
        if out.is_dir():
            raise ValueError(f"--out {out}: a folder; name the HTML file to write, such as {out / 'report.html'}")
        if index or each or (index is None and figures is None and len(runs) == 1 and is_collection(runs[0])):
            if figures is not None:
                raise ValueError("--figures: an index has none; name the runs, for example undrift report runs/*")
            notes = write_each(runs) if each else []
            rows = write_index(runs, out)
            for note in notes:
                typer.echo(f"undrift report: {note}", err=True)
            typer.echo(f"{out}  index of {len(rows)} runs")
            return
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
    round: Annotated[str | None, typer.Option(help="Draw a kept round, or best; default the last.")] = None,
    together: Annotated[bool, typer.Option("--together", help="Runs of different settings in one frame.")] = False,
    over: Annotated[
        str | None, typer.Option(help="For a sweep: a setting (local.epochs), an argument (rho), or method.")
    ] = None,
    by: Annotated[str, typer.Option(help="For a sweep: last, best, or another number, such as seconds_per_round.")] = (
        "last"
    ),
    minus: Annotated[str, typer.Option(help="For a sweep: show the difference from the line with this label.")] = "",
) -> None:
    """Draw one kind of figure from runs, measuring what is missing.

    Example: undrift figure layers runs/fedavg runs/specgrad --out figures

    Example: undrift figure sweep runs/compare-rho --over rho --by best
    """
    from undrift.report import KINDS, draw_kind, draw_sweep
    from undrift.runs.reading.best_round import parse_round

    if kind == "list":
        for name, known in KINDS.items():
            typer.echo(f"{name:10} {known.shows}")
        return
    with report_errors("figure"):
        at, given = parse_round(round), runs or []
        for option, value in {"--over": over, "--by": by if by != "last" else "", "--minus": minus}.items():
            if value and kind != "sweep":
                raise ValueError(f"{option} {value}: only for undrift figure sweep; leave it out or draw a sweep")
        if over and at is None:
            paths = draw_sweep(given, out, over=over, by=by, minus=minus, together=together)
        else:
            paths = draw_kind(kind, given, out, clients=clients, seed=seed, round=at, together=together)
        for path in paths:
            typer.echo(path)
