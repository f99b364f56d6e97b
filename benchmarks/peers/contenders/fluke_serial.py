"""fluke: its algorithms, one process."""

from contenders import allow_torchvision

allow_torchvision()

from fluke import DDict, FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.algorithms.scaffold import SCAFFOLD  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402
from fluke.server import EarlyStopping  # noqa: E402
from fluke.utils import FederationObserver  # noqa: E402
from torch import nn  # noqa: E402

from turns import Turns  # noqa: E402
from work import CLIENTS, Data, Setting, cohort, initial  # noqa: E402


class Shards:
    """The clients' data, in fluke's own loaders of tensors.

    Args:
        data: the data.
        shuffle: whether clients shuffle.
    """

    def __init__(self, data: Data, shuffle: bool) -> None:
        self.data, self.shuffle = data, shuffle

    def assign(
        self, n_clients: int, batch_size: int
    ) -> tuple[tuple[list[FastDataLoader], list[FastDataLoader | None]], FastDataLoader]:
        """The loaders of the clients and of the server's test.

        Args:
            n_clients: how many clients.
            batch_size: examples in a batch.
        """
        own = [self.data.own(client) for client in range(n_clients)]
        train = [FastDataLoader(*pair, num_labels=10, batch_size=batch_size, shuffle=self.shuffle) for pair in own]
        return (train, [None] * n_clients), FastDataLoader(*self.data.test, num_labels=10, batch_size=1000)


class Pause(FederationObserver):
    """Waits for the next turn.

    Args:
        turns: the protocol.
        model: the global model.
    """

    def __init__(self, turns: Turns, model: nn.Module) -> None:
        self.turns, self.model = turns, model

    def end_round(self, round: int) -> None:
        """The end of a round.

        Args:
            round: its number.
        """
        if not self.turns.pause(lambda: self.model):
            raise EarlyStopping(round)


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
        raise ValueError("fluke runs in one process: workers must be 1")
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    client = {
        "batch_size": setting.batch,
        "local_epochs": 1,
        "loss": "CrossEntropyLoss",
        "optimizer": {"name": "SGD", "lr": setting.lr},
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
    }
    params = DDict(client=client, server={"weighted": True}, model=initial(setting))
    kind = SCAFFOLD if method == "scaffold" else FedAVG
    algorithm = kind(CLIENTS, Shards(data, shuffle), params)
    server = algorithm.server
    server.get_eligible_clients = lambda _: [algorithm.clients[i] for i in cohort(setting, algorithm.rounds)]
    pause = Pause(turns, server.model)
    algorithm.set_callbacks(pause)
    if turns.pause(lambda: server.model):
        algorithm.run(10**6, setting.cohort / CLIENTS, finalize=False)
