"""The core: the records of a round, the blocks' hooks, the client loop, the exact sum and the server step.

This is what the author of a block needs: the kinds, the views and the trees.
"""

import warnings
from typing import Any

from undrift.core.client.visit import ClientError
from undrift.core.method.aggregation import Aggregation, Gathering, Robust, Summing
from undrift.core.method.algorithm import SLOTS, Algorithm, Cost, cost
from undrift.core.method.block import (
    Block,
    Correction,
    LocalOptimizer,
    Needs,
    Objective,
    Personalization,
    Perturbation,
    Release,
    ServerOptimizer,
    Spectral,
)
from undrift.core.method.defaults import Average, ByExamples
from undrift.core.method.parts import by_part
from undrift.core.method.schedule import Synchronous
from undrift.core.method.selection import Candidates, Selection
from undrift.core.method.view import End, ServerView, Setting, Start, Step, Sums
from undrift.core.model.flat_model import Layout, Vector, bind, unit
from undrift.core.model.samples import Samples
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import (
    Array,
    Broadcast,
    ClientState,
    Local,
    ServerState,
    Upload,
)
from undrift.core.server.gate import Gate
from undrift.core.server.wire import WireError, fingerprint
from undrift.core.tasks.evaluation import BatchMean, named_metrics
from undrift.core.tasks.metrics import METRICS
from undrift.core.tasks.task import CountsLabels, Evaluates, EvaluatesClients, HasProxy, PerExample, Task
from undrift.core.tasks.tensor_task import TensorTask

__all__ = [
    "METRICS",
    "SLOTS",
    "Aggregation",
    "Algorithm",
    "Array",
    "Average",
    "BatchMean",
    "Block",
    "Broadcast",
    "ByExamples",
    "Candidates",
    "ClientError",
    "ClientState",
    "Correction",
    "Cost",
    "CountsLabels",
    "End",
    "Evaluates",
    "EvaluatesClients",
    "Gate",
    "Gathering",
    "HasProxy",
    "Layout",
    "Local",
    "LocalOptimizer",
    "Needs",
    "Objective",
    "PerExample",
    "Personalization",
    "Perturbation",
    "Reason",
    "Rejection",
    "Release",
    "Robust",
    "Samples",
    "Selection",
    "ServerOptimizer",
    "ServerState",
    "ServerView",
    "Setting",
    "Spectral",
    "Start",
    "Step",
    "Summing",
    "Sums",
    "Synchronous",
    "Task",
    "TensorTask",
    "Upload",
    "Vector",
    "WireError",
    "bind",
    "by_part",
    "cost",
    "fingerprint",
    "named_metrics",
    "unit",
]


def __getattr__(name: str) -> Any:
    """Names of version 0.2, for one version."""
    if name == "Gathered":
        warnings.warn(
            "undrift.core.Gathered is now ServerView; Gathered goes with 0.4", DeprecationWarning, stacklevel=2
        )
        return ServerView
    if name in ("Cohort", "Summed", "WeightedSums"):
        raise AttributeError(f"undrift.core.{name} is gone: hooks of the server get the sums from their ServerView")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
