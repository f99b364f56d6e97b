"""Deprecated: `undrift.runs` has what concerns one run, `undrift.studies` what concerns many."""

import warnings
from importlib import import_module
from typing import Any

_MOVED = {"Comparison": "studies", "compare": "studies", "to_markdown": "studies"}
_MOVED |= dict.fromkeys(("Config", "ConfigError", "Outcome", "SavedRun", "Verified"), "runs")
_MOVED |= dict.fromkeys(("export", "load_run", "look", "resume", "start", "verify"), "runs")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; see undrift.runs and undrift.studies")
    room = f"undrift.{_MOVED[name]}"
    warnings.warn(
        f"undrift.experiment.{name} is now {room}.{name}; undrift.experiment goes with version 0.4",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(import_module(room), name)
