"""Undrift keeps federated learning on course when clients' data differ."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from undrift.util.version import __version__ as __version__

if TYPE_CHECKING:
    from undrift.compose.build import make
    from undrift.compose.grammar import parse
    from undrift.core.algorithm import Algorithm, Cost, cost
    from undrift.core.client import ClientError
    from undrift.core.task import Task
    from undrift.core.tensor_task import TensorTask
    from undrift.core.types import Local, ServerState
    from undrift.core.vector import bind
    from undrift.data.loader_task import LoaderTask
    from undrift.engine.backend import InProcess
    from undrift.engine.quarantine import Quarantine
    from undrift.engine.record import Record
    from undrift.engine.simulation import Simulation
    from undrift.experiment.saved import SavedRun, load_run
    from undrift.util.history import History

__all__ = [
    "Algorithm",
    "ClientError",
    "Cost",
    "History",
    "InProcess",
    "LoaderTask",
    "Local",
    "Quarantine",
    "Record",
    "SavedRun",
    "ServerState",
    "Simulation",
    "Task",
    "TensorTask",
    "bind",
    "cost",
    "load_run",
    "make",
    "parse",
]

_PLACES = {
    "compose.build": ("make",),
    "compose.grammar": ("parse",),
    "core.algorithm": ("Algorithm", "Cost", "cost"),
    "core.client": ("ClientError",),
    "core.task": ("Task",),
    "core.tensor_task": ("TensorTask",),
    "core.types": ("Local", "ServerState"),
    "core.vector": ("bind",),
    "data.loader_task": ("LoaderTask",),
    "engine.backend": ("InProcess",),
    "engine.quarantine": ("Quarantine",),
    "engine.record": ("Record",),
    "engine.simulation": ("Simulation",),
    "experiment.saved": ("SavedRun", "load_run"),
    "util.history": ("History",),
}
"""Where each name is defined: it is imported when first used, so that `undrift --help` does not wait for torch."""


def __getattr__(name: str) -> Any:
    for place, names in _PLACES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"undrift.{place}"), name)
            return value
    if not name.startswith("_") and find_spec(f"undrift.{name}") is not None:
        return import_module(f"undrift.{name}")
    raise AttributeError(f"module 'undrift' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
