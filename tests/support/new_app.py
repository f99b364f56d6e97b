"""The Flower app that `undrift new` writes, in a folder that is deleted with the process."""

import atexit
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from undrift.cli import app

_folder = TemporaryDirectory(prefix="undrift-new-")
atexit.register(_folder.cleanup)

NEW_APP = Path(_folder.name) / "undrift-deployment"

_written = CliRunner().invoke(app, ["new", str(NEW_APP)])
assert _written.exit_code == 0, _written.output


def copy_app(folder: Path, clients: int = 12) -> Path:
    """Copy the app, which may then be changed; the folder.

    Args:
        folder: where to.
        clients: how many clients its nodes host together.
    """
    shutil.copytree(NEW_APP, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"), dirs_exist_ok=True)
    task, given = folder / "app" / "task.py", "CLIENTS, CLASSES, FEATURES = "
    text = task.read_text()
    assert f"{given}12" in text
    task.write_text(text.replace(f"{given}12", f"{given}{clients}"))
    return folder
