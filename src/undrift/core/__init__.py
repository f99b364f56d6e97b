"""The core: the records of a round, the blocks' hooks, the client loop, the exact sum and the server step.

Whoever writes a block finds here what a block is made of: the kinds, the views and the trees.
"""

from undrift.core.aggregation import Aggregation, Gathering, Robust, Summing
from undrift.core.algorithm import SLOTS, Algorithm, Cost, cost
from undrift.core.block import (
    Block,
    Correction,
    Needs,
    Objective,
    Personalization,
    Perturbation,
    ServerOptimizer,
    Spectral,
)
from undrift.core.client import ClientError
from undrift.core.evaluation import BatchMean, named_metrics
from undrift.core.gate import Gate
from undrift.core.metrics import METRICS
from undrift.core.optimizer import LocalOptimizer
from undrift.core.rejection import Reason, Rejection
from undrift.core.samples import Samples
from undrift.core.selection import Candidates, Selection
from undrift.core.task import CountsLabels, Evaluates, EvaluatesClients, HasProxy, PerExample, Task
from undrift.core.tensor_task import TensorTask
from undrift.core.types import (
    Array,
    Broadcast,
    ClientState,
    Cohort,
    Local,
    ServerState,
    Summed,
    Upload,
    WeightedSums,
)
from undrift.core.vector import Layout, Vector, bind, unit
from undrift.core.view import End, Gathered, Start, Step
from undrift.core.wire import WireError, fingerprint

__all__ = [
    "METRICS",
    "SLOTS",
    "Aggregation",
    "Algorithm",
    "Array",
    "BatchMean",
    "Block",
    "Broadcast",
    "Candidates",
    "ClientError",
    "ClientState",
    "Cohort",
    "Correction",
    "Cost",
    "CountsLabels",
    "End",
    "Evaluates",
    "EvaluatesClients",
    "Gate",
    "Gathered",
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
    "Robust",
    "Samples",
    "Selection",
    "ServerOptimizer",
    "ServerState",
    "Spectral",
    "Start",
    "Step",
    "Summed",
    "Summing",
    "Task",
    "TensorTask",
    "Upload",
    "Vector",
    "WeightedSums",
    "WireError",
    "bind",
    "cost",
    "fingerprint",
    "named_metrics",
    "unit",
]
