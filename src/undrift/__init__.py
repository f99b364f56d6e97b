"""Undrift keeps federated learning on course when clients' data differ."""

from undrift.algorithms import make
from undrift.core.algorithm import Algorithm, Cost, cost
from undrift.core.task import Task, TensorTask
from undrift.core.types import Local, ServerState
from undrift.engine.simulation import Record, Simulation

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
