"""The command line."""

from undrift.cli import (  # noqa: F401  they add their commands
    advise,
    catalogue,
    comparisons,
    demo,
    export,
    lens,
    new,
    papers,
    plan,
    report,
    runs,
    sets,
    status,
    verify,
)
from undrift.cli.app import app

__all__ = ["app"]
