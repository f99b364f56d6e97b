"""The command line."""

from undrift.cli.app import app
from undrift.cli.choosing import advise, catalogue, machine, new  # noqa: F401  they add their commands
from undrift.cli.results import checks, export, lens, report, status  # noqa: F401
from undrift.cli.training import compare, demo, folders, paper, plan, run  # noqa: F401

__all__ = ["app"]
