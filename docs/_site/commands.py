"""The reference of the command line, from the help texts of its commands."""

import inspect
import re
from typing import Any

import click
import typer

from undrift.cli import app
from undrift.util.display.tables import markdown


def page() -> str:
    """Every command as MyST: what it does, how it is called, its arguments and options."""
    group: Any = typer.main.get_command(app)
    context = click.Context(group, info_name="undrift")
    shown = {name: command for name, command in group.commands.items() if not command.hidden}
    rows = [[f"[undrift {name}](#undrift-{name})", _first(command)] for name, command in shown.items()]
    parts = [_section(name, command, context) for name, command in shown.items()]
    return "\n\n".join([markdown(["command", "what it does"], rows, left=2), *parts])


def _first(command: Any) -> str:
    return str(inspect.cleandoc(command.help).splitlines()[0])


def _section(name: str, command: Any, parent: click.Context) -> str:
    """One command."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    about = inspect.cleandoc(command.help)
    text, _, example = about.partition("Example: ")
    rows = [[_name(x), _meaning(x)] for x in command.get_params(context) if not getattr(x, "hidden", False)]
    blocks = [f"## undrift {name}", f"```text\n{usage}\n```", text.strip()]
    if example:
        blocks.append(f"```bash\n{inspect.cleandoc(example)}\n```")
    return "\n\n".join([*blocks, markdown(["argument or option", "meaning"], rows, left=2)])


def _name(parameter: Any) -> str:
    """An argument in capitals, an option with its short form and the kind of its value."""
    if isinstance(parameter, click.Argument):
        return f"`{str(parameter.name).upper()}`"
    names = ", ".join(f"`{x}`" for x in sorted([*parameter.opts, *parameter.secondary_opts], key=len))
    kind = "" if parameter.is_flag or parameter.count else str(parameter.metavar or parameter.type.name.upper())
    return f"{names} {kind}".strip()


def _meaning(parameter: Any) -> str:
    """The help text, and a default if it is informative."""
    text = str(parameter.help or "").replace("\\[", "[")
    text = re.sub(r"--[a-z][\w.=-]*", r"`\g<0>`", text)
    default = parameter.default
    useful = isinstance(default, str | int | float) and not isinstance(default, bool) and "default" not in text.lower()
    return f"{text} Default: {default}." if useful else text
