"""FedLab: its serial trainers and its server handlers."""

import logging
from typing import Any

from torch.utils.data import DataLoader, TensorDataset

from contenders import allow_torchvision

allow_torchvision()

from fedlab.contrib.algorithm.ditto import DittoSerialClientTrainer, DittoServerHandler  # noqa: E402
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler  # noqa: E402
from fedlab.contrib.algorithm.feddyn import FedDynSerialClientTrainer, FedDynServerHandler  # noqa: E402
from fedlab.contrib.algorithm.fedprox import FedProxSerialClientTrainer, FedProxServerHandler  # noqa: E402
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler  # noqa: E402

from task import COHORTS, HYPER, LR, POPULATION, STEPS, AbsentError, linear, own, row  # noqa: E402

PACKAGE = "fedlab"
KINDS: dict[str, tuple[Any, Any]] = {
    "FedAvg": (FedAvgSerialClientTrainer, FedAvgServerHandler),
    "FedProx": (FedProxSerialClientTrainer, FedProxServerHandler),
    "SCAFFOLD": (ScaffoldSerialClientTrainer, ScaffoldServerHandler),
    "FedDyn": (FedDynSerialClientTrainer, FedDynServerHandler),
    "Ditto": (DittoSerialClientTrainer, DittoServerHandler),
}


class Shards:
    """The clients' data."""

    def get_dataloader(self, id: int, batch_size: int) -> Any:
        """A client's loader.

        Args:
            id: its number.
            batch_size: examples in a batch.
        """
        return DataLoader(TensorDataset(*own(id)), batch_size)

    get_data_loader = get_dataloader


def run(method: str) -> list[list[float]]:
    """The models of a method.

    Args:
        method: one of the task's.
    """
    if method not in KINDS:
        raise AbsentError
    client, server = KINDS[method]
    trainer = client(linear(), POPULATION)
    handler = server(linear(), global_round=10**9, sample_ratio=len(COHORTS[0]) / POPULATION)
    handler.num_clients = POPULATION
    logging.getLogger().setLevel(logging.WARNING)
    if method in ("SCAFFOLD", "FedDyn"):
        handler.setup_optim(1.0 if method == "SCAFFOLD" else HYPER[method]["mu"])
    trainer.setup_dataset(Shards())
    trainer.setup_optim(STEPS, 10**6, LR, *([HYPER[method]["mu"]] if method in ("FedProx", "FedDyn") else []))
    rows = []
    for cohort in COHORTS:
        trainer.local_process(handler.downlink_package, list(cohort))
        for pack in trainer.uplink_package:
            handler.load(pack)
        rows.append(row(handler.model))
    return rows
