"""The core: the records of a round, the blocks' hooks, the client loop, the exact sum and the server step.

Whoever writes a block finds here what a block is made of: the kinds, the views and the trees.
"""

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
    ServerOptimizer,
    Spectral,
)
from undrift.core.method.selection import Candidates, Selection
from undrift.core.method.view import End, Gathered, Start, Step
from undrift.core.model.flat_model import Layout, Vector, bind, unit
from undrift.core.model.samples import Samples
from undrift.core.records.rejection import Reason, Rejection
from undrift.core.records.types import (
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
