"""pfl-research: its algorithms on its simulated backend; its server optimizers are those of torch."""

from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from task import COHORTS, HYPER, LR, POPULATION, STEPS, AbsentError, linear, own, row

PACKAGE = "pfl"


class Net(nn.Module):
    """The model with the two functions that pfl needs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = linear()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The cross entropy.

        Args:
            inputs: of the examples.
            targets: their classes.
        """
        return cross_entropy(self.body(inputs), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
        """Nothing.

        Args:
            inputs: not used.
            targets: not used.
        """
        return {}


class Rows(TrainingProcessCallback):
    """Keeps the global model of every round.

    Args:
        body: the global model.
    """

    def __init__(self, body: nn.Module) -> None:
        self.body, self.rows = body, list[list[float]]()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """The end of a round.

        Args:
            aggregate_metrics: not used.
            model: not used.
            central_iteration: not used.
        """
        self.rows.append(row(self.body))
        return False, Metrics()


def run(method: str) -> list[list[float]]:
    """The models of a method.

    Args:
        method: one of the task's.
    """
    if method in ("FedDyn", "Ditto"):
        raise AbsentError
    net, hyper = Net(), HYPER[method]
    sequence = (client for cohort in COHORTS for client in cohort)
    population = FederatedDataset(lambda i: PyTorchTensorDataset(own(i), user_id=str(i)), lambda: next(sequence))
    server: Any = torch.optim.SGD(net.parameters(), lr=1.0, momentum=hyper.get("beta", 0.0))
    if method == "FedAdam":
        betas = (hyper["beta1"], hyper["beta2"])
        server = torch.optim.Adam(net.parameters(), lr=hyper["lr"], betas=betas, eps=hyper["tau"])
    often = {"central_num_iterations": len(COHORTS), "evaluation_frequency": 10**9}
    common = {**often, "train_cohort_size": len(COHORTS[0]), "val_cohort_size": 0}
    algorithm, params = FederatedAveraging(), NNAlgorithmParams(**common)
    if method == "FedProx":
        algorithm, params = FedProx(), FedProxParams(**common, **hyper)
    if method == "SCAFFOLD":
        state = {"use_gradient_as_control_variate": False, "user_state_storage": InMemoryUserStateStorage()}
        algorithm, params = SCAFFOLD(), SCAFFOLDParams(**common, population=POPULATION, **state)
    rows = Rows(net.body)
    weights = [] if method == "SCAFFOLD" else [WeightByDatapoints()]
    algorithm.run(
        params,
        SimulatedBackend(training_data=population, val_data=None, postprocessors=weights),
        PyTorchModel(net, torch.optim.SGD, server),
        NNTrainHyperParams(local_num_epochs=STEPS, local_learning_rate=LR, local_batch_size=None),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[rows],
        send_metrics_to_platform=False,
    )
    return rows.rows
