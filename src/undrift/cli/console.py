"""Standard output: as wide as a terminal, and never cut in a pipe or a file."""

import os

from rich.console import Console

WIDE = 10_000
"""The width of what is no terminal."""


def open_console() -> Console:
    """Standard output: as wide as the terminal, or as COLUMNS; anything else never wraps or cuts a line."""
    console = Console()
    return console if console.is_terminal or os.environ.get("COLUMNS") else Console(width=WIDE)
