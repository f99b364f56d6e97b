"""`python -m undrift` is `undrift`."""

from undrift.cli import app

app(prog_name="undrift")
