"""fluke: its algorithms, one process."""

from typing import Any

from contenders import allow_torchvision

allow_torchvision()

from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.ditto import Ditto  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.algorithms.fedavgm import FedAVGM  # noqa: E402
from fluke.algorithms.feddyn import FedDyn  # noqa: E402
from fluke.algorithms.fedopt import FedOpt  # noqa: E402
from fluke.algorithms.fedprox import FedProx  # noqa: E402
from fluke.algorithms.scaffold import SCAFFOLD  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402
from fluke.utils import FederationObserver  # noqa: E402

from task import COHORTS, HYPER, LR, POPULATION, STEPS, linear, own, row  # noqa: E402

PACKAGE = "fluke-fl"
KINDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "FedAvg": (FedAVG, {}, {"weighted": True}),
    "FedProx": (FedProx, HYPER["FedProx"], {"weighted": True}),
    "SCAFFOLD": (SCAFFOLD, {}, {"weighted": False}),
    "FedDyn": (FedDyn, {"alpha": HYPER["FedDyn"]["mu"], "clipping": 0}, {"weighted": False}),
    "FedAvgM": (FedAVGM, {}, {"weighted": True, "momentum": HYPER["FedAvgM"]["beta"]}),
    "FedAdam": (FedOpt, {}, {"weighted": True, "mode": "adam", **HYPER["FedAdam"]}),
    "Ditto": (Ditto, {"tau": STEPS, "model": linear(), **HYPER["Ditto"]}, {"weighted": True}),
}
"""The class of each method, with the settings of its clients and of its server."""


class Shards:
    """The clients' data, in fluke's own loaders of tensors."""

    def assign(self, n_clients: int, batch_size: int) -> Any:
        """The loaders of the clients and of the server's test.

        Args:
            n_clients: how many clients.
            batch_size: not used: every batch is whole.
        """
        train = [FastDataLoader(*own(i), num_labels=3, batch_size=0, shuffle=False) for i in range(n_clients)]
        return (train, [None] * n_clients), FastDataLoader(*own(0), num_labels=3, batch_size=0)


class Rows(FederationObserver):
    """Keeps the global model of every round.

    Args:
        server: which has it.
    """

    def __init__(self, server: Any) -> None:
        self.server, self.rows = server, list[list[float]]()

    def end_round(self, round: int) -> None:
        """The end of a round.

        Args:
            round: its number.
        """
        self.rows.append(row(getattr(self.server, "cld_mdl", self.server.model)))


def run(method: str) -> list[list[float]]:
    """The models of a method; of FedDyn those that the clients begin from.

    Args:
        method: one of the task's.
    """
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    kind, client, server = KINDS[method]
    common = {
        "batch_size": 0,
        "local_epochs": STEPS,
        "loss": "CrossEntropyLoss",
        "optimizer": {"name": "SGD", "lr": LR},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    algorithm = kind(POPULATION, Shards(), DDict(client={**common, **client}, server=server, model=linear()))
    cohorts = iter(COHORTS)
    algorithm.server.get_eligible_clients = lambda _: [algorithm.clients[i] for i in next(cohorts)]
    rows = Rows(algorithm.server)
    algorithm.set_callbacks(rows)
    algorithm.run(len(COHORTS), len(COHORTS[0]) / POPULATION, finalize=False)
    if method == "Ditto":
        rows.rows += [row(client.personalized_model) for client in algorithm.clients]
    return rows.rows
