"""Regression on a table, progression of diabetes: a client for every decade of age, judged by its absolute error."""

import numpy as np
from command_line import given
from sklearn.datasets import load_diabetes
from torch import nn

from undrift import Local, TensorTask
from undrift.runs import start


class Net(nn.Sequential):
    """A perceptron with one hidden layer."""

    def __init__(self, inputs: int = 10, outputs: int = 1) -> None:
        super().__init__(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def task() -> TensorTask:
    """The column "age" names the client of a row; every fifth row is held out, for all and for its own client."""
    x, y = load_diabetes(scaled=False, return_X_y=True)
    decade, held_out = np.clip(x[:, 0] // 10, 2, 7), np.arange(len(x)) % 5 == 0
    x, y = (x - x.mean(0)) / x.std(0), ((y - y.mean()) / y.std())[:, None]
    test = x[held_out], y[held_out]
    clients = [np.flatnonzero((decade == d) & ~held_out) for d in range(2, 8)]
    own = [np.flatnonzero(decade[held_out] == d) for d in range(2, 8)]
    metrics, loss = ["mse", "mae"], nn.functional.mse_loss
    return TensorTask(Net, x, y, clients, loss, test=test, client_tests=own, metrics=metrics, goal="mae")


if __name__ == "__main__":
    local = Local(lr=0.05, batch_size=10)
    run = start(**given(__doc__), task=task(), method="fedprox", cohort=4, local=local, resume=True)
    print(run.sha256, *(f"{name} {run.summary[name]:.3f}" for name in ("mse", "mae", "client_worst_tenth")))
