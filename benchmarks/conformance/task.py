"""The task of the comparison: five clients of different sizes, three of them in a round, whole batches.

Softmax regression can be written in every library. Some clients are absent in every round, and one has four times the
examples of another: a mean over the wrong clients shows.
"""

from typing import Any

import numpy as np

from undrift.testing.oracles import Regression, Vector, ditto, fedadam, fedavg, fedavgm, feddyn, fedprox, scaffold

COHORTS = ((0, 1, 3), (1, 2, 4), (0, 2, 3), (1, 3, 4))
STEPS, LR = 3, 0.2
CLIENTS = Regression.random()
FEDERATION = CLIENTS.federation(COHORTS, STEPS, LR)
POPULATION = len(CLIENTS.targets)

HYPER: dict[str, dict[str, float]] = {
    "FedAvg": {},
    "FedProx": {"mu": 0.3},
    "SCAFFOLD": {},
    "FedDyn": {"mu": 0.2},
    "FedAvgM": {"beta": 0.6},
    "FedAdam": {"lr": 0.05, "beta1": 0.9, "beta2": 0.99, "tau": 1e-3},
    "Ditto": {"lam": 0.5},
}
"""The methods, each with what it is given."""

FREE = ("FedProx", "FedAvgM", "FedAdam", "Ditto")
"""Methods whose paper or experiments have both means, by examples and plain: either is accepted."""


def expected(method: str) -> list[Vector]:
    """The paper's models: a row per round; of Ditto also a row per client. All forms that are accepted.

    Args:
        method: one of `HYPER`.
    """
    hyper = HYPER[method]
    oracles: dict[str, Any] = {
        "FedAvg": fedavg,
        "FedProx": fedprox,
        "SCAFFOLD": scaffold,
        "FedDyn": feddyn,
        "FedAvgM": fedavgm,
        "FedAdam": fedadam,
        "Ditto": lambda f, **h: np.concatenate(ditto(f, **h)),
    }
    means: list[dict[str, Any]] = [{"weighted": True}, {"weighted": False}] if method in FREE else [{}]
    if method == "Ditto":  # its paper leaves the start of the personal models open
        means = [{**mean, "first": first} for mean in means for first in (False, True)]
    return [oracles[method](FEDERATION, **hyper, **mean) for mean in means]


def linear() -> Any:
    """The first model, in torch."""
    import torch
    from torch import nn

    model = nn.Linear(CLIENTS.inputs[0].shape[1], CLIENTS.classes)
    nn.utils.vector_to_parameters(torch.tensor(FEDERATION.start, dtype=torch.float32), model.parameters())
    return model


def own(client: int) -> tuple[Any, Any]:
    """A client's inputs and targets, in torch.

    Args:
        client: its number.
    """
    import torch

    return torch.tensor(CLIENTS.inputs[client], dtype=torch.float32), torch.tensor(CLIENTS.targets[client])


def row(model: Any) -> list[float]:
    """The model as numbers.

    Args:
        model: of torch.
    """
    return [float(x) for p in model.parameters() for x in p.detach().reshape(-1)]


class AbsentError(Exception):
    """The library does not have the method."""
