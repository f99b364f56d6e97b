"""FedLab: its serial trainers in its standalone pipeline, one process."""

import logging

from contenders import allow_torchvision

allow_torchvision()

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler  # noqa: E402
from fedlab.contrib.dataset.basic_dataset import FedDataset  # noqa: E402
from fedlab.core.standalone import StandalonePipeline  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from turns import Turns  # noqa: E402
from work import CLIENTS, Data, Setting, cohort, initial, loader  # noqa: E402


class Shards(FedDataset):
    """The clients' data.

    Args:
        data: the data.
        shuffle: whether clients shuffle.
    """

    def __init__(self, data: Data, shuffle: bool) -> None:
        self.own, self.shuffle = [data.own(client) for client in range(CLIENTS)], shuffle

    def get_dataloader(self, id: int, batch_size: int) -> DataLoader[tuple[Tensor, Tensor]]:
        """A client's loader.

        Args:
            id: its number.
            batch_size: examples in a batch.
        """
        return loader(self.own[id], batch_size, self.shuffle)


class Pipeline(StandalonePipeline):
    """FedLab's pipeline with a pause in place of the evaluation."""

    turns: Turns

    def evaluate(self) -> None:
        """Wait for the next turn."""
        if not self.turns.pause(lambda: self.handler.model):
            self.handler.global_round = self.handler.round


def run(turns: Turns, setting: Setting, data: Data, method: str, workers: int, shuffle: bool) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg" or "scaffold".
        workers: must be 1.
        shuffle: whether clients shuffle their data.
    """
    if workers != 1:
        raise ValueError("FedLab's standalone pipeline runs in one process: workers must be 1")
    scaffold, model = method == "scaffold", initial(setting)
    kind = ScaffoldServerHandler if scaffold else FedAvgServerHandler
    trainer = (ScaffoldSerialClientTrainer if scaffold else FedAvgSerialClientTrainer)(model, CLIENTS)
    handler = kind(model, global_round=10**9, sample_ratio=setting.cohort / CLIENTS)
    logging.getLogger().setLevel(logging.WARNING)
    handler.sample_clients = lambda: cohort(setting, handler.round)
    if scaffold:
        handler.setup_optim(lr=1.0)
    trainer.setup_dataset(Shards(data, shuffle))
    trainer.setup_optim(1, setting.batch, setting.lr)
    pipeline = Pipeline(handler, trainer)
    pipeline.turns = turns
    pipeline.evaluate()
    pipeline.main()
