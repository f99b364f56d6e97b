"""A module written for Lightning, with training_step, as it is."""

import torch
from command_line import given
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from undrift import LoaderTask, Local
from undrift.data import lightning_loss
from undrift.runs import start


class Digits(torch.nn.Module):  # or lightning.LightningModule
    """A linear classifier that knows its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.layer(inputs)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """The loss of a batch."""
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1], label_smoothing=0.1)


def task() -> LoaderTask:
    """Ten clients, each with one digit."""
    x, y = (torch.tensor(data) for data in load_digits(return_X_y=True))
    x, y, test = x[:1500].float() / 16, y[:1500], TensorDataset(x[1500:].float() / 16, y[1500:])
    clients = [TensorDataset(x[y == digit], y[y == digit]) for digit in range(10)]
    return LoaderTask(Digits, clients, lightning_loss, test=test, metrics=["accuracy"])


if __name__ == "__main__":
    run = start(**given(__doc__), task=task(), method="feddyn", cohort=10, local=Local(lr=0.5), resume=True)
    print(run.sha256, f"accuracy {run.summary['accuracy']:.2%}")
