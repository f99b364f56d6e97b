"""Data sets, their partitions over clients, and the task on them.

`load` searches this machine for a data set before the hub, and caches it decoded. `DataTask` gives batches to
the engines and evaluates models on the official test set and on each client's own.
"""

from undrift.data.arrays.dataset import DataError, Dataset, Split
from undrift.data.files.find import Availability, available
from undrift.data.files.known import SOURCES, DataSource
from undrift.data.files.stand_in import stand_in
from undrift.data.loader import load
from undrift.data.partitions.draw import Partition, from_flower, partition
from undrift.data.partitions.skew import DataSkew, measure_skew
from undrift.data.tasks.augment import Augment
from undrift.data.tasks.batching import by_column
from undrift.data.tasks.corruption import CorruptTests, assign, corrupt, corrupted
from undrift.data.tasks.data_task import DataTask
from undrift.data.tasks.evaluate import Evaluation
from undrift.data.tasks.loader_task import LoaderTask, lightning_loss

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
