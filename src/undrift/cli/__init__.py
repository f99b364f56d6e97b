"""The command line."""

from undrift.cli import catalogue, comparisons, export, lens, new, papers, plan, report, runs, sets  # noqa: F401  they add their commands
from undrift.cli.app import app

__all__ = ["app"]
