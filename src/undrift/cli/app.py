"""The Typer application; the other modules of this package add their commands to it.

A command's module imports nothing slow at its top: help, completion and refused arguments do without torch.
"""

import errno
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from traceback import walk_tb
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from undrift.cli.options import expand_options
from undrift.util.naming.names import suggest
from undrift.util.storage.files import StorageError
from undrift.util.version import __version__

GROUPS = {
    "Start": ("demo", "list", "show", "partition", "advise"),
    "Run": ("run", "resume", "status", "withdraw", "unlearn", "backup", "restore"),
    "Compare": ("compare", "tune", "paper"),
    "Look": ("report", "figure", "lens"),
    "Deploy": ("export", "predict", "new"),
    "Check": ("doctor", "plan", "verify", "replay", "audit"),
}
"""The commands as `undrift --help` shows them."""


class _Formatter(click.HelpFormatter):
    """Help as plain text: Typer 0.20 escapes brackets for rich even where rich does not render the help."""

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(name, text.replace("\\[", "[")) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class _Command(TyperCommand):
    context_class = _Context


class _Group(TyperGroup):
    """The commands; a refused argument is answered in one line."""

    context_class = _Context

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(f"no command is named {args[0]!r}; {suggest(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in groups, each with its first sentence, which is never cut."""
        known = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        rest = tuple(name for name in known if not any(name in names for names in GROUPS.values()))
        for title, names in {**GROUPS, "More": rest}.items():
            rows = [(name, (known[name].help or "").partition("\n\n")[0]) for name in names if name in known]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(
                        [(name.ljust(max(map(len, known))), " ".join(text.split())) for name, text in rows]
                    )

    def main(self, *args: Any, **more: Any) -> Any:
        if not more.get("standalone_mode", True):
            return super().main(*args, **more)
        _replace_signs()
        try:
            code = super().main(*args, **{**more, "standalone_mode": False}) or 0
            sys.stdout.flush()
            sys.exit(code)
        except click.ClickException as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()
            else:
                typer.echo(_usage_line(error), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            typer.echo("aborted", err=True)
            sys.exit(1)
        except OSError as error:
            if not _is_output_error(error):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes what is left at its end
            if error.errno == errno.EPIPE:  # its reader has left, as head does
                sys.exit(1)
            typer.echo(f"undrift: {StorageError(error.errno, error.strerror, 'standard output')}", err=True)
            sys.exit(2)


def _replace_signs() -> None:
    """Print a question mark for a sign that the encoding of standard output does not have, such as "±" in ASCII."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")


def _is_output_error(error: OSError) -> bool:
    """Whether an error was raised by printing."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return error.filename is None and (package in ("click", "rich", "typer") or frame.f_globals is globals())


def _usage_line(error: click.ClickException) -> str:
    """What is wrong with the arguments, and where to read what works, in one line."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "undrift"
    text = error.format_message().rstrip(".").replace("\n", " ")
    if isinstance(error, click.NoSuchOption):
        options = context.command.get_params(context) if context is not None else []
        known = [name for option in options for name in option.opts if name.startswith("--")]
        text = f"no option is named {error.option_name}; {suggest(error.option_name, known)}"
        if {"--data", "--set"} <= {*known} and "did you mean" not in text:
            text += f"; {_where_it_is_written(error.option_name.lstrip('-'))}"
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        text = f"{error.param.opts[0]}: {error.message.rstrip('.')}"
    return f"{command}: {text} (see {command} --help)"


def _where_it_is_written(name: str) -> str:
    """How a setting without an option of its own is given, or an argument of data."""
    from undrift.cli.names import SETTINGS

    if near := get_close_matches(name.replace("-", "_"), SETTINGS, 1, 0.8):
        return f"{near[0]} is a setting: --set {near[0]}=..."
    return f'arguments of data are written with them, --data "FILE({name}=...)", others with --set {name}='


class _App(typer.Typer):
    def command(self, name: str | None = None, **more: Any) -> Callable[..., Any]:
        add = super().command(name, **{"cls": _Command, **more})
        return lambda function: add(expand_options(function))


app = _App(
    name="undrift",
    cls=_Group,
    help="Federated learning that stays on course when clients' data differ.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,  # they hold data and clients' states
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


def _print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"undrift {__version__}")
        raise typer.Exit


@app.callback()
def _undrift(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Federated learning that stays on course when clients' data differ."""


@contextmanager
def report_errors(command: str) -> Iterator[None]:
    """Print a user's error in one line and exit with code 2; any other error is a bug and shows its traceback.

    A traceback never shows the values of variables: they may be data.

    Args:
        command: its name.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError | ValueError | ImportError) and not _is_own(error):
            raise
        if isinstance(error, OSError) and _is_output_error(error):
            raise
        typer.echo(f"undrift {command}: {printable(str(error))}", err=True)
        raise typer.Exit(2) from error


def printable(text: str) -> str:
    """A text in one line, without control characters: part of it may come from a client.

    Args:
        text: a message.
    """
    return "".join(sign if sign.isprintable() else " " for sign in text.strip())


def _is_own(error: BaseException) -> bool:
    """Whether an error is the package's own, and not that of code which a client ran."""
    kind = type(error)
    if not kind.__module__.startswith("undrift."):
        return False
    return kind.__name__ != "ClientError" or (error.__cause__ is not None and _is_own(error.__cause__))


def print_failures(command: str, failures: Iterable[Mapping[str, Any]]) -> None:
    """Print the runs that failed, in one line each, and exit with code 1 if there are any.

    Args:
        command: its name.
        failures: of a comparison: the name of each run and its error.
    """
    lines = [f"undrift {command}: {failure['run']}: {failure['error']}" for failure in failures]
    if lines:
        typer.echo("\n".join(lines), err=True)
        raise typer.Exit(1)


@contextmanager
def print_warnings(command: str) -> Iterator[None]:
    """Print a warning to the user in one line, without the place in the code; other warnings as always."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category is UserWarning:
            typer.echo(f"undrift {command}: {message}", err=True)
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


@contextmanager
def stop_cleanly(command: str, folder: Path | None = None) -> Iterator[None]:
    """On an interrupt, print one line with the command that resumes, and exit with code 130.

    Args:
        command: resumes.
        folder: of the run, if there is nothing to resume before it has its settings; None always names the command.
    """

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        stored = folder is None or (folder / "config.toml").is_file()
        typer.echo(f"stopped; resume with: {command}" if stored else "stopped; nothing was stored", err=True)
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
