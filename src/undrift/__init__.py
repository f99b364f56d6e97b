"""Undrift keeps federated learning on course when clients' data differ."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from undrift.util.version import __version__ as __version__

if TYPE_CHECKING:
    from undrift.compose.build import make
    from undrift.compose.grammar import parse
    from undrift.core.client.visit import ClientError
    from undrift.core.method.algorithm import Algorithm, Cost, cost
    from undrift.core.model.flat_model import bind
    from undrift.core.records.types import Local, ServerState
    from undrift.core.tasks.task import Task
    from undrift.core.tasks.tensor_task import TensorTask
    from undrift.data.tasks.loader_task import LoaderTask
    from undrift.engine.round.backend import InProcess
    from undrift.engine.round.quarantine import Quarantine
    from undrift.engine.round.record import Record
    from undrift.engine.round.simulation import Simulation
    from undrift.runs.reading.loaded_model import LoadedModel, load_model
    from undrift.runs.reading.saved_run import SavedRun, load_run
    from undrift.secure.settings import Secure
    from undrift.util.storage.history import History

__all__ = [
    "Algorithm",
    "ClientError",
    "Cost",
    "History",
    "InProcess",
    "LoadedModel",
    "LoaderTask",
    "Local",
    "Quarantine",
    "Record",
    "SavedRun",
    "Secure",
    "ServerState",
    "Simulation",
    "Task",
    "TensorTask",
    "bind",
    "cost",
    "load_model",
    "load_run",
    "make",
    "parse",
]

_PLACES = {
    "compose.build": ("make",),
    "compose.grammar": ("parse",),
    "core.method.algorithm": ("Algorithm", "Cost", "cost"),
    "core.client.visit": ("ClientError",),
    "core.tasks.task": ("Task",),
    "core.tasks.tensor_task": ("TensorTask",),
    "core.records.types": ("Local", "ServerState"),
    "core.model.flat_model": ("bind",),
    "data.tasks.loader_task": ("LoaderTask",),
    "engine.round.backend": ("InProcess",),
    "engine.round.quarantine": ("Quarantine",),
    "engine.round.record": ("Record",),
    "engine.round.simulation": ("Simulation",),
    "runs.reading.loaded_model": ("LoadedModel", "load_model"),
    "runs.reading.saved_run": ("SavedRun", "load_run"),
    "secure.settings": ("Secure",),
    "util.storage.history": ("History",),
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
