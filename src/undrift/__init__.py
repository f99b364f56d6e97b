"""Undrift keeps federated learning on course when clients' data differ."""

from undrift.algorithms import make
from undrift.compose.grammar import parse
from undrift.core.algorithm import Algorithm, Cost, cost
from undrift.core.client import ClientError
from undrift.core.task import Task, TensorTask
from undrift.core.types import Local, ServerState
from undrift.core.vector import bind
from undrift.engine.backend import InProcess
from undrift.engine.simulation import Record, Simulation
from undrift.util.version import __version__ as __version__

__all__ = [
    "Algorithm",
    "ClientError",
    "Cost",
    "InProcess",
    "Local",
    "Record",
    "ServerState",
    "Simulation",
    "Task",
    "TensorTask",
    "bind",
    "cost",
    "make",
    "parse",
]
