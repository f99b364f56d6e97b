"""Undrift keeps federated learning on course when clients' data differ."""

from undrift.algorithm import Algorithm, Cost, cost
from undrift.algorithms import make
from undrift.engine.local import Record, Simulation
from undrift.task import Task, TensorTask
from undrift.types import Local, ServerState

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Cost",
    "Local",
    "Record",
    "ServerState",
    "Simulation",
    "Task",
    "TensorTask",
    "cost",
    "make",
]
