"""The Flower app that `undrift new` writes, in a folder that is deleted with the process."""

import atexit
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from undrift.cli import app

_folder = TemporaryDirectory(prefix="undrift-new-")
atexit.register(_folder.cleanup)

NEW_APP = Path(_folder.name) / "undrift-deployment"

_written = CliRunner().invoke(app, ["new", str(NEW_APP)])
assert _written.exit_code == 0, _written.output
