"""Measurements of the lens as tables and sentences."""

from typing import Any

from rich.markup import escape

from undrift.cli.console import open_console
from undrift.cli.tables import show_rows

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
    _print_text(f"after {measurements['round']} rounds, {len(measurements['clients'])} clients")
    if "spectrum" in measurements:
        _spectrum(measurements["spectrum"])
    if "divergence" in measurements:
        _divergence(measurements["divergence"])
    if "heterogeneity" in measurements:
        _heterogeneity(measurements["heterogeneity"])
    if "alignment" in measurements:
        _print_text(measurements["alignment"]["reading"])
    if "curvature" in measurements:
        _curvature(measurements["curvature"])
    if "surface" in measurements:
        _surface(measurements["surface"])
    if "staleness" in measurements:
        _print_text(measurements["staleness"]["reading"])
    for part, reason in measurements["skipped"].items():
        _print_text(f"{part} was skipped: {reason}")


def _spectrum(spectrum: dict[str, Any]) -> None:
    """Print the agreement in each band, with a column for each kind of vector."""
    shown = [source for source in _SOURCES if source in spectrum]
    bands = range(spectrum["bands"])
    rows = [[str(band), *(_number(spectrum[source]["agreement"][band]) for source in shown)] for band in bands]
    show_rows("", ["agreement in band", *shown], rows, 1)
    for source in shown:
        _print_text(f"{source}: {spectrum[source]['reading']}")


def _divergence(divergence: dict[str, Any]) -> None:
    """Print the layers in which clients diverge most."""
    shown = [key for key in ("relative", "update", "gradient") if key in divergence]
    rows = zip(*(divergence[key] for key in ("layers", *shown)), strict=True)
    # A layer whose mean is zero has no number (its clients cancel out completely), so it comes first.
    first = sorted(rows, key=lambda row: (row[1] is not None, -(row[1] or 0)))[:_ROWS]
    show_rows("", ["layer", *shown], [[name, *map(_number, numbers)] for name, *numbers in first], 1)
    if "reading" in divergence:  # of updates, which may have been skipped
        _print_text(divergence["reading"])


def _heterogeneity(heterogeneity: dict[str, Any]) -> None:
    """Print length and variance of gradients, of what a filter keeps of them and of what it removes."""
    shown = [name for name in ("whole", "kept", "removed") if name in heterogeneity]
    rows = [[name, *(_number(heterogeneity[part][key]) for part in shown)] for key, name in _QUANTITIES.items()]
    show_rows("", ["of gradients", *shown], rows, 1)
    _print_text(heterogeneity["reading"])


def _curvature(curvature: dict[str, Any]) -> None:
    """Print how sharp the minimum is, as a table with one row."""
    headings = ["examples", "lambda 1", "lambda 2", "trace", "sharpness", "gradient norm"]
    trace = f"{_number(curvature['trace'])} ± {_number(curvature['trace_error'])}"
    rest = (_number(curvature[name]) for name in ("sharpness", "gradient_norm"))
    show_rows("", headings, [[str(curvature["examples"]), *map(_number, curvature["top"]), trace, *rest]], 1)


def _surface(surface: dict[str, Any]) -> None:
    """Print the loss at the centre of the surface and its range."""
    finite = [x for row in surface["loss"] for x in row if x is not None]
    middle = surface["loss"][len(surface["a"]) // 2][len(surface["b"]) // 2]
    if finite and middle is not None:
        plane = f"{surface['directions']} up to {surface['a'][-1]:g} away"
        _print_text(f"The loss is {middle:.3g}; over {plane} it ranges from {min(finite):.3g} to {max(finite):.3g}.")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _print_text(text: str) -> None:
    open_console().print(escape(text), highlight=False)
