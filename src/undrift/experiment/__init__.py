"""Experiments: runs described by one file, stored in a self-contained folder, resumed bit for bit, and compared."""

from undrift.experiment.compare import Comparison, compare
from undrift.experiment.config import Config
from undrift.experiment.export import export
from undrift.experiment.inspect import look
from undrift.experiment.run import resume, start
from undrift.experiment.saved import Outcome, SavedRun, load_run
from undrift.experiment.statistics import to_markdown
from undrift.experiment.strict import ConfigError
from undrift.experiment.verify import Verified, verify

__all__ = [
    "Comparison",
    "Config",
    "ConfigError",
    "Outcome",
    "SavedRun",
    "Verified",
    "compare",
    "export",
    "load_run",
    "look",
    "resume",
    "start",
    "to_markdown",
    "verify",
]
