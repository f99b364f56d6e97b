"""Experiments: a run described by one file, kept in a folder that explains itself, resumed to the bit, and compared."""

from undrift.experiment.compare import Comparison, compare
from undrift.experiment.config import Config, ConfigError
from undrift.experiment.run import Outcome, resume, start
from undrift.experiment.statistics import to_markdown

__all__ = ["Comparison", "Config", "ConfigError", "Outcome", "compare", "resume", "start", "to_markdown"]
