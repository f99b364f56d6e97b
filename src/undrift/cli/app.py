"""The Typer application; the other modules of this package add their commands to it."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import typer
from typer.core import TyperCommand


class _Formatter(click.HelpFormatter):
    """Help as plain text: Typer 0.20 escapes brackets for rich even where rich does not render the help."""

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace("\\[", "[")) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(TyperCommand):
    context_class = _Context


class _App(typer.Typer):
    def command(self, name: str | None = None, **more: Any) -> Callable[..., Any]:
        return super().command(name, **{"cls": _Command, **more})


app = _App(
    name="undrift",
    help="Federated learning that stays on course when clients' data differ.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.callback()
def _undrift() -> None:
    """Federated learning that stays on course when clients' data differ."""


@contextmanager
def reported(command: str, *kinds: type[Exception]) -> Iterator[None]:
    """Print a user's error in one line and exit with code 2; any other error is a bug and shows its traceback."""
    theirs: tuple[type[Exception], ...] = (OSError, ValueError, ImportError, *kinds)
    try:
        yield
    except theirs as error:
        typer.echo(f"undrift {command}: {error}", err=True)
        raise typer.Exit(2) from error


@contextmanager
def stoppable(command: str) -> Iterator[None]:
    """On an interrupt, print one line that says how to resume, and exit with code 130."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; resume with: {command}", err=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
