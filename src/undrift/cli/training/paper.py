"""The papers' tables and figures: `undrift paper`."""

import re
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.markup import escape

from undrift.cli.app import app, print_failures, report_errors, stop_cleanly
from undrift.cli.options import TrainingOptions
from undrift.cli.training.compare import AsJson
from undrift.util.storage.jsonable import to_json

if TYPE_CHECKING:
    from undrift.runs.settings.config import Config

_SCALES = ("paper", "small")


@app.command("paper")
def run_paper(
    name: Annotated[str, typer.Argument(help="fedfft, specgrad, fedscam, fedwmsam or fedfsa; list shows all.")],
    item: Annotated[
        str | None, typer.Argument(help="table1, figure6, ...; without it, the paper's items are listed.")
    ] = None,
    scale: Annotated[str, typer.Option(help="paper: as published; small: reduced to run on two cores.")] = "paper",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train every run for one round on synthetic data and delete the results.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; default runs/papers/...")] = None,
    *,
    place: TrainingOptions,
    as_json: AsJson = False,
) -> None:
    """Run the experiment behind a table or figure of a paper.

    It prints our numbers beside the published ones, with the difference and its
    confidence interval. The same command resumes after an interruption.

    Example: undrift paper fedfft table1 --scale small
    """
    if name == "list" and not as_json:
        _list_papers()
        return
    from undrift.cli.progress import RunProgress
    from undrift.cli.tables import show_rows
    from undrift.papers import folder_of, paper, papers, perform
    from undrift.papers.runner import Scale, comparison

    with report_errors("paper"):
        if scale not in _SCALES:
            raise ValueError(f"--scale must be {' or '.join(_SCALES)}, got {scale!r}")
        chosen_scale = cast(Scale, scale)
        if dry_run:
            given = {"out": out, **vars(place), "json": as_json or None}
            _check_dry(item, [f"--{option}" for option, value in given.items() if value is not None])
        if name == "list" or item is None:
            _list_costs(papers() if name == "list" else (name,), chosen_scale, as_json)
            return
        chosen = paper(name)
        wanted = chosen.item(item)
        built = comparison(chosen, wanted, chosen_scale)
        if dry_run:
            _run_dry([trial.config for trial in built.trials() if trial.config.seed == built.seeds[0]])
            return
        folder = out or folder_of(chosen, wanted, chosen_scale)
        engine = place.settings()
        configs = [trial.config for trial in built.trials(engine)]
        place.check_workers(*(config.engine.name for config in configs))
        rounds = sum(config.rounds for config in configs)
        with stop_cleanly("the same command"), RunProgress(rounds) as progress:
            lines, figures, table = perform(chosen, wanted, folder, chosen_scale, progress.of_trial, engine)
    if as_json:
        typer.echo(to_json([asdict(line) for line in lines], 1))
    else:
        from undrift.papers import result_cells

        title = f"{chosen.title}, {wanted.number}: {wanted.about} ({scale} scale)"
        headings, rows = result_cells(lines, table["baseline"])
        show_rows(title, headings, rows, list(headings).index("ours"))
        if wanted.differs:
            typer.echo(f"differs from the paper: {wanted.differs}")
        for path in [*figures, folder / f"{chosen.name}-{chosen.key(wanted)}.md"]:
            typer.echo(path)
    print_failures("paper", table["failures"])


def _check_dry(item: str | None, ignored: list[str]) -> None:
    """Raise if a dry run has no item, or options that it does not use."""
    if item is None:
        raise ValueError("--dry-run: name a table or figure, for example undrift paper fedfft table1 --dry-run")
    if ignored:
        raise ValueError(f"{', '.join(ignored)}: a dry run trains in this process and keeps nothing; leave it out")


def _list_papers() -> None:
    """Print every item in a line that begins with the arguments of its command; torch is not imported."""
    from rich.table import Table

    from undrift.cli.console import open_console

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for paper in sorted((Path(__file__).parents[2] / "papers").glob("*/paper.toml")):
        table.add_row("", f"[bold]{escape(tomllib.loads(paper.read_text(encoding='utf-8'))['title'])}[/bold]")
        items = {path.stem: path for path in paper.parent.glob("*.toml") if path.stem not in ("paper", "published")}
        for key in sorted(items, key=lambda key: (key[:5] != "table", int(re.sub(r"\D", "", key) or 0), key)):
            item = tomllib.loads(items[key].read_text(encoding="utf-8"))
            about = item["about"] + (f" (runs of {item['runs']})" if item.get("runs") else "")
            table.add_row(f"{paper.parent.name} {key}", escape(about))
    open_console().print(table, highlight=False)
    typer.echo("undrift paper NAME ITEM runs one; undrift paper NAME has the costs of a paper.")


def _list_costs(names: tuple[str, ...], scale: Literal["paper", "small"], as_json: bool) -> None:
    """Print the items of papers with their costs."""
    from undrift.cli.tables import show_rows
    from undrift.data import available
    from undrift.papers import CostEstimate, Steps, comparison, estimate, paper

    here = {item.name for item in available() if item.available}
    steps, records, rows = Steps(), [], []
    for name in names:
        chosen, known = paper(name), dict[str, CostEstimate]()
        for key, item in chosen.items.items():
            runs = item.runs or key
            costs = known[runs] if runs in known else estimate(comparison(chosen, item, scale), steps)
            known[runs] = costs
            missing = [data for data in costs.data if data not in here]
            records.append({"paper": name, "item": key, "about": item.about, **asdict(costs), "missing": missing})
            data = ", ".join(data + (" (missing)" if data in missing else "") for data in costs.data)
            same = f" (runs of {item.runs})" if item.runs else ""
            hours = "-" if costs.hours is None or costs.hours != costs.hours else f"{costs.hours:,.1f}"
            rows.append([name, key, item.about + same, str(costs.runs), f"{costs.gradients:.1e}", hours, data])
    if as_json:
        typer.echo(to_json(records, 1))
        return
    show_rows(
        f"Experiments of the papers, {scale} scale",
        ["paper", "item", "what", "runs", "gradients", "hours", "data"],
        rows,
    )
    typer.echo("hours: local training on one core of this machine, from a measured step; run: undrift paper NAME ITEM")


def _run_dry(configs: "list[Config]") -> None:
    """Dry runs, with a line for each."""
    from undrift.papers import rehearse

    def notify(config: "Config", new: bool) -> None:
        if new:
            typer.echo(f"{config.method} {config.data} {config.partition} {config.model or 'default model'}")

    made = rehearse(configs, notify)
    typer.echo(f"dry run passed: {len(configs)} runs, {made} of them different, one round each on stand-in data")
