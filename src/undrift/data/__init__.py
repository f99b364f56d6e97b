"""Data sets, their partitions over clients, and the task on them.

`load` searches this machine for a data set before the hub, and caches it decoded. `DataTask` gives batches to
the engines and evaluates models on the official test set and on each client's own.
"""

from undrift.data.augment import Augment
from undrift.data.batching import by_column
from undrift.data.corrupt_tests import CorruptTests
from undrift.data.corruption import assign, corrupt, corrupted
from undrift.data.dataset import DataError, Dataset, Split
from undrift.data.evaluate import Evaluation
from undrift.data.loader import load
from undrift.data.loader_task import LoaderTask, lightning_loss
from undrift.data.partition import Partition, from_flower, partition
from undrift.data.places import Availability, available
from undrift.data.skew import DataSkew, measure_skew
from undrift.data.sources import SOURCES, DataSource
from undrift.data.stand_in import stand_in
from undrift.data.task import DataTask

__all__ = [
    "SOURCES",
    "Augment",
    "Availability",
    "CorruptTests",
    "DataError",
    "DataSkew",
    "DataSource",
    "DataTask",
    "Dataset",
    "Evaluation",
    "LoaderTask",
    "Partition",
    "Split",
    "assign",
    "available",
    "by_column",
    "corrupt",
    "corrupted",
    "from_flower",
    "lightning_loss",
    "load",
    "measure_skew",
    "partition",
    "stand_in",
]
