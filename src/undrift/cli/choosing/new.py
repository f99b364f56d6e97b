"""A Flower app to start from: `undrift new`."""

import re
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from undrift.cli.app import app, report_errors

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

NO_INSTALLS = "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"
"""The variable that keeps Flower 1.41 from installing an app's dependencies."""

BEFORE_FLWR_RUN = (
    f"before flwr run: export {NO_INSTALLS}=1, and end a SuperLink that was started without it. Otherwise Flower "
    "installs the app's dependencies from the package index, and a run whose packages are not there ends with exit "
    "code 608"
)


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to write, new or empty.")],
    name: Annotated[str | None, typer.Option(help="The app's name; default the folder's name.")] = None,
) -> None:
    """Write a Flower app, with a test deployment around it.

    FOLDER must be new or empty. Its README explains how to run the app;
    replace app/task.py with your own task.

    Example: undrift new my-app
    """
    from importlib.resources import files

    name = folder.resolve().name if name is None else name
    with report_errors("new"):
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
            raise ValueError(f"{name!r} cannot be an app's name: set --name, of letters, digits, '.', '_' and '-'")
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: name a new folder, or move the contents of this one")
        written = _fill(folder, files("undrift") / "templates" / "deployment", name)
    for path in written:
        typer.echo(path)
    typer.echo(f"Next: cd {quote(str(folder))} && python deploy.py up && python deploy.py run; python deploy.py down")
    typer.echo(f"Without deploy.py, {BEFORE_FLWR_RUN}.")


def _fill(folder: Path, template: "Traversable", name: str) -> list[Path]:
    """Write a folder of the template; its files end in .in so that tools do not treat them as part of this package."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for item in sorted(template.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            written += _fill(folder / item.name, item, name)
        elif item.name.endswith(".in"):
            path, content = folder / item.name.removesuffix(".in"), item.read_bytes()
            if path.name == "pyproject.toml":
                content = content.replace(b'"undrift-deployment"', f'"{name}"'.encode())
            path.write_bytes(content)
            written.append(path)
    return written
