"""Experiments: a run described by one file, kept in a folder that explains itself, resumed to the bit, and compared."""

from undrift.experiment.config import Config, ConfigError
from undrift.experiment.run import Outcome, resume, start

__all__ = ["Config", "ConfigError", "Outcome", "resume", "start"]
