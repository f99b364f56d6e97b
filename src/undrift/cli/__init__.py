"""The command line."""

from undrift.cli.app import app
from undrift.cli.choosing import advise, catalogue, machine, new  # noqa: F401  they add their commands
from undrift.cli.results import audit, export, lens, replay, report, status, verify  # noqa: F401
from undrift.cli.training import backup, compare, demo, leaving, paper, plan, run  # noqa: F401

__all__ = ["app"]
