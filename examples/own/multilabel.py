"""Several labels for each example: binary cross entropy, an exact match of all labels, and F1 by torchmetrics."""

import torch
from command_line import given
from sklearn.datasets import make_multilabel_classification
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchmetrics.classification import MultilabelF1Score

from undrift import Local, TensorTask
from undrift.runs import start

LABELS = 5


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over examples and labels; torchmetrics wants integers, this loss floats."""
    return binary_cross_entropy_with_logits(outputs, targets.float())


def task() -> TensorTask:
    """Examples with the same first label, or with none, are at the same client."""
    x, y = make_multilabel_classification(1500, 20, n_classes=LABELS, random_state=0)
    x = (x - x.mean(0)) / x.std(0)
    x, y, test = x[:1200], y[:1200], (x[1200:], y[1200:])
    first = torch.tensor(y).argmax(1).where(torch.tensor(y).any(1), LABELS)
    clients = [(first == label).nonzero().flatten() for label in range(LABELS + 1)]
    metrics = {"f1": MultilabelF1Score(LABELS), "exact_match": "exact-match"}
    return TensorTask(lambda: nn.Linear(20, LABELS), x, y, clients, loss, test=test, metrics=metrics, goal="f1")


if __name__ == "__main__":
    local = Local(lr=0.5, batch_size=20)
    run = start(**given(__doc__), task=task(), method="fedavgm", cohort=3, local=local, resume=True)
    print(run.sha256, f"F1 {run.summary['f1']:.3f}, exact match {run.summary['exact_match']:.2%}")
