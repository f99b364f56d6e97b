"""The tour of ten seconds: `undrift demo`."""

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from undrift.cli.app import app, print_failures, report_errors, stop_cleanly
from undrift.util.shell import as_argument

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from undrift.studies import Comparison

COLOURS = ("yellow", "cyan")
"""Of the two curves."""

WIDEST, LINES = 64, 13


@app.command("demo")
def show_demo(
    out: Annotated[Path, typer.Option(help="Folder of the two runs and the report; an existing one is resumed.")] = (
        Path("runs/demo")
    ),
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds each method is trained.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Fixes everything random.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the curves and the paths as an object.")] = False,
) -> None:
    """Train two methods on digits and draw their curves: ten seconds.

    Twenty clients have two of the ten digits each. FedAvg averages what they
    learn; FedDyn also corrects their drift. The data are in the package.

    Example: undrift demo
    """
    from undrift.studies.demo import accuracy_curves, demo_comparison

    with report_errors("demo"):
        comparison = demo_comparison(rounds, seed)
        if not as_json:
            typer.echo("20 clients, two of the ten digits each; five clients train in a round.")
        with stop_cleanly("the same command"):
            table = _train(comparison, out, as_json)
    print_failures("demo", table["failures"])
    curves = accuracy_curves(comparison, out)
    report = _report(out)
    if as_json:
        found = {label: [accuracy for _, accuracy in points] for label, points in curves.items()}
        about = {"folder": str(out), "report": None if report is None else str(report), "seed": seed, "rounds": rounds}
        typer.echo(json.dumps({**about, "accuracy": found}, indent=2))
        return
    _print_next(comparison, curves, out, report)


def _train(comparison: "Comparison", out: Path, as_json: bool) -> dict[str, Any]:
    """The table of the comparison, with its curves growing on a terminal and lines of progress elsewhere."""
    from undrift.cli.console import open_console
    from undrift.cli.progress import RunProgress
    from undrift.studies import compare
    from undrift.studies.demo import accuracy_curves

    console = open_console()
    rounds = sum(trial.config.rounds for trial in comparison.trials())
    if console.is_terminal and not as_json:
        from rich.live import Live

        with Live(console=console, auto_refresh=False) as live:

            def watch(*_: object) -> None:
                if curves := accuracy_curves(comparison, out):
                    live.update(chart(curves, console), refresh=True)

            return compare(comparison, out, watch)
    with RunProgress(rounds, out) as progress:
        table = compare(comparison, out, progress.of_trial)
    if not as_json and (curves := accuracy_curves(comparison, out)):
        console.print(chart(curves, console))
    return table


def chart(curves: dict[str, list[tuple[float, float]]], console: "Console") -> "RenderableType":
    """The learning curves with a legend: lines of dots in colours on a terminal, letters elsewhere.

    Args:
        curves: label -> points (round, accuracy).
        console: where it will be printed.
    """
    from rich.text import Text

    from undrift.util.display.curves import MARKS, draw_curves

    plain = not (console.is_terminal and console.encoding.startswith("utf"))
    width = max(10, min(WIDEST, console.width - 16))
    drawn = Text()
    for line in draw_curves(curves, width, LINES, plain=plain, x_label="round"):
        for character, number in line:
            drawn.append(character, None if number is None else COLOURS[number % len(COLOURS)])
        drawn.append("\n")
    for number, (label, points) in enumerate(curves.items()):
        mark = MARKS[number] if plain else "━━"
        drawn.append(f"      {mark} ", COLOURS[number % len(COLOURS)])
        drawn.append(f"{label:8} accuracy {points[-1][1]:6.1%} after round {points[-1][0]:.0f}\n")
    return drawn


def _report(out: Path) -> Path | None:
    """The report on both runs; None, and a line with the reason, if it cannot be written."""
    from undrift.report import ReportError, collect, write_page

    try:
        return write_page(collect([out]), out / "report.html")
    except (ReportError, ImportError) as error:
        typer.echo(f"undrift demo: no report was written: {error}", err=True)
        return None


def _print_next(comparison: "Comparison", curves: "dict[str, Any]", out: Path, report: Path | None) -> None:
    """Print where everything is and what to try next."""
    trials = comparison.trials()
    best = max(trials, key=lambda trial: float(curves[trial.label][-1][1]))
    if report is not None:
        typer.echo(f"Open the report in a browser: {report}")
    where = f"--data digits --partition {quote(best.config.partition)}"
    commands = (
        (f"undrift show {best.label}", "its equations, limits and paper"),
        (f'undrift run "{best.label} + sam(rho=0.05)" {where}', "a composition of your own"),
        (f"undrift lens {as_argument(out / trials[0].name)}", "where the clients diverge"),
    )
    typer.echo("Try next:")
    for command, why in commands:
        typer.echo(f"  {command}  # {why}")
