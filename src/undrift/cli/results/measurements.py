"""Measurements of the lens as tables and sentences."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from undrift.cli.console import open_console

_ROWS = 8  # of the layers shown
_QUANTITIES = {
    "gradient": "squared norm of grad F",
    "between": "variance between clients",
    "within": "variance within clients",
    "dissimilarity": "dissimilarity",
}
_SOURCES = ("gradient", "update", "perturbation", "filtered")


def show_measurements(measurements: dict[str, Any]) -> None:
    """Print everything but the pictures, as tables and sentences."""
    console = open_console()
    console.print(f"after {measurements['round']} rounds, {len(measurements['clients'])} clients", highlight=False)
    if "spectrum" in measurements:
        _spectrum(console, measurements["spectrum"])
    if "divergence" in measurements:
        _divergence(console, measurements["divergence"])
    if "heterogeneity" in measurements:
        _heterogeneity(console, measurements["heterogeneity"])
    if "alignment" in measurements:
        _print_text(console, measurements["alignment"]["reading"])
    if "curvature" in measurements:
        _curvature(console, measurements["curvature"])
    if "surface" in measurements:
        _surface(console, measurements["surface"])
    for part, reason in measurements["skipped"].items():
        _print_text(console, f"{part} was skipped: {reason}")


def _spectrum(console: Console, spectrum: dict[str, Any]) -> None:
    """Print the agreement in each band, with a column for each kind of vector."""
    shown = [source for source in _SOURCES if source in spectrum]
    table = _table("agreement in band", *shown)
    for band in range(spectrum["bands"]):
        table.add_row(str(band), *(_number(spectrum[source]["agreement"][band]) for source in shown))
    console.print(table)
    for source in shown:
        _print_text(console, f"{source}: {spectrum[source]['reading']}")


def _divergence(console: Console, divergence: dict[str, Any]) -> None:
    """Print the layers in which clients diverge most."""
    shown = [key for key in ("relative", "update", "gradient") if key in divergence]
    table = _table("layer", *shown)
    rows = zip(*(divergence[key] for key in ("layers", *shown)), strict=True)
    # A layer whose mean is zero has no number (its clients cancel out completely), so it comes first.
    for name, *numbers in sorted(rows, key=lambda row: (row[1] is not None, -(row[1] or 0)))[:_ROWS]:
        table.add_row(escape(name), *map(_number, numbers))
    console.print(table)
    if "reading" in divergence:  # of updates, which may have been skipped
        _print_text(console, divergence["reading"])


def _heterogeneity(console: Console, heterogeneity: dict[str, Any]) -> None:
    """Print length and variance of gradients, of what a filter keeps of them and of what it removes."""
    shown = [name for name in ("whole", "kept", "removed") if name in heterogeneity]
    table = _table("of gradients", *shown)
    for key, name in _QUANTITIES.items():
        table.add_row(name, *(_number(heterogeneity[part][key]) for part in shown))
    console.print(table)
    _print_text(console, heterogeneity["reading"])


def _curvature(console: Console, curvature: dict[str, Any]) -> None:
    """Print how sharp the minimum is, as a table with one row."""
    table = _table("examples", "lambda 1", "lambda 2", "trace", "sharpness", "gradient norm")
    trace = f"{_number(curvature['trace'])} ± {_number(curvature['trace_error'])}"
    rest = (_number(curvature[name]) for name in ("sharpness", "gradient_norm"))
    table.add_row(str(curvature["examples"]), *map(_number, curvature["top"]), trace, *rest)
    console.print(table)


def _surface(console: Console, surface: dict[str, Any]) -> None:
    """Print the loss at the centre of the surface and its range."""
    finite = [x for row in surface["loss"] for x in row if x is not None]
    middle = surface["loss"][len(surface["a"]) // 2][len(surface["b"]) // 2]
    if finite and middle is not None:
        plane = f"{surface['directions']} up to {surface['a'][-1]:g} away"
        _print_text(
            console, f"The loss is {middle:.3g}; over {plane} it ranges from {min(finite):.3g} to {max(finite):.3g}."
        )


def _table(first: str, *others: str) -> Table:
    """An empty table: a column of names, then columns of numbers."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _print_text(console: Console, text: str) -> None:
    console.print(escape(text), highlight=False)
