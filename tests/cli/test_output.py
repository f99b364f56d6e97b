"""Output that cannot be encoded or written."""

import os
import subprocess
import sys

PRINTS = """
from undrift.cli import app
from undrift.cli.tables import open_console

@app.command("signs")
def signs() -> None:
    open_console().print("82.1 \\u00b1 0.4")

app(["signs"])
"""


def test_signs_that_cannot_be_encoded_are_replaced() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    words = [sys.executable, "-c", PRINTS]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "82.1 ? 0.4\n" and not done.stderr
