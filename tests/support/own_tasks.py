"""Tasks of one's own for tests of whole runs; run as a script, one in `__main__` is trained, and killed if asked to."""

import os
import signal
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from undrift import LoaderTask, Local, TensorTask
from undrift.runs import start

SETTINGS: dict[str, Any] = {"rounds": 4, "cohort": 3, "local": {"lr": 0.05, "batch_size": 4}}


class Net(nn.Module):
    """A layer with statistics and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(5, 6),
            nn.BatchNorm1d(6),
            nn.Dropout(0.2),
            nn.Linear(6, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.drop(self.norm(self.first(x))))
        return out


class Rows(Dataset[Any]):
    """Rows of a table with noise on their inputs, from the global stream."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.inputs[i] + 0.01 * torch.randn(5), self.targets[i]


def table(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a regression."""
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(80, 5, generator=draw)
    return inputs, inputs.sum(1, keepdim=True) + 0.1 * torch.randn(80, 1, generator=draw)


def lines(clients: int = 4, seed: int = 0, **more: Any) -> TensorTask:
    """A linear regression in tensors."""
    inputs, targets = table(seed)
    parts = torch.arange(48).chunk(clients)
    test = {"test": (inputs[60:], targets[60:]), "metrics": ["mae", "rmse"], **more}
    return TensorTask(Net, inputs, targets, parts, nn.MSELoss(), **test)


def loaders() -> LoaderTask:
    """The same with a data set for each client, which has noise of its own."""
    inputs, targets = table()
    data = [Rows(inputs[i : i + 12], targets[i : i + 12]) for i in range(0, 48, 12)]
    return LoaderTask(Net, data, criterion=nn.MSELoss(), test=Rows(inputs[60:], targets[60:]), name="noisy rows")


def main() -> None:
    """Train in a folder on an engine, and die after a round if asked to."""
    folder, engine, death = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def watch(row: dict[str, Any]) -> None:
        if row["round"] == death:
            os.kill(os.getpid(), signal.SIGKILL)

    local = Local(**SETTINGS["local"])
    out = start(
        task=loaders(),
        folder=folder,
        method="scaffold",
        rounds=4,
        cohort=3,
        local=local,
        engine=engine,
        watch=watch,
        resume=True,
    )
    print(out.sha256)


if __name__ == "__main__":
    main()
