"""BlazeFL in its single-threaded mode; with threads see blazefl_threads."""

from typing import Any

import torch
from blazefl.contrib import FedAvgBaseClientTrainer, FedAvgBaseServerHandler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from turns import Turns
from work import CLIENTS, Data, Setting, cohort, initial, loader


class Selector:
    """Makes BlazeFL's models.

    Args:
        setting: the setting.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def select_model(self, model_name: str) -> nn.Module:
        """A new model.

        Args:
            model_name: not used: a setting has one model.
        """
        return initial(self.setting)


class Shards:
    """The clients' data.

    Args:
        data: the data.
        shuffle: whether clients shuffle.
    """

    def __init__(self, data: Data, shuffle: bool) -> None:
        self.own, self.shuffle = [data.own(client) for client in range(CLIENTS)], shuffle

    def get_dataset(self, type_: Any, cid: int) -> TensorDataset:
        """A client's data.

        Args:
            type_: not used: only training data are asked for.
            cid: its number.
        """
        return TensorDataset(*self.own[cid])

    def set_dataset(self, type_: Any, cid: int, dataset: Any) -> None:
        """Nothing changes.

        Args:
            type_: not used.
            cid: not used.
            dataset: not used.
        """

    def get_dataloader(
        self, type_: Any, cid: int, batch_size: int, generator: torch.Generator | None
    ) -> DataLoader[tuple[Tensor, Tensor]]:
        """A client's loader.

        Args:
            type_: not used.
            cid: its number.
            batch_size: examples in a batch.
            generator: BlazeFL's generator for the client.
        """
        return loader(self.own[cid], batch_size, self.shuffle, generator)


class Server(FedAvgBaseServerHandler):
    """BlazeFL's server with the cohorts of the benchmark."""

    setting: Setting

    def sample_clients(self) -> list[int]:
        """The clients of the round."""
        return cohort(self.setting, self.round)


def run(
    turns: Turns,
    setting: Setting,
    data: Data,
    method: str,
    workers: int,
    shuffle: bool,
    trainer: Any = FedAvgBaseClientTrainer,
    **more: int,
) -> None:
    """Train round by round until the driver asks to stop.

    Args:
        turns: the protocol.
        setting: the setting.
        data: the data.
        method: "fedavg": BlazeFL has no SCAFFOLD.
        workers: must be 1 in this mode.
        shuffle: whether clients shuffle their data.
        trainer: the class of BlazeFL's trainer.
        more: further arguments of the trainer.
    """
    if method != "fedavg" or (workers != 1 and not more):
        raise ValueError("BlazeFL has FedAvg only, and one worker in this mode")
    both = {
        "model_selector": Selector(setting),
        "model_name": setting.model,
        "dataset": Shards(data, shuffle),
        "device": "cpu",
        "num_clients": CLIENTS,
        "batch_size": setting.batch,
        "seed": 0,
    }
    server = Server(global_round=10**9, sample_ratio=setting.cohort / CLIENTS, **both)
    server.setting = setting
    clients = trainer(epochs=1, lr=setting.lr, **both, **more)
    while turns.pause(lambda: server.model):
        clients.local_process(server.downlink_package(), server.sample_clients())
        for package in clients.uplink_package():
            server.load(package)
