"""Data sets, how they are dealt out to clients, and the task over them.

`load` finds a data set on this machine before it asks the hub and keeps it decoded; `DataTask` serves its batches to
the engines and measures models on the official test set and on each client's own.
"""

from undrift.data.augment import Augment
from undrift.data.corruption import assign, corrupt, corrupted
from undrift.data.dataset import DataError, Dataset, Split
from undrift.data.evaluate import Evaluation
from undrift.data.loader import load
from undrift.data.partition import Partition, from_flower, partition
from undrift.data.places import Availability, available
from undrift.data.sources import SOURCES, DataSource
from undrift.data.task import DataTask

__all__ = [
    "SOURCES",
    "Augment",
    "Availability",
    "DataError",
    "DataSource",
    "DataTask",
    "Dataset",
    "Evaluation",
    "Partition",
    "Split",
    "assign",
    "available",
    "corrupt",
    "corrupted",
    "from_flower",
    "load",
    "partition",
]
